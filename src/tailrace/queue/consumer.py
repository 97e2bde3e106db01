"""Consumers: one member of a queue's group, without threads.  It shares shards, emits messages, and writes their
outcomes.

One thread drives everything that asks the storage, round after round, as steps.  Handlers run in other threads and
report through `ack`, `fail` and `give_up`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Unanswered
from tailrace.errors import StorageError
from tailrace.log.groups.member import PartitionMember
from tailrace.log.topic_log import TopicLog
from tailrace.queue import replay
from tailrace.queue.acknowledgements import Acknowledgements
from tailrace.queue.delayed import Clock
from tailrace.queue.desk import Desk, Desks, Outcome
from tailrace.queue.diary import Diary, clean
from tailrace.queue.fetcher import Fetcher
from tailrace.queue.lanes import Entry, Lanes
from tailrace.queue.settings import TTL, Settings
from tailrace.queue.shard import Planned, ReplayShard, Shard, by_transaction, write
from tailrace.queue.transaction import AckTransaction
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item, Key, Set, Update

SOON, NOT_LATE, LONG, GLANCE = 1 / 50, 1 / 10, 1 / 3, 1 / 20
"""Pauses between looks at the group, as parts of `ttl`; a topic's consumer has the same."""


class QueueMember(PartitionMember):
    """A member of a queue's group that keeps the items of its shards as they were when it took them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.items: dict[int, Item] = {}
        self.asked = self.heeded = 0
        """How often a supervisor has asked this member to look at the queue, and the last such request that it has
        answered."""

    def has_news(self) -> Steps[bool]:
        """Whether members have come or gone, or a supervisor has asked this member to look at the queue."""
        found = yield from self.shared.members()
        self.asked = found.get(self.number, {}).get("asked", 0)
        return frozenset(found) != self._company or self.asked != self.heeded

    def heed(self) -> Steps[None]:
        """Answer a supervisor's request for a look at the queue, if there is one."""
        if self.asked == self.heeded:
            return
        answer = Update(self.shared.member(self.number), (Set("heeded", self.asked),))
        if not isinstance((yield from guard.attempt(answer)), Unanswered):
            self.heeded = self.asked

    def refuse_group(self) -> Steps[None]:
        """Refuse nothing: a queue's consumers are the members that may join its group."""
        yield from ()

    def took(self, unit: int, item: Item) -> None:
        """Keep the item of a shard that this member has taken."""
        super().took(unit, item)
        self.items[unit] = item


