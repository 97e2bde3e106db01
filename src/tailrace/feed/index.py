"""The index: every append to the event store, in the order in which an indexer has seen it.

    $AppendsEpoch-<partition>_<epoch>   `Ingested` for each batch of spans with new events, `Closed` at the end
    $AppendsIndex-<partition>           one `Started` for each epoch but the first: its version is the active epoch

Both are streams of events.  An indexer appends at the version that it has seen, so of two indexers only one can write,
and the other reads again: the index is correct without a lease, which only saves work.  Nothing is appended to a closed
epoch; the next indexer starts the one after it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tailrace.errors import Damaged, MissingEvents, VersionConflict
from tailrace.events.append import AppendSettings, commit, part
from tailrace.events.event import Event
from tailrace.events.pruning import prune, raise_floor
from tailrace.events.reading import Forward, read_tip
from tailrace.feed.epoch import CLOSED, Epoch, EpochLimits, IndexGap, NewSpans
from tailrace.feed.span import Span
from tailrace.storage import calls
from tailrace.storage.calls import Steps

YOUNG_SECONDS = 25 * 3600
"""How long an indexer remembers the events of a closed epoch: a table's stream delivers no change again that is older
than 24 hours."""
SHARE_BYTES = 64 * 1024
TYPE_BYTES = 32
"""The approximate largest size of an `Ingested` event, with TYPE_BYTES counted for each event's type: far below the
size limit of an item."""
STARTED = "Started"
NAMED_GAPS = 5

log = logging.getLogger(__name__)


def epoch_stream(partition: int, epoch: int) -> str:
    """The name of the stream that holds an epoch of the index."""
    return f"$AppendsEpoch-{partition}_{epoch}"


def index_stream(partition: int) -> str:
    """The name of the stream whose version is the active epoch."""
    return f"$AppendsIndex-{partition}"


def active_epoch(partition: int) -> Steps[int]:
    """The number of the active epoch, to which indexers append."""
    return (yield from read_tip(index_stream(partition))).version


@dataclass(frozen=True, slots=True)
class Ingestion:
    """The result of indexing: the numbers of new spans and events, and the gaps where events were missing."""

    spans: int
    events: int
    gaps: tuple[IndexGap, ...] = ()


@dataclass(slots=True)
class Indexer:
    """Appends spans to one partition of the index.  Used by one thread at a time; remembers the active epoch."""

    partition: int = 0
    limits: EpochLimits = field(default_factory=EpochLimits)
    gaps: Literal["refuse", "warn"] = "refuse"
    """What to do where events of a stream are missing: raise `MissingEvents`, or index past the gap and log it."""
    remembered: float = YOUNG_SECONDS
    """For how many seconds after an epoch was closed its events are remembered.  Infinite compares with the whole
    index, for events of any age."""
    settings: AppendSettings = field(default_factory=AppendSettings)
    wall: Callable[[], float] = time.time
    _number: int = -1
    _epoch: Epoch = field(default_factory=Epoch)
    _young: list[tuple[float, dict[str, int]]] = field(default_factory=list)

    def ingest(self, spans: Iterable[Span]) -> Steps[Ingestion]:
        """Store the new events among these spans.  If events are missing and `gaps` is refuse, it stores the spans
        without gaps before it raises `MissingEvents`."""
        given = list(spans)
        attempts = taken = events = 0
        passed: dict[IndexGap, None] = {}
        while True:
            fresh = self._number < 0
            yield from self._load()
            batch, gaps = self._epoch.ingest(given, over_gaps=self.gaps == "warn")
            if gaps and not fresh:
                self._number = -1  # another indexer may have stored what seems to be missing
                continue
            # Gaps that are passed over do not show again; those that are refused do, unless another indexer fills them.
            passed = {**(passed if self.gaps == "warn" else {}), **dict.fromkeys(gaps)}
            if not batch and not self._epoch.full(self.limits):
                return self._answer(Ingestion(taken, events, tuple(passed)))
            try:
                done = yield from self._write(batch)
            except VersionConflict:
                self._number = -1  # another indexer was first
                yield from calls.pause(attempts)
                attempts += 1
                continue
            taken += len(done)
            events += sum(len(span.types) for span in done)

    def _answer(self, done: Ingestion) -> Ingestion:
        if done.gaps:
            some = ", ".join(f"{gap.missing} before {gap.stream}/{gap.at}" for gap in done.gaps[:NAMED_GAPS])
            if self.gaps == "refuse":
                raise MissingEvents(
                    f"events did not come with the table's changes: {some}{_and_more(done.gaps)}; nothing more is "
                    "indexed. `tailrace events index rebuild` takes them from the streams themselves",
                    gaps=done.gaps,
                )
            log.warning("the index goes on without events: %s%s", some, _and_more(done.gaps))
        return done

    def _write(self, batch: NewSpans) -> Steps[list[Span]]:
        """Append spans of a batch until the epoch is full, then close it; returns the spans that were stored."""
        done: list[Span] = []
        for share in _shares(batch):
            if self._epoch.full(self.limits):
                break
            yield from self._append(share.encode())
            done += share.spans
        if self._epoch.full(self.limits):
            yield from self._append(Event(CLOSED))
        return done

    def _append(self, event: Event) -> Steps[None]:
        stream = epoch_stream(self.partition, self._number)
        yield from commit([part(stream, [event], (), self.settings, expected=self._epoch.version)], self.settings)
        self._epoch.fold([event])

    # -- looking
    def _load(self) -> Steps[None]:
        """Read the active epoch unless it is known; start the next one if it is closed."""
        if self._number < 0:
            number = yield from active_epoch(self.partition)
            self._young = yield from self._closed_lately(number)
            yield from self._open(number)
        while self._epoch.closed:
            self._young.append((self.wall(), self._epoch.next))
            yield from self._start(self._number + 1)
            yield from self._open(self._number + 1)

    def _open(self, number: int) -> Steps[None]:
        since = self.wall() - self.remembered
        self._young = [(closed, known) for closed, known in self._young if closed > since]
        epoch = Epoch(before={stream: at for _, known in self._young for stream, at in known.items()})
        yield from fold_epoch(self.partition, number, epoch)
        self._number, self._epoch = number, epoch

    def _start(self, epoch: int) -> Steps[None]:
        stream = index_stream(self.partition)
        started = part(stream, [Event(STARTED)], (), self.settings, expected=epoch - 1)
        with suppress(VersionConflict):  # another indexer has started it
            yield from commit([started], self.settings)

    def _closed_lately(self, active: int) -> Steps[list[tuple[float, dict[str, int]]]]:
        """When each recent epoch before the active one was closed, and the next index of each of its streams; oldest
        first.  Older epochs are left out: their events are not delivered again."""
        young: list[tuple[float, dict[str, int]]] = []
        for number in range(active - 1, -1, -1):
            epoch = Epoch()
            stamp = yield from fold_epoch(self.partition, number, epoch)
            if stamp is None:
                raise damaged_epoch(self.partition, number)
            closed = datetime.fromisoformat(stamp).timestamp()
            if self.wall() - closed > self.remembered:
                break
            young.insert(0, (closed, epoch.next))
        return young


def _and_more(gaps: Sequence[IndexGap]) -> str:
    return f", and in {len(gaps) - NAMED_GAPS} more streams" if len(gaps) > NAMED_GAPS else ""


def damaged_epoch(partition: int, epoch: int) -> Damaged:
    """The error for an epoch of the index that is not closed though a later one exists."""
    stream = epoch_stream(partition, epoch)
    return Damaged(
        f"events of {stream!r} are gone: the epoch was closed, and does not say so any more; "
        "`tailrace events index rebuild --all` makes the index again from the events themselves",
        where=stream,
    )


def leave_behind(partition: int) -> Steps[None]:
    """Empty every epoch and start a new one behind them, so that the index can be made again.

    Each epoch keeps its version and its `Closed`: so its readers continue with the next epoch, and the append of an
    indexer that remembers it is refused."""
    active, settings = (yield from active_epoch(partition)), AppendSettings()
    for epoch in range(active + 1):
        yield from _empty(epoch_stream(partition, epoch), settings)
    started = part(index_stream(partition), [Event(STARTED)], (), settings, expected=active)
    with suppress(VersionConflict):  # another process has started it
        yield from commit([started], settings)


def _empty(stream: str, settings: AppendSettings) -> Steps[None]:
    """Close an epoch if it is open, and remove all of its events but `Closed`."""
    while not ((tip := (yield from read_tip(stream))).types and tip.types[-1] == CLOSED):
        with suppress(VersionConflict):
            yield from commit([part(stream, [Event(CLOSED)], (), settings, expected=tip.version)], settings)
    yield from raise_floor(stream, tip.first)  # so that `prune` does not look for calves that are lost
    yield from prune(stream, tip.version - 2, settings.new_id)


def fold_epoch(partition: int, number: int, epoch: Epoch) -> Steps[str | None]:
    """Apply the index's stored events of an epoch to `epoch`; returns the time at which it was closed, None if it is
    open."""
    reader, closed = Forward(epoch_stream(partition, number)), None
    while page := (yield from reader.page()):
        epoch.fold(page)
        closed = next((event.time for event in page if event.type == CLOSED), closed)
    return closed


def _shares(batch: NewSpans) -> Iterator[NewSpans]:
    """Cut a batch into pieces, each small enough for one event."""
    for some in _cut(batch.added):
        yield NewSpans(added=some)
    for some in _cut(batch.appended):
        yield NewSpans(appended=some)


def _cut(spans: Iterable[Span]) -> Iterator[tuple[Span, ...]]:
    share: list[Span] = []
    size = 0
    for span in (piece for whole in spans for piece in _pieces(whole)):
        share.append(span)
        size += len(span.stream) + len(span.types) * TYPE_BYTES
        if size >= SHARE_BYTES:
            yield tuple(share)
            share, size = [], 0
    if share:
        yield tuple(share)


def _pieces(span: Span) -> Iterator[Span]:
    most = SHARE_BYTES // TYPE_BYTES
    for first in range(0, len(span.types), most):
        yield Span(span.stream, span.first + first, span.types[first : first + most])
