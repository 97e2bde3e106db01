"""Background indexing: a thread in one process of a home turns the changes of its event store into the index.

    $Indexing, 0    partitions: of the index (absent: 1); stream: the capture that is read; token: the position in it;
                    filled: whether the events from before the capture are indexed, too; after: the key of the last
                    item that was indexed for that; trouble{error, kind, at}: why indexing fails; remake: whether the
                    index is being made again

The first reader of the feed in a process starts the thread.  A lease lets one process index at a time; another takes
over when that one ends.  The index is correct without the lease and the token: both only save work."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.lease import Lease
from tailrace.coordination.watch import Wait, block, watch
from tailrace.errors import BadToken, Closed, Fenced, PositionLost, StorageError, TailraceError
from tailrace.events.tip import TIP
from tailrace.feed.epoch import IndexGap
from tailrace.feed.index import Indexer, leave_behind
from tailrace.feed.missing import stored_spans
from tailrace.feed.partition import shares
from tailrace.feed.span import Span, span_of
from tailrace.feed.state import KEY, partitions_of, settled
from tailrace.storage.calls import Steps, Store
from tailrace.storage.changes import Change, Changes
from tailrace.storage.limits import item_size
from tailrace.storage.sqlite.capture import CaptureFilter
from tailrace.storage.tables import Item, Key, Set, Update
from tailrace.streams.stream import Start, Stream

LEASE = "events-index"
TABLE = "events"
MAX_CHANGES = 1_000
"""The most changes in one batch: later changes wait until the batch is stored."""
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""A batch ends with the append that brings its events to so many bytes: readers of the feed have the bodies of a whole
batch in memory."""
TAKE_OVER_SECONDS = 1.0

log = logging.getLogger(__name__)


def captured(store: Store) -> Changes:
    """The changes of an embedded home's event store; starts their capture if it is off."""
    table: Any = store.table
    changes: Changes = table.capture("new", only=CaptureFilter(TIP, "$"))
    return changes