class Consumer:
    """One member's work on a queue."""

    def __init__(
        self,
        log: TopicLog,
        member: QueueMember,
        settings: Settings,
        *,
        acking: bool = True,
        batch_size: int = 100,
        dead_log: Callable[[], TopicLog],
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        on_ready: Callable[[], object] = lambda: None,
    ) -> None:
        self.log, self.member, self.settings, self.acking = log, member, settings, acking
        self.desks = Desks(in_order=settings.order == "key")
        self.stopping = False
        self.acked = self.errored = self.died = 0
        self._rng, self._on_ready = rng or random.Random(), on_ready
        self._fetcher = Fetcher(log, self.desks, batch_size)
        self._acks = Acknowledgements(
            log, self.desks, acking=acking, batch_size=batch_size, attempts=settings.attempts, name=member.name,
            dead_log=dead_log, wall=wall, lose=self._lose,
        )  # fmt: skip
        self._diary = Diary(log.id, member.name, wall)
        self._clock = Clock(log, wall)
        self._next_look = self._next_glance = 0.0
        self._pause, self._waits = SOON, False
        self._ttl = min(member.ttl, TTL)
        self._glances = self._ttl * (GLANCE if log.joins_inline else NOT_LATE)
        self._fresh_until = 0.0
        """Until when the consumer may hand out messages without another look at the queue."""

    @property
    def lanes(self) -> Lanes:
        """The emitted messages that wait for a handler or are with one."""
        return self.desks.lanes

    @property
    def emitted(self) -> int:
        """How many messages this consumer has emitted so far."""
        return self._acks.emitted

    @property
    def busy(self) -> int:
        """How many messages handlers have now."""
        with self.desks.lock:
            return sum(entry.running for desk in self.desks.values() for entry in desk.entries.values())

    # -- one round
    def round(self) -> Steps[float]:
        """Make one round: share, fetch, emit, acknowledge, bury dead letters, give shards back, move delayed messages.
        Returns the seconds until the next round is due."""
        now = yield from calls.now()
        yield from self._look(now)
        more = yield from self._fetch()
        more = (yield from self._acks.write(emits=not self.stopping)) or more
        self._hand_out()
        yield from self._acks.bury()
        yield from self._release()
        yield from self._diary.write()
        first = self.desks.get(0)
        if first is not None and not first.leaving:
            yield from self._clock.move_due(now, first.shard.held)
        with self.desks.lock:
            wake = self.lanes.wake(now)
            waiting = any(desk.outcomes for desk in self.desks.values())
        self._hand_out()
        if more or waiting:
            return 0.0
        due = [self._next_look, self._next_glance, *([wake] if wake is not None else [])]
        if self._clock.next_look and 0 in self.desks:
            due.append(self._clock.next_look)
        return max(0.0, min(due) - (yield from calls.now()))

    def _hand_out(self) -> None:
        if self.lanes:
            self._on_ready()

    def _fetch(self) -> Steps[bool]:
        found = yield from self._fetcher.fetch()
        if self._fetcher.stuck and not self._waits:
            self._next_look, self._waits = 0.0, True  # the queue has grown, and the group is not past it yet
        return found

    # -- sharing
    def _look(self, now: float) -> Steps[None]:
        due = now >= self._next_look
        if now >= self._next_glance:
            due = (yield from self.member.has_news()) or due
            self._next_glance = now + self._glances
        if self.stopping:
            yield from self.member.heed()  # a stopping consumer hands out nothing, so it has nothing to look for
        if not due or self.stopping:
            return
        balance = yield from self.member.balance()
        self._fetcher.pass_growth(balance.passed)
        with self.desks.lock:
            for q, desk in [(k, d) for k, d in self.desks.items() if isinstance(k, int)]:
                if self.member.held.get(q) is not desk.shard.held:
                    self._lose(desk)
            for q, held in self.member.held.items():
                if q not in self.desks:
                    if q == 0:
                        self._clock.look_at_all()
                    self.desks[q] = Desk(Shard(q, held, self.member.items[q]))
                    self._diary.took(self.desks[q])
            for q, desk in self.desks.items():
                if isinstance(q, int) and q in balance.units:
                    desk.shard.saw(balance.units)
            for q in balance.over:
                self.desks.leave(q)
            self.desks.paused = any(desk.shard.is_paused for desk in self.desks.values())
            self._fresh_until = now + self._ttl
        yield from self.member.heed()
        yield from self._find_replays()
        calm = balance.settled and not self._fetcher.waits
        self._next_look = now + self._ttl * (LONG if calm else self._pause)
        if self.desks.paused:
            self._next_look = min(self._next_look, now + self._glances)
        self._pause = SOON if balance.settled else min(NOT_LATE, 2 * self._pause)
        self._waits = False

    def _find_replays(self) -> Steps[None]:
        found = yield from replay.items(self.log.id)
        with self.desks.lock:
            for key, item in found.items():
                desk = self.desks.get(item["shard"])
                if desk is None or desk.leaving or key in self.desks or item["position"] >= item["until"]:
                    continue
                self.desks[key] = Desk(ReplayShard(desk.shard, key, item))
            for key in [k for k in self.desks if isinstance(k, Key) and k not in found]:
                self._lose(self.desks[key])

    def _lose(self, desk: Desk) -> None:
        """Drop a desk whose shard, or replay, belongs to another consumer."""
        self.desks.drop(desk)
        if desk.until is None:
            self.member.drop(desk.partition)
            self._next_look = 0.0

    # -- what handlers get and tell
    def take(self, most: int, now: float) -> list[Entry]:
        """Return up to `most` messages for handlers.  Returns none while the queue is paused, and none if the last look
        at the queue is too long ago: the queue may be paused since, or another consumer may have the shards."""
        with self.desks.lock:
            if self.stopping or self.desks.paused or now >= self._fresh_until:
                return []
            return self.lanes.take(most)

    def ack(self, entry: Entry, run: int) -> bool:
        """Acknowledge a message; returns False if this run of its handler no longer counts."""
        with self.desks.lock:
            return self._ack(entry, run)

    def ack_all(self, runs: Iterable[tuple[Entry, int]]) -> None:
        """Acknowledge messages, each given with the number of its handler's run."""
        with self.desks.lock:
            for entry, run in runs:
                self._ack(entry, run)

    def _ack(self, entry: Entry, run: int) -> bool:
        if (desk := self.desks.of_run(entry, run)) is None:
            return False
        if self.acking:
            desk.outcomes.append(Outcome(entry, "ack"))
        else:
            desk.remove(entry.offset)
        self.acked += 1
        self.lanes.finish(entry)
        return True

    def fail(
        self,
        entry: Entry,
        run: int,
        reason: str,
        *,
        now: float,
        after: float | None = None,
        final: bool = False,
        together: bool = False,
    ) -> str:
        """Count a failed attempt.  Returns, for the log, what happens to the message next; "" if this run of its
        handler no longer counts.

        Messages that failed `together`, as a batch, are tried again one by one; only that attempt counts."""
        reason = clean(reason)
        with self.desks.lock:
            if (desk := self.desks.of_run(entry, run)) is None:
                return ""
            self.errored += 1
            entry.tries += not together
            entry.alone = entry.alone or together
            desk.outcomes.append(Outcome(entry, "fail" if self.acking and not together else "error"))
            self._diary.failed(entry, reason)
            if not self.acking:
                desk.remove(entry.offset)
                self.lanes.finish(entry)
                return "is not tried again"
            if not together and (final or entry.tries >= self.settings.attempts):
                self._give_up(desk, entry, reason)
                return "goes to the dead letters"
            if desk.leaving:
                desk.remove(entry.offset)
                self.lanes.finish(entry)
                return "is tried again by the shard's next consumer"
            entry.run += 1
            pause = self.settings.pause_before(entry.tries + 1, self._rng) if after is None else after
            self.lanes.retry(entry, now + pause)
            return f"is tried again {'by itself ' * together}in {pause:.1f} s"

    def give_up(self, entry: Entry, run: int, reason: str) -> bool:
        """Put a message with the dead letters; its key waits until the letter is stored.  Returns False if this run no
        longer counts."""
        with self.desks.lock:
            desk = self.desks.of_run(entry, run)
            return desk is not None and self._give_up(desk, entry, clean(reason))

    def _give_up(self, desk: Desk, entry: Entry, reason: str) -> bool:
        entry.run += 1
        desk.outcomes.append(Outcome(entry, "dead", reason))
        self.died += 1
        return True

    def transact(self, entry: Entry, run: int, transaction: AckTransaction) -> Steps[None]:
        """Commit a handler's transaction with the acknowledgement of its message; raises `Fenced` if this run no longer
        counts."""
        yield from self._acks.transact(entry, run, transaction)
        with self.desks.lock:
            self.acked += 1

    # -- giving back
    def _release(self) -> Steps[None]:
        with self.desks.lock:
            for key, desk in list(self.desks.items()):
                if desk.until is not None and desk.shard.window.position >= desk.until and not desk.shard.writing:
                    del self.desks[key]
            free = [
                desk
                for desk in self.desks.values()
                if desk.until is None and desk.leaving and all(d.free for d in self.desks.of_shard(desk.partition))
            ]
        yield from self._put_back({desk.partition for desk in free})
        for desk in free:
            with self.desks.lock:
                held = self.member.held.get(desk.partition) is desk.shard.held
                for key in [k for k, d in self.desks.items() if d.partition == desk.partition]:
                    del self.desks[key]
            if held:
                yield from self.member.release(desk.partition)
            self._next_look = 0.0

    def _put_back(self, shards: Collection[int]) -> Steps[None]:
        """Write the outcomes of these shards' messages, and which no handler has begun, before the shards are given
        up."""
        planned = []
        with self.desks.lock:
            for desk in self.desks.values():
                new = desk.put_back()
                if desk.partition in shards and not desk.shard.writing and new != desk.shard.stored:
                    desk.shard.writing = True
                    planned.append(Planned(desk.shard, new))
        for group in by_transaction(planned, lambda one: one.shard):
            with suppress(StorageError):
                yield from write(group)

    def leave(self) -> Steps[None]:
        """Leave the group.  Other consumers take the shards, with the messages that handlers still work on."""
        self.stopping = True
        yield from self._put_back(self.member.held)
        with self.desks.lock:
            self.desks.drop_all()
        yield from self.member.leave()

    def stop(self) -> None:
        """Hand out nothing more.  The caller goes on making rounds until every shard is given back."""
        with self.desks.lock:
            self.stopping = True
            for key in list(self.desks):
                if isinstance(key, int):
                    self.desks.leave(key)
