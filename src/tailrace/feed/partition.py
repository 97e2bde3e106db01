"""Partitions of the index: a stream is always in the same partition, so that its events stay in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tailrace.feed.span import Span


def partition_of(stream: str, partitions: int) -> int:
    """The partition of the index that has a stream's events."""
    if partitions == 1:
        return 0
    return int.from_bytes(hashlib.sha256(stream.encode()).digest(), "big") % partitions


def shares(spans: Iterable[Span], partitions: int) -> dict[int, list[Span]]:
    """Group spans by their stream's partition, in their order."""
    found: dict[int, list[Span]] = {}
    for span in spans:
        found.setdefault(partition_of(span.stream, partitions), []).append(span)
    return found
