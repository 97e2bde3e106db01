"""Spans: ranges of an object that lie near each other, fetched together and cut apart again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

MAX_GAP_BYTES = 1024 * 1024
"""Reading this many unneeded bytes takes no longer than another request."""


def joined(ranges: Sequence[tuple[int, int]], gap: int = MAX_GAP_BYTES) -> list[tuple[int, int]]:
    """The (start, end) spans, in order and apart by more than `gap`, that cover all (position, length) ranges."""
    spans: list[tuple[int, int]] = []
    for position, length in sorted(r for r in ranges if r[1] > 0):
        if spans and position <= spans[-1][1] + gap:
            spans[-1] = (spans[-1][0], max(spans[-1][1], position + length))
        else:
            spans.append((position, position + length))
    return spans


def cut(spans: Sequence[tuple[int, int]], found: Sequence[memoryview], position: int, length: int) -> memoryview:
    """One range out of the bytes that were fetched for the spans; shorter if the object ended within it."""
    if length <= 0:
        return memoryview(b"")
    span = bisect_right(spans, position, key=lambda s: s[0]) - 1
    start = position - spans[span][0]
    return found[span][start : start + length]
