"""The failed batch: its end in each partition, and the parts that are still to be delivered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.pipeline.deliver.delivery import DeliveryRange
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import Span, clipped, halved
from tailrace.pipeline.runtime.trouble import Trouble


@dataclass(slots=True)
class FailedBatch:
    """A batch that is being delivered again, in ever smaller parts; no batch has failed if `ends` is empty."""

    ends: dict[int, int] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    """The parts that are still to be delivered, the next one last."""
    cause: Trouble = field(default_factory=lambda: Trouble(""))

    def __bool__(self) -> bool:
        return bool(self.ends)

    def pending(self, marks: Mapping[int, Mark], waiting: Collection[int]) -> dict[int, int]:
        """The batch's ends in the partitions where messages are left, without those that wait before a command; drops
        the others."""
        self.ends = {q: end for q, end in self.ends.items() if q not in waiting and marks[q].resume < end}
        return self.ends

    def parts(self, ranges: Sequence[DeliveryRange], marks: Mapping[int, Mark]) -> list[Span]:
        """The parts of these ranges to deliver next: those that an earlier task has left, or else two halves."""
        return clipped(self.spans, marks) or list(reversed(halved(ranges)))


def failed_batch(ranges: Sequence[DeliveryRange], cause: Trouble) -> FailedBatch:
    """The failed batch of these ranges."""
    return FailedBatch({part.partition: part.end for part in ranges}, [], cause)
