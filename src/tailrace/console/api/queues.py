"""Queues over HTTP: creating and describing them, pushing messages, dead letters, pause, play, purge and replay."""

from __future__ import annotations

import json as texts
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice, takewhile
from typing import Any

import msgspec

from tailrace.console.api.topics import Reason, check_limit, check_why
from tailrace.console.cursor import LARGEST, position_of
from tailrace.console.data import Data, bytes_of, data_of
from tailrace.console.operation import Call, Operations
from tailrace.errors import AlreadyThere, BadInput, NotThere
from tailrace.home import Home
from tailrace.log.catalog import check_partitions
from tailrace.queue import Message, Pushed, Queue, Stats
from tailrace.queue.dead_letters import DeadLetter
from tailrace.queue.envelope import CODED
from tailrace.queue.settings import Settings as QueueSettings
from tailrace.queue.settings import settings as checked
from tailrace.queue.stats import as_json

operations = Operations()
MOST_MESSAGES = 10_000
LONGEST_DELAY = 366 * 86400.0
"""In seconds: how long a client can have a message held back."""


class QueueCounts(msgspec.Struct):
    """The message counts of a queue or a shard.  routed = acked + dead + purged + backlog; `running` and `failing`
    messages are part of the backlog."""

    inserted: int
    routed: int
    emitted: int
    acked: int
    errored: int
    dead: int
    purged: int
    running: int
    failing: int
    waiting: int
    backlog: int
    delayed: int
    oldest_seconds: float
    paused: bool
    owner: str


class QueueSummary(msgspec.Struct):
    """A queue in a list."""

    name: str
    shards: int
    counts: QueueCounts


class QueueList(msgspec.Struct):
    """The queues of a home."""

    queues: list[QueueSummary]


class QueueShard(msgspec.Struct):
    """A shard of a queue."""

    shard: int
    counts: QueueCounts


class QueueDescription(msgspec.Struct):
    """A queue with its shards; `consumers` says how many shards each consumer owns."""

    name: str
    settings: QueueSettings
    counts: QueueCounts
    shards: list[QueueShard]
    consumers: dict[str, int]


