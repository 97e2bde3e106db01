"""Event streams over HTTP: append with an expected version, read, list, and the feed of all events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import islice

import msgspec
from starlette.responses import Response

from tailrace.console.api.topics import check_limit
from tailrace.console.data import Data, bytes_of, data_of, value_of
from tailrace.console.limits import check_wait, while_connected
from tailrace.console.operation import EVENTS, JSON, NDJSON, Call, Operations
from tailrace.console.streaming import BEAT_SECONDS, Batch, Item, streamed
from tailrace.errors import BadInput
from tailrace.events import Event
from tailrace.feed import FeedEvent
from tailrace.feed.aio import AsyncFeed

operations = Operations()
PAGE_EVENTS, MOST_EVENTS = 100, 1000
"""How many events a page of the feed has unless the client says, and the most that a page and an append have."""
LARGEST = 2**62
"""No index of an event and no checkpoint reaches this number."""


class NewEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event to append: its type, and its data as text or base64 in `data` or as JSON in `json`.  If events have an
    `id` and the append an expected version, the server stores an append that a client repeats only once."""

    type: str
    data: Data = None
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    meta: Data = None
    id: str = ""
    correlation: str = ""
    causation: str = ""


class NewEvents(msgspec.Struct, forbid_unknown_fields=True):
    """Events to append, all or none.  `expected` is the version that the stream must have: the number of events ever
    appended to it.  `unfolds` replace those that the stream's Tip holds."""

    events: list[NewEvent] = []
    expected: int | None = None
    unfolds: list[NewEvent] = []


class StreamVersion(msgspec.Struct):
    """A stream and its version: the number of events ever appended to it."""

    stream: str
    version: int


class ReadEvent(msgspec.Struct, omit_defaults=True):
    """An event, as stored; `time` is in ISO 8601."""

    index: int
    type: str
    time: str
    id: str
    data: Data = ""
    meta: Data = ""
    correlation: str = ""
    causation: str = ""


class EventPage(msgspec.Struct):
    """A page of a stream's events.  `next` is the `from` of the next page; null at the end and for a read backwards."""

    stream: str
    events: list[ReadEvent]
    next: int | None


class EventQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from", "stop": "to"}):
    """Which events to read: those with from <= index < to; newest first with `backwards`."""

    start: int = 0
    stop: int | None = None
    backwards: bool = False
    limit: int = 100


class StreamTip(msgspec.Struct):
    """A stream's Tip.  `version`, `etag` and `lowest` (the lowest index that is kept) are the stream's; `first` is the
    index of the first event in the Tip, and `calved_bytes` the size of all events that have moved into calves."""

    stream: str
    version: int
    etag: str | None
    lowest: int
    first: int
    events: int
    bytes: int
    calved_bytes: int
    unfolds: list[ReadEvent]


class StreamNames(msgspec.Struct):
    """A page of stream names; `next` is the `after` of the next page, null at the end."""

    streams: list[str]
    next: str | None


class StreamNamesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which streams to list: of all categories or one, behind the stream `after`."""

    category: str | None = None
    after: str | None = None
    limit: int = 100


class Categories(msgspec.Struct):
    """The number of streams of each category."""

    categories: dict[str, int]


class FedEvent(msgspec.Struct, omit_defaults=True):
    """An event in the feed; `event` is missing if it was pruned."""

    stream: str
    index: int
    type: str
    checkpoint: str
    """The checkpoint to continue from once this event and all before it are handled."""
    event: ReadEvent | None = None


class FeedPage(msgspec.Struct):
    """A page of the feed; `next` is the checkpoint at which the next page begins."""

    events: list[FedEvent]
    next: str


class FeedQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """The checkpoint to start from (`from`; one for each partition of the index, as in 17,3), and which events to
    return: as JSON 100 unless `limit` says how many, as a stream all of them.  `wait` is how many seconds the server
    waits for an event if there is none yet: an event reaches the feed soon after its append."""

    start: str = "0"
    category: str | None = None
    stream: str | None = None
    type: str | None = None
    limit: int | None = None
    wait: float = 0.0


class FeedConsumer(msgspec.Struct):
    """A group of processes that share the feed.  `behind` is how many batches of events the group has yet to handle,
    `errors` what keeps it from handling them."""

    group: str
    behind: int
    dead_letters: int
    errors: list[str]


class FeedConsumers(msgspec.Struct):
    """The groups of the feed."""

    consumers: list[FeedConsumer]


def _event(given: NewEvent) -> Event:
    data, meta = value_of(given.data, given.json) or b"", bytes_of(given.meta) or b""
    return Event(given.type, data, meta, given.id, given.correlation, given.causation)


def shown(event: Event) -> ReadEvent:
    """Return an event as an answer has it."""
    return ReadEvent(
        event.index, event.type, event.time, event.id, data_of(event.data), data_of(event.meta), event.correlation,
        event.causation,
    )  # fmt: skip


# --- one stream -------------------------------------------------------------------------------------------------------
@operations.post("/events/streams/{stream}", answer=StreamVersion, body=NewEvents, status=201)
async def append_events(call: Call, body: NewEvents) -> StreamVersion:
    """Append events to a stream, all or none.  If the stream does not have the expected version, the answer is a
    conflict with its current version."""
    if len(body.events) + len(body.unfolds) > MOST_EVENTS:
        raise BadInput(f"an append has at most {MOST_EVENTS} events, not {len(body.events) + len(body.unfolds)}")
    stream = call.served.home.events().aio.stream(call.path["stream"])
    events, unfolds = [_event(one) for one in body.events], [_event(one) for one in body.unfolds]
    with call.served.commit_times.timed("events"):
        version = await stream.append(events, expected=body.expected, unfolds=unfolds)
    return StreamVersion(stream.name, version)


@operations.get("/events/streams/{stream}", answer=EventPage, query=EventQuery)
async def read_events(call: Call, query: EventQuery) -> EventPage:
    """Read events of a stream."""
    limit = check_limit(query.limit, MOST_EVENTS)
    if not 0 <= query.start < LARGEST or not 0 <= (query.stop or 0) < LARGEST:
        raise BadInput("from and to are indices of events, from 0")
    stream = call.served.home.events().stream(call.path["stream"])
    found = await call.served.run(
        lambda: [*stream.read(query.start, query.stop, backwards=query.backwards, limit=limit)]
    )
    more = len(found) == limit and not query.backwards
    return EventPage(stream.name, [shown(one) for one in found], found[-1].index + 1 if more else None)


@operations.get("/events/streams/{stream}/tip", answer=StreamTip)
async def describe_tip(call: Call) -> StreamTip:
    """Describe a stream's Tip: its version, its events and its unfolds."""
    stream = call.served.home.events().stream(call.path["stream"])
    tip = await call.served.run(stream.tip)
    return StreamTip(
        stream.name, tip.version, tip.etag, tip.floor, tip.first, len(tip.stored_events), tip.bytes, tip.calved_bytes,
        [shown(one) for one in tip.unfolds()],
    )  # fmt: skip


