"""The feed: every event of the store, in one order, which a reader can resume from any checkpoint.

    for event in home.events().feed(checkpoint).follow():
        print(event.checkpoint, event.stream, event.type, event.data)

Events of one stream come in their order, each once.  The checkpoint also moves past events that a filter leaves out.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from tailrace.coordination.consumer import UnitConsumer
from tailrace.coordination.handler_settings import HandlerSettings
from tailrace.coordination.names import check_name
from tailrace.coordination.watch import Wait, watch
from tailrace.errors import BadInput
from tailrace.events.event import Event
from tailrace.events.store import Events
from tailrace.feed.indexing import Indexing
from tailrace.feed.reading import IndexReader, SpanBatch
from tailrace.feed.span import Span
from tailrace.storage.calls import Store

if TYPE_CHECKING:
    from tailrace.feed.checkpoints import Checkpoints

FETCHES = 8
"""How many threads read the bodies of events, each from one stream at a time."""


class FeedEvent(Struct, frozen=True, gc=False):
    """An event in the feed.  `event` is None in a feed without bodies, and where the event was pruned since."""

    stream: str
    index: int
    type: str
    event: Event | None
    checkpoint: int
    """Where to resume once this event and all before it are handled; it rises with the last event of a batch."""
    partition: int = 0
    """The partition of the index in which `checkpoint` is a place."""

    @property
    def data(self) -> bytes:
        """The event's data."""
        return b"" if self.event is None else self.event.data


class Filter(NamedTuple):
    """The categories, streams and types of the events that a reader wants; None means all."""

    categories: frozenset[str] | None = None
    streams: frozenset[str] | None = None
    types: frozenset[str] | None = None

    def wants(self, span: Span) -> bool:
        """Whether a span has an event that the filter wants."""
        if self.streams is not None and span.stream not in self.streams:
            return False
        if self.categories is not None and span.stream.partition("-")[0] not in self.categories:
            return False
        return self.types is None or not self.types.isdisjoint(span.types)


