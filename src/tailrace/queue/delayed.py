"""Delayed messages: they wait outside the log until they are due; then the owner of shard 0 moves them into the log.

    $Delayed-<topic id>, due in ms * 2^15 + random    id, key, value, attributes, pushed, dedup; once moved: moved
    $Delayed-<topic id>, 2^63-1                       low, pushed, moved: the clock

DELAY   put the message if its key is free, and pushed += 1 if low <= due
MOVE    append the messages to the topic, mark each `moved` if it is not, moved += n: one transaction
SWEEP   low = an hour ago; then remove the marks below it

From a mark, a push that had no answer learns that its message was moved.  Below `low` a late push is refused, so the
sweep can remove the marks there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Unanswered, Written
from tailrace.coordination.lease import HeldLease, waited
from tailrace.coordination.rules import in_force, rules
from tailrace.errors import BadInput, OutcomeUnknown, TooLarge
from tailrace.log.record import MAX_TIMESTAMP, milliseconds
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import FinalRefusal
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import place
from tailrace.queue.dedup import Duplicate, collision, dedup_key
from tailrace.queue.envelope import PUSHED, PUSHER
from tailrace.queue.settings import deleted, queue_key
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import (
    LAST,
    Absent,
    Action,
    Add,
    AtMost,
    Check,
    Delete,
    Equals,
    Item,
    Key,
    Less,
    Put,
    Regardless,
    Remove,
    Set,
    Update,
)

MOST_BYTES = 350_000
"""The most bytes of a delayed message with its key: it waits in an item of the table."""
AT_ONCE, MOVES_A_ROUND, RANDOM_BITS = 40, 10, 15
"""Messages of one move, moves that a consumer makes in one round, and random bits of a message's key."""
KEEP_MARKS_MS = 3600 * 1000
LOOK_SECONDS, SCAN_SECONDS, RECENT_MS = 1.0, 60.0, 5000
"""Seconds between looks for messages that became due in the last `RECENT_MS`, and between looks at all of them.  The
marks of moved messages stay for an hour, so most looks leave them out."""


def due_ms(not_before: datetime | timedelta | float, now: int) -> int:
    """Return when a message is due, in milliseconds since 1970, from a time or from a delay (in seconds) that begins at
    `now`."""
    if isinstance(not_before, datetime):
        return milliseconds(not_before)
    if isinstance(not_before, timedelta):
        not_before = not_before.total_seconds()
    if isinstance(not_before, bool) or not isinstance(not_before, (int, float)) or not 0 <= not_before < 1e11:
        raise BadInput(f"not_before is a time, or a delay in seconds from 0, not {not_before!r}")
    return min(now + round(not_before * 1000), MAX_TIMESTAMP)


def check_size(key: bytes | None, value: bytes) -> None:
    """Raise `TooLarge` for a message that is too large to be delayed."""
    if (size := len(value) + len(key or b"")) > MOST_BYTES:
        raise TooLarge(f"a delayed message has at most {MOST_BYTES:,} bytes with its key, this one has {size:,}")


def clock_key(topic_id: str) -> Key:
    """The key of a queue's clock."""
    return Key(f"$Delayed-{topic_id}", LAST)


def make_clock(topic_id: str) -> Steps[Item]:
    """Return the queue's clock; the first delayed message creates it."""
    new = Put(clock_key(topic_id), {"low": 0, "pushed": 0, "moved": 0}, (Absent(),))
    while (item := (yield from guard.read(clock_key(topic_id)))) is None:
        if (yield from guard.read(queue_key(topic_id))) is None:
            raise deleted()
        yield from guard.attempt(new, Check(queue_key(topic_id)))
    return item


