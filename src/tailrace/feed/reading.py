"""Reading one partition of the feed: batches of spans from a checkpoint on, epoch after epoch, to the tail."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import OutOfRange
from tailrace.events.reading import Forward, read_tip
from tailrace.events.tip import Tip
from tailrace.feed.checkpoint import after_epoch, checkpoint, place
from tailrace.feed.epoch import CLOSED, INGESTED, decode
from tailrace.feed.index import active_epoch, damaged_epoch, epoch_stream
from tailrace.feed.span import Span
from tailrace.storage.calls import Steps


def is_closed(epoch: Tip) -> bool:
    """Whether an epoch is closed, by its Tip."""
    return bool(epoch.types) and epoch.types[-1] == CLOSED


class Tail(NamedTuple):
    """The end of one partition of the index: its active epoch, the batches in that, and the checkpoint behind them."""

    epoch: int
    batches: int
    checkpoint: int


def tail_of(partition: int) -> Steps[Tail]:
    """The end of a partition.  Behind an epoch that is closed already it is in the next one."""
    epoch = yield from active_epoch(partition)
    tip = yield from read_tip(epoch_stream(partition, epoch))
    if is_closed(tip):
        return Tail(epoch, tip.version - 1, after_epoch(epoch))
    return Tail(epoch, tip.version, checkpoint(epoch, tip.version))


class SpanBatch(NamedTuple):
    """The spans of one `Ingested` event, and the checkpoint behind it."""

    checkpoint: int
    spans: tuple[Span, ...]


class IndexReader:
    """Reads one partition of the index from a checkpoint on."""

    def __init__(self, partition: int, start: int = 0) -> None:
        self.partition = partition
        self._epoch, self._index = place(start)
        self._reader: Forward | None = None
        self._checked = False

    @property
    def checkpoint(self) -> int:
        """The checkpoint behind the last batch that was read."""
        return checkpoint(self._epoch, self._index)

    def page(self) -> Steps[list[SpanBatch]]:
        """The next batches; none at the tail, where a later call may find more."""
        if not self._checked:
            yield from self.check_start()
        while True:
            self._reader = self._reader or Forward(epoch_stream(self.partition, self._epoch), self._index)
            events = yield from self._reader.page()
            entries = []
            for event in events:
                self._index = event.index + 1
                if event.type == CLOSED:
                    self._epoch, self._index, self._reader = self._epoch + 1, 0, None
                    break
                if event.type == INGESTED:
                    entries.append(SpanBatch(self.checkpoint, decode(event).spans))
            if entries:
                return entries
            if self._reader is not None and not events:
                self._reader = None  # the next call looks again from here
                yield from self._check_open()
                return []

    def check_start(self) -> Steps[None]:
        """Raise `OutOfRange` if the checkpoint is beyond the tail."""
        tip = yield from read_tip(epoch_stream(self.partition, self._epoch))
        active = yield from active_epoch(self.partition)
        if self._index > tip.version or self._epoch > active + 1:
            raise OutOfRange(
                f"the checkpoint {self.checkpoint} is beyond the tail of the feed, which is in epoch {active}: was the "
                "index made again, or is it another store's? Checkpoint 0 begins with the first event"
            )
        if self._index == tip.version and is_closed(tip):
            self._epoch, self._index = self._epoch + 1, 0
        self._checked = True

    def _check_open(self) -> Steps[None]:
        """Raise `Damaged` if the epoch ends without `Closed` though a later epoch exists."""
        if (yield from active_epoch(self.partition)) > self._epoch:
            again = yield from Forward(epoch_stream(self.partition, self._epoch), self._index).page()
            if not again:
                raise damaged_epoch(self.partition, self._epoch)
