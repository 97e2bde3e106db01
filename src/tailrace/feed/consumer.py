"""Consumers of the feed: its partitions as units that a group's members share, with stored checkpoints.

    $ReaderCheckpoint-<partition>_<group>   how far a group is: a stream with no events, whose one unfold `Checkpointed`
                                            is {checkpoint, within}; each commit replaces it
    UNIT (see coordination.units)           unit: the partition; the member that reads it
    the group's own item                    start[]: the checkpoint of each partition at which the group began

A checkpoint rises with the last event of a batch.  `within` is the number of events of the batch behind it that are
handled or filtered out, so that the writes that a handler returns are stored exactly once for every event.  One
transaction writes the checkpoint and the unit's position, under the lease, and only if the checkpoint is still the one
that the consumer has read.  So when an operator overrides it, a running consumer continues from the new checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.coordination.source import UnitMoved, UnitWrite
from tailrace.coordination.units import Units
from tailrace.errors import BadInput, Damaged, OutOfRange, TailraceError
from tailrace.events.append import StreamAppend, conflict, part
from tailrace.events.event import Event
from tailrace.events.reading import read_tip
from tailrace.events.store import Events, StreamChange
from tailrace.events.tip import Tip
from tailrace.feed.feed import Feed, FeedEvent, Filter
from tailrace.feed.indexing import Indexing
from tailrace.feed.reading import IndexReader, SpanBatch
from tailrace.feed.state import look, partitions_of
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Item
from tailrace.storage.tables import Change as Changed
from tailrace.streams.writing import Transaction

CHECKPOINTED = "Checkpointed"
MOST_READ = 500
"""A read ends with the batch that brings it to this many events, so as not to run far ahead of the handler."""


class FeedProgress(msgspec.Struct, frozen=True):
    """How far a group is in a partition: a checkpoint, and how many events behind it are already handled."""

    checkpoint: int = 0
    within: int = 0


def units_of(group: str) -> Units:
    """The units of a group of the feed, one for each partition."""
    return Units("feed", group, "the feed")


def checkpoint_stream(group: str, partition: int) -> str:
    """The name of the stream with a group's progress in a partition."""
    return f"$ReaderCheckpoint-{partition}_{group}"


def progress_of(tip: Tip) -> FeedProgress | None:
    """The progress in the Tip of a group's stream; None if the group has not committed yet or was deleted."""
    for unfold in tip.unfolds():
        if unfold.type == CHECKPOINTED and unfold.data != b"null":
            return msgspec.json.decode(unfold.data, type=FeedProgress)
    return None


def progress_part(group: str, partition: int, progress: FeedProgress | None, events: Events) -> StreamAppend:
    """The write that stores a group's progress; None removes it."""
    unfold = Event(CHECKPOINTED, msgspec.json.encode(progress))
    return part(checkpoint_stream(group, partition), (), [unfold], events.settings)


def start_of(group: Item, partition: int) -> FeedProgress:
    """The checkpoint at which a group began in a partition, as progress."""
    return FeedProgress(group["start"][partition])


class Row(NamedTuple):
    """An event of the feed, and the group's progress once it is handled."""

    event: FeedEvent
    progress: FeedProgress


class FeedSource:
    """The feed as a source of units for the members of a group."""

    fatal: tuple[type[Exception], ...] = (OutOfRange, Damaged)

    def __init__(
        self,
        events: Events,
        group: str,
        start: Sequence[int],
        *,
        bodies: bool = True,
        wanted: Filter | None = None,
        indexing: Callable[[], Indexing | None] = lambda: None,
    ) -> None:
        self.units = units_of(group)
        self._events, self._group, self._start = events, group, start
        self._bodies, self._wanted, self._indexing = bodies, wanted, indexing

    def join(self) -> Steps[Item]:
        """Return the group's item; creates the group at the feed's checkpoints if it is missing."""

        def kept() -> Steps[Mapping[str, Any]]:
            count = partitions_of((yield from look()))
            if len(self._start) != count:
                raise BadInput(
                    f"a group shares all {count} partitions of the feed; take the consumer of events.feed() without "
                    "partition=…"
                )
            for partition, start in enumerate(self._start):
                yield from IndexReader(partition, start).check_start()
            return {"start": list(self._start)}

        return (yield from self.units.make(kept))

    def look(self) -> Steps[None]:
        """Create the units of partitions that have none; raises the error that keeps this process from indexing."""
        group = yield from self.units.found()
        there = yield from self.units.everything(group["era"])
        for partition in range(partitions_of((yield from look()))):
            if str(partition) not in there:
                yield from self.units.add(group["era"], str(partition), {})
        indexing = self._indexing()
        if indexing is not None and isinstance(indexing.failure, TailraceError):
            raise indexing.failure

    def open(self, unit: str, item: Item) -> Steps[FeedUnit]:
        """Open a partition at the group's progress."""
        tip = yield from read_tip(checkpoint_stream(self._group, int(unit)))
        progress = progress_of(tip)
        if progress is None:
            group = yield from self.units.found()
            progress = start_of(group, int(unit))
        return FeedUnit(self._events, self._group, int(unit), tip, progress, self._bodies, self._wanted)

    def value(self, record: Row) -> FeedEvent:
        """The event of a row, as the handler gets it."""
        return record.event

    def writes(self, returned: Any) -> Steps[list[UnitWrite]]:
        """The writes that a handler has returned: `engine.writes()`, `stream.change(…)`, or a list of these.

        `Conflict` if a stream no longer has the version that a change expects."""
        found: list[UnitWrite] = []
        for one in _several(returned):
            if isinstance(one, Transaction):
                found += [UnitWrite(table, action) for table, action in one.parts()]
            else:
                found += yield from self._append(one.part(self._events.settings))
        return found

    def _append(self, new: StreamAppend) -> Steps[list[UnitWrite]]:
        tip = yield from read_tip(new.stream)
        if new.wrong(tip):
            raise conflict(new, tip)
        actions, _ = new.action(tip, self._events.settings, self._events.settings.new_id())
        return [UnitWrite(None, action, racing=new.expected is None) for action in actions]

    def described(self, unit: str, record: Row) -> Mapping[str, Any]:
        """The event and its `id` as a dead letter stores them."""
        event = record.event
        kept = {"stream": event.stream, "index": event.index, "type": event.type, "checkpoint": event.checkpoint}
        bodies = {} if event.event is None else {"data": event.event.data, "meta": event.event.meta}
        return {"id": f"{event.stream}/{event.index}", **kept, **bodies}