def delay(
    topic_id: str, message: dict[str, Any], due: int, rng: random.Random, also: Sequence[Action] = ()
) -> Steps[bool]:
    """DELAY: store a message until it is due.  Returns False if it was due so long ago that the caller must push it at
    once.

    `message` has id, key, value, attributes, pushed and perhaps dedup; `also` are further writes of the same
    transaction, which put its dedup id."""
    check_size(message["key"], message["value"])
    yield from make_clock(topic_id)
    key, doubt, began = _free_key(topic_id, due, rng), False, (yield from calls.now())
    late = 0  # at most so many ms: each has keys for 32,768 messages, and very many can be due at the same time
    while True:
        outcome = yield from guard.attempt(
            Put(key, message, rules({"queue.delay": Absent()}) or (Regardless(),)),
            Update(clock_key(topic_id), (Add("pushed", 1),), rules({"queue.low": AtMost("low", due)})),
            *also,
        )
        if isinstance(outcome, Written):
            return True
        if isinstance(outcome, Unanswered):
            doubt = True
            yield from waited(began, guard.PATIENCE, "a delayed push")
        elif outcome.index > 1:
            if outcome.item is not None and outcome.item["id"] != message.get("dedup"):
                raise collision(str(message.get("dedup")), outcome.item["id"])
            if outcome.item is None or outcome.item["token"] != message["id"]:
                raise Duplicate(str(message.get("dedup")))
            return True  # an earlier attempt of this push has stored the dedup id and the message
        elif outcome.index == 0 and outcome.item is not None and outcome.item["id"] == message["id"]:
            return True
        elif outcome.index == 0:
            late = 2 * late + 1
            key = _free_key(topic_id, due + rng.randint(0, late), rng)
        elif doubt:
            raise OutcomeUnknown(
                "a delayed push had no answer for so long that its trace is gone: it is in the queue, or never came"
            )
        elif outcome.item is not None and due > message["pushed"]:
            # A clock holder's clock is, or was, ahead: the message waits longer rather than come too early.
            due = max(due + 1, outcome.item["low"])
            key = _free_key(topic_id, due, rng)
        else:
            return False


def _free_key(topic_id: str, due: int, rng: random.Random) -> Key:
    return Key(f"$Delayed-{topic_id}", due << RANDOM_BITS | rng.getrandbits(RANDOM_BITS))


def first_due(topic_id: str, since: int = 0) -> Steps[int | None]:
    """Return when the next waiting message with a due time from `since` on is due, in milliseconds; None if none
    waits."""
    low = since << RANDOM_BITS
    while True:
        items, more = yield from guard.read_range(f"$Delayed-{topic_id}", low, LAST - 1, limit=100)
        for item in items:
            if "moved" not in item:
                return int(item["i"]) >> RANDOM_BITS
        if more is None:
            return None
        low = more + 1


