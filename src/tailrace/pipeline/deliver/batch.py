"""Batches: which records a writer gets at a time, and what tasks have staged of them."""

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
"""The most records of a partition in one batch."""
FIRST_RECORDS, GROWTH = 2_000, 4
"""The most records of a partition in a run's first batch; each next batch may have `GROWTH` times as many.  So even a
short run finishes a batch, however much is pending."""
MAX_COMMANDS_PER_TASK = 200
"""The most commands that a task passes."""


@dataclass(slots=True)
class StagedBatch:
    """The outcomes of the tasks that staged these ranges, or the error that stopped them."""

    ranges: Sequence[DeliveryRange]
    outcomes: Sequence[Outcome] = ()
    trouble: Trouble | None = None

    @property
    def staged(self) -> list[Staged]:
        """The staged results of this batch's tasks that are not empty, which the driver passes to the writer's
        `finish`."""
        return [o.staged for o in self.outcomes if o.staged is not None and (o.staged.rows or o.staged.namespaces)]

    @property
    def unfinished(self) -> list[Staged]:
        """All staged results of this batch's tasks, also those of steps; the driver discards them if the batch
        fails."""
        every = [one for outcome in self.outcomes for one in (*outcome.steps, outcome)]
        return [one.staged for one in every if one.staged is not None]

    def step(self) -> StagedBatch | None:
        """The rows before the next command that all tasks have passed, as a batch; None if there is no such command."""
        if not (self.outcomes and all(outcome.steps for outcome in self.outcomes)):
            return None
        return StagedBatch(self.ranges, [outcome.steps[0] for outcome in self.outcomes])

    def after(self, marks: Mapping[int, Mark]) -> dict[int, Mark]:
        """The marks of a writer that has these marks, once this batch is finished."""
        after = {q: mark.copy() for q, mark in marks.items()}
        for outcome in self.outcomes:
            for q, reached in outcome.reached.items():
                after[q].acknowledge(reached - 1)
        return after

    def leave_ahead(self) -> StagedBatch:
        """Remove from this batch what some tasks have staged behind a command that other tasks have not reached, and
        return it."""
        far = [outcome for outcome in self.outcomes if outcome.steps]
        for outcome in far:
            outcome.steps[0].printed = outcome.printed
        self.outcomes = [outcome.steps[0] if outcome.steps else outcome for outcome in self.outcomes]
        return StagedBatch((), [one for outcome in far for one in (*outcome.steps[1:], outcome)])

    def without_step(self) -> StagedBatch:
        """Remove the step that `step` returned, once it is finished; returns this batch."""
        for outcome in self.outcomes:
            del outcome.steps[0]
        return self


def pending(marks: Mapping[int, Mark], ends: Mapping[int, int], most: int) -> list[DeliveryRange]:
    """The ranges between marks and ends, up to `most` records of each partition."""
    return [
        DeliveryRange(q, mark.resume, min(ends[q], mark.resume + min(most, MAX_RECORDS_PER_PARTITION)), mark)
        for q, mark in marks.items()
        if q in ends and mark.resume < ends[q]
    ]


def size(ranges: Sequence[DeliveryRange]) -> int:
    """The number of offsets in these ranges of a batch."""
    return sum(part.end - part.start for part in ranges)


def until(head: Head, positions: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """The offsets at which a batch from these positions must end, and the number of partitions up to there.  Where the
    log has grown, records behind the growth come only after all records before it."""
    past = passed(head, positions)
    if past == len(head.grown):
        return dict(head.next), head.partitions
    at = head.grown[past].at
    return {q: min(end, at[q]) for q, end in head.next.items()}, len(at)
