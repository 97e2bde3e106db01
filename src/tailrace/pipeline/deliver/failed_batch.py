"""The failed batch: where it ends in each partition, and what of it is still to be delivered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.pipeline.deliver.delivery import DeliveryRange
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import Span, clipped, halved
from tailrace.pipeline.runtime.trouble import Trouble


@dataclass(slots=True)
class FailedBatch:
    """A batch that is being delivered again, in ever smaller parts; none, if `ends` is empty."""

    ends: dict[int, int] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    """Parts of it that are still to be delivered, the next one last."""
    cause: Trouble = field(default_factory=lambda: Trouble(""))

    def __bool__(self) -> bool:
        return bool(self.ends)

    def pending(self, marks: Mapping[int, Mark], waiting: Collection[int]) -> dict[int, int]:
        """Its ends in the partitions where some of it is left; those that wait before a command are not among them."""
        self.ends = {q: end for q, end in self.ends.items() if q not in waiting and marks[q].resume < end}
        return self.ends

    def parts(self, ranges: Sequence[DeliveryRange], marks: Mapping[int, Mark]) -> list[Span]:
        """What to deliver next of some ranges of it: where an earlier task left off, or else in halves."""
        return clipped(self.spans, marks) or list(reversed(halved(ranges)))


def failed_batch(ranges: Sequence[DeliveryRange], cause: Trouble) -> FailedBatch:
    """A batch of these ranges has failed."""
    return FailedBatch({part.partition: part.end for part in ranges}, [], cause)
