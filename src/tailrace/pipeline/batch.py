"""Batches: what a writer is given at a time, and how far that may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.adaptors.contract import Staged
from tailrace.log.group import passed
from tailrace.log.head import Head
from tailrace.pipeline.delivery import Outcome, Range
from tailrace.pipeline.offsets import Mark
from tailrace.pipeline.trouble import Trouble

MOST = 50_000
"""At most so many records of a partition go into one batch."""
FIRST, GROWS = 2_000, 4
"""And so many into a run's first; each next one may have some times as many.  So a run gets somewhere, however short it
is, and however much is pending."""


@dataclass(slots=True)
class Batch:
    """What tasks have staged of some ranges, or what kept them from it."""

    ranges: Sequence[Range]
    outcomes: Sequence[Outcome] = ()
    trouble: Trouble | None = None

    @property
    def staged(self) -> list[Staged]:
        """What there is to be finished."""
        return [o.staged for o in self.outcomes if o.staged is not None and o.staged.rows]


def pending(marks: Mapping[int, Mark], ends: Mapping[int, int], most: int) -> list[Range]:
    """What is between marks and ends, up to so much of each partition."""
    return [
        Range(q, mark.resume, min(ends[q], mark.resume + min(most, MOST)), mark)
        for q, mark in marks.items()
        if q in ends and mark.resume < ends[q]
    ]


def size(ranges: Sequence[Range]) -> int:
    """How many records that is."""
    return sum(part.end - part.start for part in ranges)


def until(head: Head, positions: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """How far a batch may go from here, and how many partitions there are up to there: the log may have grown, and what
    is beyond comes after all before it."""
    past = passed(head, positions)
    if past == len(head.grown):
        return dict(head.next), head.partitions
    at = head.grown[past].at
    return {q: min(end, at[q]) for q, end in head.next.items()}, len(at)