class _Moves:
    """The marks of some delayed messages, written in the transaction that appends them to the log."""

    def __init__(self, log: TopicLog, items: Sequence[Item], fence: HeldLease | None) -> None:
        self._log, self._items, self._fence = log, items, fence

    def actions(self, page: int) -> Sequence[Action]:
        """Mark each message, under the condition that it is not marked, and give its dedup id the page that it is
        appended to."""
        p, when = f"$Delayed-{self._log.id}", rules({"queue.move": Absent("moved")})
        changes = (Set("moved", True), Remove("value"), Remove("key"))
        out: list[Action] = [Update(Key(p, item["i"]), changes, when) for item in self._items]
        out.append(Update(clock_key(self._log.id), (Add("moved", len(self._items)),)))
        at = Set("page", max(page, self._log.newest.page))
        out += [Update(dedup_key(self._log.id, item["dedup"]), (at,)) for item in self._items if item.get("dedup")]
        fenced = self._fence is not None and in_force("queue.move_fence")
        return [*out, self._fence.check()] if self._fence is not None and fenced else out

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Give up this move: another consumer has moved one of the messages, or owns shard 0 now."""
        yield from ()
        raise FinalRefusal(_MovedMeanwhile("moved by another"))


class _MovedMeanwhile(Exception):
    """Raised when another consumer has moved one of the messages, or owns shard 0 now."""


def move_due(log: TopicLog, now: int, fence: HeldLease | None = None) -> Steps[int]:
    """MOVE: append the waiting messages that are due at `now`, in ms, to the log; returns how many."""
    low: int | None = 0
    count = 0
    while low is not None:
        moved, low = yield from _move_some(log, now, fence, low)
        count += moved
    return count


def _move_some(log: TopicLog, now: int, fence: HeldLease | None, low: int) -> Steps[tuple[int, int | None]]:
    """MOVE some of the messages with keys from `low` on; returns how many, and the key to go on at, None at the end."""
    high = now << RANDOM_BITS | ((1 << RANDOM_BITS) - 1)
    items, more = yield from guard.read_range(f"$Delayed-{log.id}", low, min(high, LAST - 1), limit=AT_ONCE)
    due = [item for item in items if "moved" not in item]
    if due:
        try:
            yield from _move(log, due, now, fence)
        except _MovedMeanwhile:
            return 0, None
    return len(due), None if more is None else more + 1


def _move(log: TopicLog, due: Sequence[Item], now: int, fence: HeldLease | None) -> Steps[None]:
    yield from log.head()
    buffer = Buffer(log.partitions, 1 << 30, log.next_turn(), log.partitioner)
    for item in due:
        headers: tuple[tuple[str, bytes], ...] = ((PUSHED, str(item["pushed"]).encode()),)
        if "pusher" in item:
            headers += ((PUSHER, item["pusher"]),)
        buffer.add(item["key"], item["value"], now, headers, item["attributes"])
    placed = yield from place(log, buffer.encode("none"))
    if in_force("queue.move_together"):
        yield from commit([placed], others=_Moves(log, due, fence))
        return
    yield from commit([placed])
    yield from guard.attempt(*_Moves(log, due, fence).actions(0))


def sweep(topic_id: str, now: int) -> Steps[int]:
    """SWEEP: remove the marks of messages that were due more than an hour ago; returns how many."""
    low = max(0, now - KEEP_MARKS_MS)
    if (yield from guard.read(clock_key(topic_id))) is None:
        return 0
    yield from guard.attempt(Update(clock_key(topic_id), (Set("low", low),), (Less("low", low),)))
    clock = yield from guard.read(clock_key(topic_id))
    before = clock["low"] << RANDOM_BITS if clock is not None else 0
    p, at, removed = f"$Delayed-{topic_id}", 0, 0
    while at < before:
        items, more = yield from guard.read_range(p, at, before - 1)
        for item in items:
            if "moved" in item:
                yield from guard.attempt(Delete(Key(p, item["i"]), (Equals("moved", True),)))
                removed += 1
        at = before if more is None else more + 1
    return removed


class Clock:
    """Moves delayed messages into the log when they are due.  Only the consumer that owns shard 0 runs it."""

    def __init__(self, log: TopicLog, wall: Callable[[], float]) -> None:
        self._log, self._wall = log, wall
        self.next_look = self._next_scan = 0.0
        self._looked = 0
        self._low: int | None = None
        """The key at which the look that is under way goes on; None: none is."""
        self._now, self._since, self._whole = 0, 0, False
        """Of that look: its time and the first due time that it covers, in ms, and whether it covers all messages."""

    def look_at_all(self) -> None:
        """Make the next look cover every delayed message, since this consumer has just become the owner of shard 0."""
        self._next_scan, self._low = 0.0, None

    def move_due(self, now: float, fence: HeldLease) -> Steps[None]:
        """Move messages that are due, unless it is too early for another look.  If very many are, the next call goes
        on, so that the consumer's shards do not wait for all of them."""
        if now < self.next_look:
            return
        if self._low is None:
            self._now = int(self._wall() * 1000)
            self._whole = now >= self._next_scan or self._now < self._looked  # the wall clock went back
            self._since = 0 if self._whole else max(0, self._looked - RECENT_MS)
            self._low = self._since << RANDOM_BITS
        for _ in range(MOVES_A_ROUND):
            _, self._low = yield from _move_some(self._log, self._now, fence, self._low)
            if self._low is None:
                break
        if self._low is not None:
            self.next_look = now
            return
        self._looked = self._now
        due = yield from first_due(self._log.id, self._since)
        if self._whole:
            yield from sweep(self._log.id, self._now)
            self._next_scan = now + SCAN_SECONDS
        wait = LOOK_SECONDS if due is None else min(LOOK_SECONDS, max(0.005, (due - int(self._wall() * 1000)) / 1000))
        self.next_look = now + wait