class NewQueue(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to create; without a number of shards it has 24."""

    name: str
    shards: int | None = None
    settings: QueueSettings = QueueSettings()
    why: str = ""


class QueueChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of a queue's settings, by name.  Workers that start afterwards obey them."""

    settings: dict[str, Any]
    why: str = ""


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to push: any JSON in `json`, or text or base64 in `value`, which handlers get as bytes.  Consumers
    handle messages of one `key` in order.  A message with a `dedup` id is in the queue once.  `delay` holds a message
    back, in seconds."""

    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value: Data = None
    key: Data = None
    dedup: str | None = None
    delay: float | None = None


class NewMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to push in one transaction; each delayed message is stored by itself."""

    messages: list[NewMessage]


class PushedMessage(msgspec.Struct):
    """The shard and offset of a pushed message; a delayed message and a duplicate have none."""

    shard: int | None
    offset: int | None
    duplicate: bool
    delayed: bool


class PushedMessages(msgspec.Struct):
    """The pushed messages, in the order of the request."""

    pushed: list[PushedMessage]


class DeadMessage(msgspec.Struct):
    """A message that the queue has given up, and why; times are in milliseconds since 1970."""

    number: int
    shard: int
    offset: int
    key: Data
    value: Data
    json: bool
    """Whether `value` is the text of JSON."""
    reason: str
    attempts: int
    pushed: int
    died: int
    consumer: str
    requeued: bool


class DeadMessages(msgspec.Struct):
    """A page of dead letters; `next` is the `after` of the next page, null at the end.  The numbers of all of the
    queue's dead letters run from `first` to before `end`; `left` of them were not put back."""

    dead: list[DeadMessage]
    next: int | None
    left: int
    first: int
    end: int


class DeadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to list: the oldest behind the number `after`, or the newest before the number `before`."""

    after: int = -1
    before: int | None = None
    limit: int = 100


class Requeue(msgspec.Struct, forbid_unknown_fields=True):
    """The dead letters to put back into the queue: some by their numbers, or all."""

    why: str
    numbers: list[int] = []
    all: bool = False


class ReplayOrder(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """The messages to deliver again: from a time or an offset of each shard, up to before another (default: now)."""

    start: str
    why: str
    end: str | None = None


class Rebalance(msgspec.Struct, forbid_unknown_fields=True):
    """The number of shards that the queue shall have, if it shall have more."""

    why: str
    shards: int | None = None


class QueueShares(msgspec.Struct):
    """The number of shards of a queue, and how many of them each consumer has.  They may not be even yet: a consumer
    gives a shard up when its handlers have finished."""

    shards: int
    consumers: dict[str, int]


class Done(msgspec.Struct):
    """The action that was done, and to how many messages."""

    did: str
    messages: int = 0


class MomentOfMessage(msgspec.Struct):
    """Something that happened to a message, in ISO 8601."""

    at: str
    until: str | None
    what: str


class MessageStory(msgspec.Struct):
    """One message's life, as far as it is stored; `not_recorded` says what is not."""

    shard: int
    offset: int
    key: Data
    state: str
    attempts: int
    pushed: str
    consumer: str
    reason: str
    moments: list[MomentOfMessage]
    not_recorded: list[str]


def _counts(one: Stats) -> QueueCounts:
    return msgspec.convert(as_json(one), QueueCounts)


async def _queue(call: Call) -> Queue:
    """Return the queue that the path names; raise if it does not exist."""
    queue = call.served.home.queue(call.path["queue"], pusher=f"{call.client} over HTTP"[:200])
    await call.served.run(queue.topic)
    return queue


@asynccontextmanager
async def _noted(call: Call, what: str, why: str, **to: Any) -> AsyncIterator[Queue]:
    """Yields the queue that the path names, for a block whose action is recorded in the audit list."""
    queue = await _queue(call)
    async with call.served.actions.noted(call, what, check_why(why), queue=queue.name, **to):
        yield queue


def _summaries(home: Home) -> list[QueueSummary]:
    found = []
    for name in home.queues():
        with suppress(NotThere):  # deleted since it was listed
            now = home.queue(name).stats()
            found.append(QueueSummary(name, len(now.shards), _counts(now)))
    return found


@operations.get("/queues", answer=QueueList)
async def list_queues(call: Call) -> QueueList:
    """List queues, with the counts of their messages."""
    return QueueList(await call.served.run(_summaries, call.served.home))


def _described(queue: Queue) -> QueueDescription:
    now = queue.stats()
    shards = [QueueShard(q, _counts(one)) for q, one in now.shards.items()]
    return QueueDescription(queue.name, queue.settings, _counts(now), shards, now.consumers)


@operations.get("/queues/{queue}", answer=QueueDescription)
async def describe_queue(call: Call) -> QueueDescription:
    """Describe a queue: its settings, and how many messages it has in each state, in all and by shard."""
    return await call.served.run(_described, await _queue(call))


@operations.post("/queues", answer=QueueDescription, body=NewQueue, status=201)
async def create_queue(call: Call, body: NewQueue) -> QueueDescription:
    """Create a queue."""
    home = call.served.home
    await call.served.actions.refuse_own(call, body.name)
    queue = home.queue(body.name)
    if body.name in await call.served.run(home.queues):
        raise AlreadyThere(f"queue {body.name!r} exists already")
    given = {n: v for n, v in msgspec.structs.asdict(body.settings).items() if v != getattr(QueueSettings(), n)}
    async with call.served.actions.noted(call, "create queue", body.why, queue=body.name, shards=body.shards):
        await call.served.run(queue.make, body.shards, **given)
    return await call.served.run(_described, queue)


@operations.patch("/queues/{queue}", answer=QueueDescription, body=QueueChange)
async def change_queue(call: Call, body: QueueChange) -> QueueDescription:
    """Change a queue's settings."""
    queue = await _queue(call)
    if not body.settings:
        raise BadInput("say which settings to change")
    checked({name: value for name, value in body.settings.items() if name != "retention_ms"}, queue.settings)
    about = {"queue": queue.name, "settings": body.settings}
    async with call.served.actions.noted(call, "change queue", body.why, **about):
        await call.served.run(queue.configure, **body.settings)
    return await call.served.run(_described, queue)


@operations.delete("/queues/{queue}", body=Reason)
async def delete_queue(call: Call, body: Reason) -> None:
    """Delete a queue with its messages, dead letters and settings.  Its workers end."""
    async with _noted(call, "delete queue", body.why) as queue:
        await call.served.run(queue.delete, sure=True)
    call.served.forget(queue.name)


# --- messages ---------------------------------------------------------------------------------------------------------
@operations.post("/queues/{queue}/messages", answer=PushedMessages, body=NewMessages, status=201)
async def push_messages(call: Call, body: NewMessages) -> PushedMessages:
    """Push messages.  They are durable when the server answers."""
    if not 1 <= len(body.messages) <= MOST_MESSAGES:
        raise BadInput(f"a push has 1 to {MOST_MESSAGES:,} messages, not {len(body.messages)}")
    queue = await _queue(call)
    messages = [_message(one) for one in body.messages]
    with call.served.commit_times.timed("messages"):
        pushed = await call.served.run(queue.push_many, messages)
    return PushedMessages([_pushed(one) for one in pushed])


def _message(one: NewMessage) -> Message:
    if one.delay is not None and not 0 <= one.delay <= LONGEST_DELAY:
        raise BadInput(f"a message is held back for 0 to {LONGEST_DELAY:,.0f} seconds, not {one.delay}")
    content: Any
    if isinstance(one.json, msgspec.UnsetType):
        if one.value is None:
            raise BadInput("a message has json or value")
        content = bytes_of(one.value)
    elif one.value is not None:
        raise BadInput("give either json or value (text or base64), not both")
    else:
        content = _parsed(bytes(one.json))
    return Message(content, bytes_of(one.key), one.dedup, one.delay)


def _parsed(data: bytes) -> Any:
    """Decode JSON with all digits of its whole numbers."""
    try:
        return texts.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the message is no JSON: {error}") from None


def _pushed(one: Pushed) -> PushedMessage:
    return PushedMessage(one.shard, one.offset, one.duplicate, one.delayed)


@operations.get("/queues/{queue}/messages/{shard}/{offset}", answer=MessageStory, numbers=("shard", "offset"))
async def explain_message(call: Call) -> MessageStory:
    """Describe one message's life: when and by which program it was pushed, its consumers, each error, its
    acknowledgement; and what is not known."""
    queue = await _queue(call)
    shard, offset = call.number("shard"), call.number("offset")
    (await call.served.run(queue.topic))._check_partition(shard)
    told = await call.served.run(queue.explain, shard, offset)
    moments = [
        MomentOfMessage(m.at.isoformat(), m.until.isoformat() if m.until else None, m.what) for m in told.moments
    ]
    return MessageStory(
        shard, offset, data_of(told.shard_key), told.state, told.attempts, told.pushed.isoformat(), told.owner,
        told.reason, moments, list(told.not_recorded),
    )  # fmt: skip


# --- dead letters -----------------------------------------------------------------------------------------------------
@operations.get("/queues/{queue}/dead", answer=DeadMessages, query=DeadQuery)
async def list_dead_messages(call: Call, query: DeadQuery) -> DeadMessages:
    """List dead letters, oldest first, with their reasons; with `before`, the newest ones before that number."""
    limit, queue = check_limit(query.limit, 1000), await _queue(call)
    if query.before is not None and query.after >= 0:
        raise BadInput("give after or before, not both: the oldest behind a number, or the newest before one")
    return await call.served.run(_dead_messages, queue, query, limit)


def _dead_messages(queue: Queue, query: DeadQuery, limit: int) -> DeadMessages:
    known = queue.dead_numbers()
    start = query.after + 1 if query.before is None else min(query.before, known.end) - limit
    end = LARGEST if query.before is None else query.before
    letters = [*islice(takewhile(lambda one: one.number < end, queue.dead(max(0, start))), limit)]
    more = letters[-1].number if len(letters) == limit and letters[-1].number < known.end - 1 else None
    return DeadMessages([_dead(one) for one in letters], more, known.left, known.first, known.end)


def _dead(one: DeadLetter) -> DeadMessage:
    return DeadMessage(
        one.number, one.shard, one.offset, data_of(one.shard_key), data_of(one.message), one.coded, one.reason,
        one.attempts, one.pushed, one.died, one.consumer, one.requeued,
    )  # fmt: skip


@operations.post("/queues/{queue}/requeue", answer=Done, body=Requeue)
async def requeue_messages(call: Call, body: Requeue) -> Done:
    """Put dead letters back into the queue, with their keys."""
    if bool(body.numbers) == body.all:
        raise BadInput("say which: numbers, or all = true")
    async with _noted(call, "requeue", body.why, numbers=body.numbers or "all") as queue:
        return Done("requeue", await call.served.run(queue.requeue, *body.numbers))


# --- supervising ------------------------------------------------------------------------------------------------------
@operations.post("/queues/{queue}/pause", answer=Done, body=Reason)
async def pause_queue(call: Call, body: Reason) -> Done:
    """Pause a queue: no consumer in any process gets another message until `play`."""
    async with _noted(call, "pause queue", body.why) as queue:
        await call.served.run(queue.pause)
    return Done("pause")


@operations.post("/queues/{queue}/play", answer=Done, body=Reason)
async def play_queue(call: Call, body: Reason) -> Done:
    """Hand out messages again after a pause."""
    async with _noted(call, "play queue", body.why) as queue:
        await call.served.run(queue.play)
    return Done("play")


@operations.post("/queues/{queue}/purge", answer=Done, body=Reason)
async def purge_queue(call: Call, body: Reason) -> Done:
    """Drop every message that is not done."""
    async with _noted(call, "purge queue", body.why) as queue:
        return Done("purge", await call.served.run(queue.purge, sure=True))


@operations.post("/queues/{queue}/replay", answer=Done, body=ReplayOrder)
async def replay_queue(call: Call, body: ReplayOrder) -> Done:
    """Deliver messages again, beside the live ones; no acknowledged position moves."""
    places: list[Any] = [None if one is None else position_of(one) for one in (body.start, body.end)]
    if "latest" in places or "earliest" in places[1:]:
        raise BadInput("a replay goes from a time or an offset to another")
    async with _noted(call, "replay queue", body.why, start=body.start, end=body.end) as queue:
        made = await call.served.run(queue.replay, 0 if places[0] == "earliest" else places[0], places[1])
    return Done("replay", made.messages)


@operations.post("/queues/{queue}/rebalance", answer=QueueShares, body=Rebalance)
async def rebalance_queue(call: Call, body: Rebalance) -> QueueShares:
    """Give the queue more shards, or only wait until its consumers have shared them out evenly, for up to ten
    seconds."""
    async with _noted(call, "rebalance queue", body.why, shards=body.shards) as queue:
        if body.shards is not None:
            check_partitions(body.shards)
        consumers = await call.served.run(queue.rebalance, body.shards)
    call.served.forget(queue.name)
    return QueueShares(await call.served.run(lambda: queue.shards), consumers)


def coded(attributes: int) -> bool:
    """Whether a queue's message went through the queue's codec, which is JSON."""
    return attributes == CODED
