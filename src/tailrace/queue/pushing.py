"""Pushing: messages into a queue, one or many in one transaction.

A push is an append to the queue's topic: bytes first, then one guarded write.  Many messages are one chunk.  Dedup ids
are stored in the transaction of the append; a delayed message waits outside the log (see `delayed`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from tailrace.errors import BadInput, TooLarge
from tailrace.log.catalog import Described
from tailrace.log.topic import Topic
from tailrace.log.write.acknowledgement import CommitBatch
from tailrace.log.write.append import commit
from tailrace.log.write.input import too_large
from tailrace.log.write.placement import place
from tailrace.queue import dedup, delayed
from tailrace.queue.dedup import Duplicate, Once
from tailrace.queue.envelope import PUSHER, Codec, encoded, key_bytes
from tailrace.storage.calls import Store

NotBefore: TypeAlias = datetime | timedelta | float
"""A time, or a delay in seconds or as a timedelta."""
MOST_DEDUP = 90
"""The most dedup ids in one push_many: each is an action of its transaction."""
MOST_BYTES_TOGETHER = 1 << 30
"""The most bytes of messages in one push_many: they are one chunk, which is made in memory."""
MAX_PUSHER_BYTES = 200
Headers: TypeAlias = tuple[tuple[str, bytes], ...]

INLINE_BYTES = 256 * 1024
"""Where the table is on a disk, chunks of a queue up to this size are stored in the transaction that refers to them:
one sync instead of three."""


class Message(NamedTuple):
    """A message for `push_many` that has a shard key, a dedup id or a delay."""

    message: Any
    shard_key: str | bytes | None = None
    dedup: str | None = None
    not_before: NotBefore | None = None


class Pushed(NamedTuple):
    """The shard and offset of a pushed message; both are None for a delayed message and for a duplicate."""

    shard: int | None
    offset: int | None
    duplicate: bool = False
    delayed: bool = False


class Ready(NamedTuple):
    """A checked and encoded message; `due` is None for one that is not delayed."""

    value: bytes
    attributes: int
    key: bytes | None
    dedup: str | None
    due: int | None


def signature(pusher: str | None) -> Headers:
    """The record headers that say which program pushed a message."""
    if pusher is None:
        return ()
    if not isinstance(pusher, str) or not pusher or len(pusher.encode("utf-8", "replace")) > MAX_PUSHER_BYTES:
        raise BadInput(f"a pusher is a text of 1 to {MAX_PUSHER_BYTES} bytes, not {pusher!r:.80}")
    return ((PUSHER, pusher.encode("utf-8", "replace")),)


def topic_of(store: Store, described: Described) -> Topic:
    """Return the topic of a queue, set to store larger chunks inline where that saves syncs."""
    topic = Topic(store, described)
    if topic.log.joins_inline:
        topic.log.inline_bytes = INLINE_BYTES
    return topic


def ready(message: Any, codec: Codec, now: int, limit: int) -> Ready:
    """Check and encode a message or a `Message`; `limit` is the most bytes of its key and content."""
    full = message if type(message) is Message else Message(message)
    value, attributes = encoded(full.message, codec)
    key = key_bytes(full.shard_key)
    if len(value) + len(key or b"") > limit:
        raise too_large(len(value) + len(key or b""), limit)
    once = None if full.dedup is None else dedup.check_id(full.dedup)
    due = None if full.not_before is None else delayed.due_ms(full.not_before, now)
    if due is None or due <= now:
        return Ready(value, attributes, key, once, None)
    delayed.check_size(key, value)
    return Ready(value, attributes, key, once, due)


def push_all(topic: Topic, messages: Sequence[Ready], now: int, signed: Headers = ()) -> list[Pushed]:
    """Push messages in one transaction and return where each of them is; each delayed one is stored by a write of its
    own, before the transaction."""
    check_together(messages)
    out: list[Pushed | None] = [None] * len(messages)
    seen: set[str] = set()
    left = []
    for n, one in enumerate(messages):
        if one.dedup is not None and (one.dedup in seen or topic.store.run(dedup.is_there(topic.id, one.dedup))):
            out[n] = Pushed(None, None, duplicate=True)
        else:
            left.append(n)
        if one.dedup is not None:
            seen.add(one.dedup)
    for n in [n for n in left if messages[n].due is not None]:
        pushed = _delay(topic, messages[n], now, signed)
        if pushed is not None:
            out[n] = pushed
            left.remove(n)
    while left:
        try:
            places = _append(topic, [messages[n] for n in left], now, signed)
        except Duplicate as duplicate:
            for n in [n for n in left if messages[n].dedup == duplicate.id]:
                out[n] = Pushed(None, None, duplicate=True)
                left.remove(n)
            continue
        for n, pushed in zip(left, places, strict=True):
            out[n] = pushed
        break
    return [one for one in out if one is not None]


def check_together(messages: Sequence[Ready]) -> None:
    """Raise `TooLarge` for messages that do not fit in one transaction, before any of them is stored."""
    count = sum(one.dedup is not None and one.due is None for one in messages)
    if count > MOST_DEDUP:
        raise TooLarge(f"one push_many takes at most {MOST_DEDUP} messages with a dedup id, not {count}; push fewer")
    size = sum(len(one.value) + len(one.key or b"") for one in messages if one.due is None)
    if size > MOST_BYTES_TOGETHER:
        raise TooLarge(
            f"one push_many takes at most {MOST_BYTES_TOGETHER:,} bytes of messages, not {size:,}; push fewer at a time"
        )


def _delay(topic: Topic, one: Ready, now: int, signed: Headers) -> Pushed | None:
    token = secrets.token_hex(12)
    assert one.due is not None
    item = {"id": token, "key": one.key, "value": one.value, "attributes": one.attributes, "pushed": now}
    if signed:
        item["pusher"] = signed[0][1]
    also = []
    if one.dedup is not None:
        item["dedup"] = one.dedup
        also = list(Once(topic.log, [one.dedup], token, delayed=True).actions(0))
    try:
        if topic.store.run(delayed.delay(topic.id, item, one.due, topic.store.rng, also)):
            topic.log.on_commit()
            return Pushed(None, None, delayed=True)
    except Duplicate:
        return Pushed(None, None, duplicate=True)
    return None


def _append(topic: Topic, messages: Sequence[Ready], now: int, signed: Headers) -> list[Pushed]:
    """APPEND messages as one chunk, with their dedup ids."""
    ids = [one.dedup for one in messages if one.dedup is not None]
    log, limit = topic.log, topic.settings.max_record_bytes
    batch = CommitBatch(topic.name, log.partitions, limit, log.next_turn(), partitioner=log.partitioner)
    where = add(batch, messages, now, signed)
    placed = topic.store.run(place(topic.log, batch.buffer.encode(topic.settings.compression)))
    others = Once(topic.log, ids, secrets.token_hex(12)) if ids else None
    (appended,) = topic.store.run(commit([placed], others=others))
    batch.finish(appended, None)
    return [Pushed(q, offset) for q, offset in where_of(batch, where)]


def add(batch: CommitBatch, messages: Sequence[Ready], now: int, signed: Headers = ()) -> Sequence[int]:
    """Add messages to a batch that is not committed yet; returns their row numbers."""
    buffer = batch.buffer
    if signed:
        return [buffer.add(one.key, one.value, now, signed, one.attributes) for one in messages]
    keys, values = [one.key for one in messages], [one.value for one in messages]
    return buffer.add_together(keys, values, now, [one.attributes for one in messages])


def where_of(batch: CommitBatch, rows: Iterable[int]) -> list[tuple[int, int]]:
    """Return the shard and offset of each pushed message by its row, once its chunk is appended."""
    landed = [batch.landed(*batch.buffer.place(row)) for row in rows]
    return [(q, batch.offset(q, rank)) for q, rank in landed]