# --- all streams ------------------------------------------------------------------------------------------------------
@operations.get("/events/streams", answer=StreamNames, query=StreamNamesQuery)
async def list_event_streams(call: Call, query: StreamNamesQuery) -> StreamNames:
    """List event streams, in pages.  The server reads through the home to find them."""
    limit, events = check_limit(query.limit, 1000), call.served.home.events()
    found = await call.served.run(lambda: [*islice(events.streams(query.category, after=query.after), limit)])
    return StreamNames(found, found[-1] if len(found) == limit else None)


@operations.get("/events/categories", answer=Categories)
async def list_categories(call: Call) -> Categories:
    """List the categories of event streams.  The server reads through the whole home to find them."""
    return Categories(await call.served.run(call.served.home.events().categories))


# --- the feed ---------------------------------------------------------------------------------------------------------
def _checkpoints(text: str) -> Sequence[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        raise BadInput(
            f"a checkpoint is a number, or one for each partition of the index, as in 17,3; not {text[:60]!r}"
        )
    if any(int(part) >= LARGEST for part in parts):
        raise BadInput("a checkpoint is a number that the feed gave")
    return [int(part) for part in parts]


@operations.get("/events/feed", answer=FeedPage, query=FeedQuery, gives=(NDJSON, EVENTS))
async def read_feed(call: Call, query: FeedQuery) -> FeedPage | Response:
    """Read all events of the home in one order, from a checkpoint on.  As server-sent events, the answer continues with
    new events."""
    media = call.chosen(JSON, NDJSON, EVENTS)
    if query.limit is not None:
        check_limit(query.limit, MOST_EVENTS if media == JSON else LARGEST)
    start = call.request.headers.get("last-event-id") or query.start if media == EVENTS else query.start
    given = _checkpoints(start)
    feed = await call.served.home.events().aio.feed(
        given[0] if len(given) == 1 else given,  # type: ignore[arg-type]
        category=query.category, stream=query.stream, type=query.type,
    )  # fmt: skip
    places = list(feed._feed.positions)
    if media != JSON:
        return streamed(call, _items(feed, places, media == EVENTS, query.limit), media)
    limit = PAGE_EVENTS if query.limit is None else query.limit
    async with feed:
        found = await _some(feed, places, limit)
        if not found and query.wait:
            seconds = check_wait(query.wait, call.served.limits)
            with call.served.streams.one(call.client):
                found = await while_connected(call.request, _next(feed, places, limit, seconds))
    full = len(found) >= limit
    return FeedPage(found, found[-1].checkpoint if full else ",".join(map(str, feed._feed.positions)))


async def _next(feed: AsyncFeed, places: list[int], limit: int, seconds: float) -> list[FedEvent]:
    async for event in feed.follow(seconds=seconds):
        return [_fed(event, places), *await _some(feed, places, limit - 1)]
    return []


async def _some(feed: AsyncFeed, places: list[int], limit: int) -> list[FedEvent]:
    found: list[FedEvent] = []
    if limit > 0:
        async for event in feed:
            found.append(_fed(event, places))
            if len(found) >= limit:
                break
    return found


def _fed(event: FeedEvent, places: list[int]) -> FedEvent:
    """Return an event of the feed, with the checkpoints behind it, and move `places` past it."""
    places[event.partition if len(places) > 1 else 0] = event.checkpoint
    body = None if event.event is None else shown(event.event)
    return FedEvent(event.stream, event.index, event.type, ",".join(map(str, places)), body)


async def _items(feed: AsyncFeed, places: list[int], going_on: bool, left: int | None) -> AsyncGenerator[Batch]:
    async with feed:
        while True:
            found = feed.follow(seconds=BEAT_SECONDS) if going_on else feed
            async for event in found:
                made = _fed(event, places)
                yield Batch([Item("record", made, made.checkpoint)])
                left = None if left is None else left - 1
                if left == 0:
                    return
            if not going_on:
                return
            yield Batch([])


@operations.get("/events/consumers", answer=FeedConsumers)
async def list_feed_consumers(call: Call) -> FeedConsumers:
    """List the groups that consume the feed, and how far behind each is."""
    found = await call.served.run(call.served.home.events().checkpoints.list)
    return FeedConsumers(
        [
            FeedConsumer(
                one.group, sum(p.behind for p in one.partitions), one.dead_letters,
                [p.error for p in one.partitions if p.error],
            )
            for one in found
        ]
    )  # fmt: skip
