"""Transactions over queues, topics, event streams and the home's table: all of their writes commit, or none does.

    with home.transaction() as t:                with envelope.transaction() as t:
        t.push("emails", {...})                      t.append("Account-7", [Event("Paid", b"…")])
        t.send(topic="orders", value=b"…")           # commits the message's acknowledgement too

Bytes are stored first; then one transaction of the table, of at most 100 actions, makes every write take effect.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.rules import in_force
from tailrace.errors import BadInput, Closed, Conflict, Fenced, OutcomeUnknown, TooLarge
from tailrace.events.append import AppendSettings, StreamAppend, conflict, part
from tailrace.events.append import commit as commit_events
from tailrace.events.event import Event, check_name
from tailrace.events.reading import read_tip
from tailrace.events.tip import Tip, tip_key
from tailrace.log.catalog import Described
from tailrace.log.topic_log import TopicLog
from tailrace.log.transaction import TopicTransaction as LogTransaction
from tailrace.log.write.acknowledgement import CommitBatch
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import FinalRefusal, FurtherWrites
from tailrace.log.write.guarded_append import commit_guarded
from tailrace.log.write.placement import Placed, place
from tailrace.queue.dedup import Once
from tailrace.queue.pushing import Message, NotBefore, ready
from tailrace.queue.shard import ReplayShard, Shard
from tailrace.queue.window import Window
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.limits import MAX_ACTIONS
from tailrace.storage.tables import Action, Item, Update

if TYPE_CHECKING:
    from tailrace.queue.queue import Queue

Open = Callable[[str], "Queue"]
"""Opens a queue by its name, and creates it if there is none."""


class Appends:
    """Events for some streams, as writes of a transaction; planned again when another writer was first."""

    def __init__(self, parts: Sequence[StreamAppend], settings: AppendSettings) -> None:
        self._parts, self._settings, self._etag = parts, settings, settings.new_id()
        self._tips: list[Tip] = []
        self._of: list[int] = []

    def prepare(self) -> Steps[None]:
        """Read the Tips of the streams that the transaction appends to."""
        for p in self._parts:
            self._tips.append((yield from read_tip(p.stream)))

    def actions(self, page: int) -> Sequence[Action]:
        """Plan one write for each stream, two for one that moves events into a calf; `FinalRefusal` if a stream is not
        at its expected version."""
        out: list[Action] = []
        self._of = []
        for n, (p, tip) in enumerate(zip(self._parts, self._tips, strict=True)):
            if p.wrong(tip):
                raise FinalRefusal(conflict(p, tip))
            actions, _ = p.action(tip, self._settings, self._etag)
            out += actions
            self._of += [n] * len(actions)
        return out

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Read the stream's Tip again, so that the next plan starts from it; if this transaction's own earlier attempt
        has written the Tip, keep the plan."""
        n = self._of[index]
        tip = Tip.of(self._parts[n].stream, (yield from guard.truth(tip_key(self._parts[n].stream))))
        if tip.etag != self._etag:
            self._tips[n] = tip


class Writes:
    """The items that a caller writes to the table itself; a condition that does not hold ends the transaction."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self._actions = actions

    def actions(self, page: int) -> Sequence[Action]:
        """Return the caller's actions."""
        return self._actions

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Raise `Conflict`: only the caller can decide what to write now."""
        key = self._actions[index].key
        yield from ()
        raise Conflict(f"{key.p}/{key.i} was not as expected; nothing of the transaction is stored", item=item)


class Together:
    """Several `FurtherWrites` as one."""

    def __init__(self, parts: Sequence[FurtherWrites]) -> None:
        self._parts = parts
        self._counts: list[int] = []

    def actions(self, page: int) -> Sequence[Action]:
        """Return the actions of all parts, in order."""
        each = [some.actions(page) for some in self._parts]
        self._counts = [len(some) for some in each]
        return [action for some in each for action in some]

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Pass the refusal to the part of the transaction whose action it was."""
        for some, count in zip(self._parts, self._counts, strict=True):
            if 0 <= index < count:
                yield from some.refused(index, item)
            index -= count