class Indexing:
    """Keeps the index up to date in a daemon thread, until it is closed."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self._store, self._settings = store, settings
        self._indexers: list[Indexer] = []
        self._stop, self._wake = threading.Event(), threading.Event()
        self.failure: BaseException | None = None
        """The error that prevents indexing: the thread tries again every second, or has ended with it.  None: no
        error."""
        self._noted = False
        self._thread = threading.Thread(target=self._run, name="tailrace-index", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop indexing, and let another process take over; waits until the current batch is stored."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Lease(self._store, LEASE) as lease:
                while not self._stop.is_set():
                    if lease.acquire():
                        self._turn(lease)
                    self._stop.wait(TAKE_OVER_SECONDS)
        except Closed:
            pass
        except BaseException as failure:
            self.failure = failure
            log.exception("indexing has ended")

    def _turn(self, lease: Lease) -> None:
        """Index until the lease is lost or an error comes, then release the lease: its next holder tries again."""
        try:
            self._index(lease)
        except Closed:
            raise
        except (Fenced, StorageError) as error:
            log.warning("indexing stops for a moment: %s", error)
        except TailraceError as error:
            self._note_trouble(error, lease)
        lease.release()

    def _note_trouble(self, error: TailraceError, lease: Lease) -> None:
        """Log and store an error, so that readers in this process raise it and `tailrace events index status` shows
        it."""
        if str(error) == str(self.failure) and self._noted:
            return
        log.error("nothing is indexed: %s", error)
        self.failure = error
        trouble = {"error": str(error), "kind": type(error).__name__, "at": int(time.time() * 1000)}
        with suppress(Fenced, StorageError):
            self._store.run(note(lease, Set("trouble", trouble)))

    def _clear_trouble(self, lease: Lease) -> None:
        if self._noted:
            self._store.run(note(lease, Set("trouble", None)))
        self.failure, self._noted = None, False

    def _index(self, lease: Lease) -> None:
        changes = captured(self._store)
        state = self._store.run(settled())
        self._noted = state.get("trouble") is not None
        self._indexers = [Indexer(partition, **self._settings) for partition in range(partitions_of(state))]
        if state.get("stream") != changes.stream or state.get("token") is None:
            state = {**state, **self._begin(changes, lease)}
        if state.get("remake"):
            remake(self._store, lease, len(self._indexers))
            state = {**state, "filled": False, "after": None}
        if not state["filled"]:
            self._fill(state.get("after"), lease)
        try:
            self._follow(_stream(changes, state["token"]), lease)
        except (PositionLost, BadToken):
            # No process has indexed for 24 hours, or the clock was set back, so that nothing tells for how long: the
            # next turn reads the missing events from the store itself.
            self._store.run(note(lease, Set("token", None)))

    def _begin(self, changes: Changes, lease: Lease) -> dict[str, Any]:
        """Note that every stored event is to be indexed, and the place in the capture to follow from after that.

        So the first time, after `PositionLost`, and in a copy of a home, whose capture begins again.  The place is
        noted now: after an interruption its age tells whether changes were trimmed while nobody indexed."""
        token = _stream(changes, "trim_horizon").token
        begun = {"stream": changes.stream, "token": token, "filled": False, "after": None}
        self._store.run(note(lease, *(Set(name, value) for name, value in begun.items())))
        return begun

    def _follow(self, stream: Stream[Change], lease: Lease) -> None:
        wait, found = Wait(watch(self._store), self._wake), False
        while not self._stop.is_set() and lease.held:
            wait.begin(found)
            found = self._batch(stream, lease)
            if not found and not self._stop.is_set():
                block(wait, self._wake)

    def _batch(self, stream: Stream[Change], lease: Lease) -> bool:
        """Index the next changes; returns whether there were any."""
        spans: list[Span] = []
        count = size = 0
        while count < MAX_CHANGES and size < MAX_BATCH_BYTES and (change := next(stream)) is not None:
            count += 1
            if change.new is not None and (span := span_of(change)) is not None:
                # The change itself is not kept: it has the bodies of all events in the Tip.
                spans.append(span)
                size += item_size({"e": change.new["e"][-len(span.types) :]})
        if count:
            ingest(self._store, spans, self._indexers)
            self._store.run(note(lease, Set("token", stream.token)))
        if self.failure is not None or self._noted:
            self._clear_trouble(lease)
        return count > 0

    def _fill(self, after: Any, lease: Lease) -> None:
        """Index every stored event behind `after`, and store how far that is after each page."""
        start = Key(*after) if after else None
        for key, _ in fill(self._store, self._indexers, start):
            if self._stop.is_set():
                return
            self._store.run(note(lease, Set("after", list(key))))
        self._store.run(note(lease, Set("filled", True), Set("after", None)))


def _stream(changes: Changes, position: Start) -> Stream[Change]:
    return Stream(changes, position, table=TABLE, make=lambda change: change, threads=1)


def fill(store: Store, indexers: Sequence[Indexer], after: Key | None = None) -> Iterator[tuple[Key, int]]:
    """Index the events that the store has behind the key `after` and the index lacks; yields the last key of each page
    and the number of events added.

    Stored events may be of any age, so they are compared with the whole index.  Events that were pruned before they
    were indexed are missing for good: the indexer logs a warning and indexes past them."""
    fillers = [replace(indexer, remembered=math.inf, gaps="warn") for indexer in indexers]
    spans: list[Span] = []
    while items := store.run(guard.some(after)):
        spans = store.run(_spans_in(items, spans[-1] if spans else Span("", 0, ())))
        after = Key(items[-1]["p"], items[-1]["i"])
        yield after, ingest(store, spans, fillers)


def _spans_in(items: Sequence[Item], before: Span) -> Steps[list[Span]]:
    """The spans of a page of a scan that comes behind a span.

    A scan may show a stream's Tip and not the calf that was made of the one before: what it leaves out of a stream is
    read from the stream."""
    found = [before]
    for span in (span for item in items if (span := stored_span(item)) is not None):
        end = found[-1].end if found[-1].stream == span.stream else 0
        if span.first > end:
            found += yield from stored_spans([IndexGap(span.stream, span.first, span.first - end)])
        found.append(span)
    return found[1:]


def ingest(store: Store, spans: Sequence[Span], indexers: Sequence[Indexer]) -> int:
    """Index the new events of these spans, each in the partition of its stream; returns their number."""
    found = shares(spans, len(indexers))
    return sum(store.run(indexers[partition].ingest(share)).events for partition, share in found.items())


def stored_span(item: Item) -> Span | None:
    """The span of the events in a Tip or calf; None for any other item, and for one without events."""
    stream = item["p"]
    if stream.startswith("$") or "-" not in stream or not item.get("c"):
        return None
    return Span(stream, item["n"] - len(item["c"]), tuple(item["c"]))


def note(lease: Lease, *changes: Set) -> Steps[None]:
    """Change attributes of the `$Indexing` item; `Fenced` if another process has the lease."""
    outcome = yield from guard.attempt(Update(KEY, changes), lease.check())
    if isinstance(outcome, guard.Refused):
        raise Fenced("another process indexes by now")


def remake(store: Store, lease: Lease, partitions: int) -> None:
    """Leave the current index behind, so that the whole store is indexed again.  If this is interrupted, the next
    indexer continues."""
    for partition in range(partitions):
        store.run(leave_behind(partition))
    store.run(note(lease, Set("remake", None), Set("filled", False), Set("after", None)))
