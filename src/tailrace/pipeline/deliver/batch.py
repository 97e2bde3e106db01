"""Batches: what a writer is given at a time, and how far that may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.adaptors.contract import Staged
from tailrace.log.format.head import Head
from tailrace.log.groups.group import passed
from tailrace.pipeline.deliver.delivery import DeliveryRange, Outcome
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.runtime.trouble import Trouble

MAX_RECORDS_PER_PARTITION = 50_000
"""At most so many records of a partition go into one batch."""
FIRST_RECORDS, GROWTH = 2_000, 4
"""At most so many records of a partition go into a run's first batch; each next one may have `GROWTH` times as many.
So even a short run finishes something, however much is pending."""


MAX_COMMANDS_PER_TASK = 200
"""A task goes past at most so many commands."""


@dataclass(slots=True)
class StagedBatch:
    """What tasks have staged of some ranges, or the error that stopped them."""

    ranges: Sequence[DeliveryRange]
    outcomes: Sequence[Outcome] = ()
    trouble: Trouble | None = None

    @property
    def staged(self) -> list[Staged]:
        """What there is to be finished."""
        return [o.staged for o in self.outcomes if o.staged is not None and (o.staged.rows or o.staged.namespaces)]

    @property
    def unfinished(self) -> list[Staged]:
        """All that tasks have staged, in steps that are not finished, too."""
        every = [one for outcome in self.outcomes for one in (*outcome.steps, outcome)]
        return [one.staged for one in every if one.staged is not None]

    def step(self) -> StagedBatch | None:
        """What stands before the next command that all tasks have passed; None if there is none."""
        if not (self.outcomes and all(outcome.steps for outcome in self.outcomes)):
            return None
        return StagedBatch(self.ranges, [outcome.steps[0] for outcome in self.outcomes])

    def after(self, marks: Mapping[int, Mark]) -> dict[int, Mark]:
        """Where a writer with these marks will be once it is finished."""
        after = {q: mark.copy() for q, mark in marks.items()}
        for outcome in self.outcomes:
            for q, reached in outcome.reached.items():
                after[q].acknowledge(reached - 1)
        return after

    def leave_ahead(self) -> StagedBatch:
        """Take out, and give, what some tasks staged behind a command that the other tasks have not reached."""
        far = [outcome for outcome in self.outcomes if outcome.steps]
        for outcome in far:
            outcome.steps[0].printed = outcome.printed
        self.outcomes = [outcome.steps[0] if outcome.steps else outcome for outcome in self.outcomes]
        return StagedBatch((), [one for outcome in far for one in (*outcome.steps[1:], outcome)])

    def without_step(self) -> StagedBatch:
        """What is left once that is finished."""
        for outcome in self.outcomes:
            del outcome.steps[0]
        return self


def pending(marks: Mapping[int, Mark], ends: Mapping[int, int], most: int) -> list[DeliveryRange]:
    """What is between marks and ends, up to so much of each partition."""
    return [
        DeliveryRange(q, mark.resume, min(ends[q], mark.resume + min(most, MAX_RECORDS_PER_PARTITION)), mark)
        for q, mark in marks.items()
        if q in ends and mark.resume < ends[q]
    ]


def size(ranges: Sequence[DeliveryRange]) -> int:
    """How many records that is."""
    return sum(part.end - part.start for part in ranges)


def until(head: Head, positions: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """The offsets at which a batch from here must end, and how many partitions the log has up to there: where the log
    has grown, the records behind the growth come only after all records before it."""
    past = passed(head, positions)
    if past == len(head.grown):
        return dict(head.next), head.partitions
    at = head.grown[past].at
    return {q: min(end, at[q]) for q, end in head.next.items()}, len(at)