class Transaction(LogTransaction):
    """Messages, records, events and items that commit together when the `with` block ends without an exception."""

    def __init__(
        self,
        store: Store,
        topics: dict[str, tuple[TopicLog, Described]],
        open_queue: Open,
        open_topic: Callable[[str], Any],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._expected, self._wall = store, None, wall
        self._topics: dict[str, tuple[TopicLog, Described]] = topics
        self._named = bool(topics)
        self._batches: dict[str, CommitBatch] = {}
        self._acks = []
        self._closed = False
        self._open_queue, self._open_topic = open_queue, open_topic
        self._streams: dict[str, StreamAppend] = {}
        self._ids: dict[str, list[str]] = {}
        self._writes: list[Action] = []
        self._event_settings = AppendSettings()

    def push(
        self,
        queue: str | Queue,
        message: Any,
        shard_key: str | bytes | None = None,
        *,
        dedup: str | None = None,
        not_before: NotBefore | None = None,
    ) -> bool:
        """Push a message when the transaction commits; returns False, and pushes nothing, if a message with this dedup
        id is there already."""
        if not_before is not None:
            raise BadInput(
                "a message of a transaction cannot be delayed; push it by itself: queue.push(…, not_before=…)"
            )
        target = self._open_queue(queue) if isinstance(queue, str) else queue
        topic = target.topic(create=True)
        now = int(self._wall() * 1000)
        one = ready(Message(message, shard_key, dedup), target.codec, now, topic.settings.max_record_bytes)
        if one.dedup is not None and (one.dedup in self._ids.get(topic.name, ()) or target.has(one.dedup)):
            return False
        self._topics.setdefault(topic.name, (topic.log, topic.described))
        batch = self._batch(topic.name)
        batch.buffer.add(one.key, one.value, now, target.signature or None, one.attributes)
        if one.dedup is not None:
            self._ids.setdefault(topic.name, []).append(one.dedup)
        return True

    def append(
        self,
        stream: str,
        events: Sequence[Event],
        *,
        expected: int | None = None,
        unfolds: Sequence[Event] = (),
    ) -> None:
        """Append events to a stream when the transaction commits; the commit raises `VersionConflict` if the stream is
        not at the expected version."""
        self._check_open()
        if check_name(stream) in self._streams:
            raise BadInput(f"stream {stream!r} is named twice in one transaction; append its events together")
        self._streams[stream] = part(stream, events, unfolds, self._event_settings, expected=expected)

    def write(self, *actions: Action) -> None:
        """Write items of the home's table when the transaction commits; names that begin with '$' are reserved for
        tailrace."""
        self._check_open()
        for action in actions:
            if action.key.p.startswith("$"):
                raise BadInput(f"the item {action.key.p!r} is tailrace's own; choose a name without '$'")
        self._writes += actions

    def _batch(self, topic: str | None) -> CommitBatch:
        if topic is None and not self._topics:
            raise BadInput("say which topic: t.send(key, value, topic=…)")
        if topic is not None and topic not in self._topics and not self._named:
            found = self._open_topic(topic)
            self._topics[topic] = (found.log, found.described)
        return super()._batch(topic)

    def __enter__(self) -> Self:
        return self

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this transaction has ended")

    def commit(self) -> None:
        """Commit now.  If this raises, nothing was stored; only after `OutcomeUnknown` it may have been, or may be
        yet."""
        self._check_open()
        self._closed = True
        filled = {name: batch for name, batch in self._batches.items() if batch.buffer.count}
        try:
            done = self._store.run(self._committing(filled))
        except BaseException as error:
            failure = error if isinstance(error, Exception) else OutcomeUnknown("interrupted while it was stored")
            for batch in filled.values():
                batch.finish(None, failure)
            raise
        for batch, appended in zip(filled.values(), done, strict=True):
            batch.finish(appended, None)

    def _committing(self, filled: dict[str, CommitBatch]) -> Steps[list[Any]]:
        if self._streams and not filled and not self._writes:
            yield from commit_events(list(self._streams.values()), self._event_settings)
            return []
        others = yield from self._others()
        placed = yield from self._placing(filled)
        if placed:
            return (yield from commit(placed, others=others))
        if others is not None:
            yield from write_alone(others)
        return []

    def _placing(self, filled: dict[str, CommitBatch]) -> Steps[list[Placed]]:
        placed = []
        inline = len(filled) <= MAX_ACTIONS // 2  # each chunk stored inline is another action of the same write
        for name, batch in filled.items():
            log, described = self._topics[name]
            if log.joins_inline and not inline:
                log = replace(log, inline_bytes=0)
            placed.append((yield from place(log, batch.buffer.encode(described.settings.compression))))
        return placed

    def _others(self) -> Steps[Together | None]:
        parts: list[FurtherWrites] = [
            Once(self._topics[name][0], ids, secrets.token_hex(12)) for name, ids in self._ids.items()
        ]
        if self._streams:
            appends = Appends(list(self._streams.values()), self._event_settings)
            yield from appends.prepare()
            parts.append(appends)
        if self._writes:
            parts.append(Writes(self._writes))
        if sum(map(len, self._ids.values())) + 2 * len(self._streams) + len(self._writes) > MAX_ACTIONS - 10:
            raise TooLarge(f"a transaction has at most {MAX_ACTIONS} actions; do less in one")
        return Together(parts) if parts else None


def write_alone(others: FurtherWrites) -> Steps[None]:
    """Write items, perhaps with events, in one transaction that appends no records; raises `OutcomeUnknown` if the
    storage gives no answer, since nothing in a caller's own items tells whether it has written them."""
    attempts = 0
    while True:
        try:
            outcome = yield from guard.attempt(*others.actions(-1))
            if isinstance(outcome, Written):
                return
            if isinstance(outcome, Unanswered):
                raise OutcomeUnknown("a transaction had no answer; read what it writes, and decide again")
            assert isinstance(outcome, Refused)
            yield from others.refused(outcome.index, outcome.item)
        except FinalRefusal as refusal:
            raise refusal.error from None
        yield from calls.pause(attempts)
        attempts += 1


class Acked:
    """The guard of a transaction that acknowledges a message: the shard's window, which alone says whether it
    happened."""

    def __init__(self, shard: Shard, new: Window) -> None:
        self.shard, self.new = shard, new

    def action(self, id: str, page: int) -> Action:
        """WRITE the window, with the id of this transaction."""
        action = self.shard.actions(self.new, emits=False, id=id)[0]
        assert isinstance(action, Update)
        return action

    def read(self) -> Steps[Item]:
        """Read the shard's item, past any transaction under way."""
        return (yield from guard.truth(self.shard.key)) or {}

    def moved(self, item: Item) -> bool:
        """Whether the shard has another owner, or was written since this transaction was planned."""
        return not self.shard.stands(item) or item.get("queue", {}).get("v", 0) != self.shard.v


class Fence:
    """The check of a shard's lease, for a transaction that writes the window of one of the shard's replays."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def actions(self, page: int) -> Sequence[Action]:
        """Check that this owner still has the shard whose message it acknowledges."""
        return [self._shard.held.check()]

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Raise `FinalRefusal`: another consumer has the shard, so no attempt can land any more."""
        yield from ()
        raise FinalRefusal(Fenced(f"shard {self._shard.partition} has a newer owner: nothing is stored", item=item))


def commit_acked(acked: Acked, placed: Sequence[Placed], others: FurtherWrites | None) -> Steps[None]:
    """Store the acknowledgement together with chunks and further writes; raises `Fenced`, and stores nothing, if the
    shard has a newer owner."""
    if isinstance(acked.shard, ReplayShard):
        others = Together([Fence(acked.shard), *([others] if others is not None else [])])
    try:
        won, _ = yield from commit_guarded(placed, acked, others)
    except FinalRefusal as refusal:
        raise refusal.error from None
    if not won and in_force("queue.transaction"):
        shard = acked.shard
        raise Fenced(
            f"shard {shard.partition} has a newer owner: nothing of this transaction is stored, and the message is "
            "handled there"
        )
    acked.shard.wrote(acked.new)


class AckTransaction(Transaction):
    """A transaction that also acknowledges a message.  Made by `envelope.transaction()`."""

    finish: Callable[[AckTransaction], None]
    """Commits the transaction through the message's consumer; `Run.transaction` sets it."""

    def commit(self) -> None:
        """Commit now, with the acknowledgement of the message."""
        self._check_open()
        self._closed = True
        self.finish(self)

    def parts(self) -> Steps[tuple[list[Placed], Together | None]]:
        """Store the bytes, and return the chunks and the further writes that commit with the acknowledgement."""
        filled = {name: batch for name, batch in self._batches.items() if batch.buffer.count}
        others = yield from self._others()
        return (yield from self._placing(filled)), others