class Feed:
    """One partition of the feed, from a checkpoint on.  Used by one thread at a time.

    `checkpoint` is where to resume: it is behind each batch once the caller asks for the next one, and also behind the
    events that the filter left out before that."""

    def __init__(
        self,
        events: Events,
        start: int,
        *,
        partition: int = 0,
        bodies: bool = True,
        wanted: Filter | None = None,
        fetches: int = FETCHES,
        indexing: Callable[[], Indexing | None] = lambda: None,
        home: Store | None = None,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._events, self._bodies, self._wanted = events, bodies, wanted or Filter()
        self._reading = IndexReader(partition, start)
        self._pool = ThreadPoolExecutor(fetches, "tailrace-feed") if bodies and fetches > 1 else None
        self._indexing, self._home, self._catch_up = indexing, home or events.store, catch_up
        self.checkpoint = start
        self._behind = start
        """The place behind the last batch that was taken: the checkpoint once the next is asked for."""
        self._entries: deque[SpanBatch] = deque()
        """Batches of the index that were read ahead."""
        self._left: deque[FeedEvent] = deque()
        """The events of the current batch that `__iter__` has not yielded yet."""

    def consumer(self, group: str, handler: Callable[[FeedEvent], Any], **settings: Any) -> UnitConsumer[Any]:
        """A member of a group of processes that share the feed; it calls the handler with each event that passes this
        feed's filter.

        The group stores its checkpoints: a new group begins at this feed's checkpoint, an existing one continues at its
        own.  The writes that the handler returns (`engine.writes()`, `events.stream(NAME).change(…)`, or a list of
        these) are committed together with the checkpoint.  See `HandlerSettings` for the settings."""
        from tailrace.feed.consumer import FeedSource

        source = FeedSource(
            self._events,
            check_name("group", group),
            self.positions,
            bodies=self._bodies,
            wanted=self._wanted,
            indexing=self._indexing,
        )
        settled = HandlerSettings.of(settings)
        return UnitConsumer(self._home, source, source.join, handler, settled, catch_up=self._catch_up)

    @property
    def positions(self) -> tuple[int, ...]:
        """The checkpoint of each partition that this feed reads, for `events.feed(positions)`."""
        return (self.checkpoint,)

    @property
    def checkpoints(self) -> Checkpoints:
        """The stored checkpoints of this feed's consumer groups, to list, show, reset and override."""
        from tailrace.feed.checkpoints import Checkpoints

        return Checkpoints(self._home, self._events)

    def batches(self, until: int | None = None) -> Iterator[list[FeedEvent]]:
        """The events up to the tail, or up to the checkpoint `until`, in batches of at least one event."""
        yield from self._rest()
        while True:
            self.checkpoint = self._behind
            if not self._entries:
                self._entries.extend(self.page())
            if not self._entries:
                return
            entry = self._entries[0]
            if until is not None and entry.checkpoint > until:
                return
            found = self._batch(entry)
            self._entries.popleft()
            self._behind = entry.checkpoint
            if found:
                yield found

    def _rest(self) -> Iterator[list[FeedEvent]]:
        """The events that an interrupted loop over single events has left of its batch."""
        if self._left:
            rest = list(self._left)
            self._left.clear()
            yield rest

    def __iter__(self) -> Iterator[FeedEvent]:
        """The events up to the tail, one at a time; a new loop continues behind the last event of the one before."""
        while self._left:
            yield self._left.popleft()
        for batch in self.batches():
            self._left.extend(batch)
            while self._left:
                yield self._left.popleft()

    def follow(self, *, seconds: float | None = None) -> Iterator[FeedEvent]:
        """The events as they come, without end or until the tail is reached after `seconds`; raises the error that
        keeps this process from indexing."""
        end = None if seconds is None else time.monotonic() + seconds
        event = threading.Event()
        wait, found = Wait(watch(self.store), event), False
        self._indexing()
        while end is None or time.monotonic() < end:
            wait.begin(found)
            found = False
            for one in self:
                found = True
                yield one
            if not found:
                self.check_indexing()
                _wait(wait, event, end)

    def close(self) -> None:
        """Stop the feed's threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        """The home's table and objects."""
        return self._events.store

    def page(self) -> list[SpanBatch]:
        """The next batches of the index, none at the tail."""
        return self.store.run(self._reading.page())

    def check_indexing(self) -> None:
        """Raise the error that keeps this process from indexing, if there is one."""
        indexing = self._indexing()
        if indexing is not None and indexing.failure is not None:
            raise indexing.failure

    def _batch(self, entry: SpanBatch) -> list[FeedEvent]:
        """The wanted events of a batch of the index.  All but the last have the checkpoint before the batch."""
        return [event for _, event in self.numbered(entry)]

    def numbered(self, entry: SpanBatch) -> list[tuple[int, FeedEvent]]:
        """The wanted events of a batch of the index, each with its number among all events of the batch."""
        numbers = accumulate((len(span.types) for span in entry.spans), initial=0)
        chosen = [
            (number, span) for number, span in zip(numbers, entry.spans, strict=False) if self._wanted.wants(span)
        ]
        spans = [span for _, span in chosen]
        bodies: Sequence[Sequence[Event | None] | None] = self._fetched(spans) if self._bodies else [None] * len(spans)
        types = self._wanted.types
        found = [
            (number + n, span, span.first + n, type, None if events is None else events[n])
            for (number, span), events in zip(chosen, bodies, strict=True)
            for n, type in enumerate(span.types)
            if types is None or type in types
        ]
        last = len(found) - 1
        before, partition = self.checkpoint, self._reading.partition
        return [
            (number, FeedEvent(span.stream, index, type, event, entry.checkpoint if n == last else before, partition))
            for n, (number, span, index, type, event) in enumerate(found)
        ]

    def _fetched(self, spans: Sequence[Span]) -> Sequence[Sequence[Event | None] | None]:
        if self._pool is None or len(spans) < 2:
            return [self._fetch(span) for span in spans]
        return list(self._pool.map(self._fetch, spans))

    def _fetch(self, span: Span) -> Sequence[Event | None]:
        events = list(self._events.stream(span.stream).read(span.first, span.end))
        if len(events) == len(span.types):
            return events
        known = {event.index: event for event in events}  # the others were pruned since they were indexed
        return [known.get(index) for index in range(span.first, span.end)]


def _wait(wait: Wait, event: threading.Event, end: float | None) -> None:
    for pause in wait.pauses():
        left = pause if end is None else min(pause, max(end - time.monotonic(), 0))
        if event.wait(left) or (end is not None and time.monotonic() >= end):
            return


def wanted(
    categories: Collection[str] | str | None, streams: Collection[str] | str | None, types: Collection[str] | str | None
) -> Filter:
    """The feed's filter for these names, each of them one name or several; `BadInput` for an empty collection."""
    return Filter(*(_names(given) for given in (categories, streams, types)))


def _names(given: Collection[str] | str | None) -> frozenset[str] | None:
    if given is None:
        return None
    names = frozenset([given] if isinstance(given, str) else given)
    if not names or not all(isinstance(name, str) for name in names):
        raise BadInput(f"a filter of the feed is a name or several names, not {given!r}")
    return names