def _several(returned: Any) -> Iterable[Transaction | StreamChange]:
    if returned is None:
        return ()
    many = returned if isinstance(returned, (list, tuple)) else [returned]
    for one in many:
        if not isinstance(one, (Transaction, StreamChange)):
            raise BadInput(
                "a handler returns None, table writes (engine.writes()), event appends "
                f"(events.stream(NAME).change(…)), or a list of these, not {one!r}"
            )
    return many


class FeedUnit:
    """Reads one partition of the feed for its member, and plans the write of the group's progress."""

    def __init__(
        self,
        events: Events,
        group: str,
        partition: int,
        tip: Tip,
        progress: FeedProgress,
        bodies: bool,
        wanted: Filter | None,
    ) -> None:
        self._events, self._group, self._partition, self._tip = events, group, partition, tip
        self._feed = Feed(events, progress.checkpoint, partition=partition, bodies=bodies, wanted=wanted)
        self._within = progress.within
        self._entries: deque[SpanBatch] = deque()
        self._read = self._kept = self._asked = progress
        self._next = tip

    ended = False

    def read(self) -> list[Row]:
        """The next wanted events, none at the tail; `UnitMoved` there if an operator has overridden the checkpoint."""
        found: list[Row] = []
        while len(found) < MOST_READ:
            try:
                if not self._entries:
                    self._entries.extend(self._feed.page())
                if not self._entries:
                    break
                found += self._rows(self._entries[0])
            except Exception:
                if found:  # the handler gets these first; the next call meets the error again
                    break
                raise
            self._entries.popleft()
        if not found:
            self._check_place()
        return found

    def _check_place(self) -> None:
        """Raise `UnitMoved` if an operator has overridden the checkpoint: at the tail there is no commit to notice
        it."""
        now = self._events.store.run(read_tip(checkpoint_stream(self._group, self._partition)))
        if now.etag != self._tip.etag:
            raise UnitMoved

    def _rows(self, entry: SpanBatch) -> list[Row]:
        """The wanted events of a batch.  If they cannot be read, the reader stays before the batch."""
        before, done = self._read.checkpoint, self._within
        rows = [(n, event) for n, event in self._feed.numbered(entry) if n >= done]
        self._within, self._read = 0, FeedProgress(entry.checkpoint)
        self._feed.checkpoint = entry.checkpoint
        last = len(rows) - 1
        return [
            Row(event, self._read if k == last else FeedProgress(before, n + 1)) for k, (n, event) in enumerate(rows)
        ]

    @property
    def due(self) -> bool:
        """Whether the reader is further than the last commit, be it only by events that the filter leaves out."""
        return self._read != self._kept

    def kept(self, last: Row | None) -> tuple[Changed, ...]:
        """No changes of the unit's item: the progress is in a stream of its own."""
        return ()

    def also(self, last: Row | None) -> Steps[Sequence[Action]]:
        """The actions that store the progress behind `last`, or behind all that was read.  Refused if an operator has
        overridden the stored progress."""
        progress = self._read if last is None else last.progress
        written = progress_part(self._group, self._partition, progress, self._events)
        actions, self._next = written.action(self._tip, self._events.settings, self._events.settings.new_id())
        self._asked = progress
        yield from ()
        return actions

    def committed(self) -> None:
        """Note that the last actions of `also` are stored."""
        self._tip, self._kept = self._next, self._asked

    def close(self) -> None:
        """Stop the feed's threads."""
        self._feed.close()
