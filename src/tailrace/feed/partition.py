"""Partitions of the index: a stream is always in the same one, so that its events stay in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tailrace.feed.span import Span


def partition_of(stream: str, partitions: int) -> int:
    """The partition of a stream."""
    if partitions == 1:
        return 0
    return int.from_bytes(hashlib.sha256(stream.encode()).digest(), "big") % partitions


def shares(spans: Iterable[Span], partitions: int) -> dict[int, list[Span]]:
    """Spans by the partition that they belong to, in their order."""
    found: dict[int, list[Span]] = {}
    for span in spans:
        found.setdefault(partition_of(span.stream, partitions), []).append(span)
    return found
