"""Queues, as users hold them: push messages, start workers, supervise.

    emails = home.queue("emails")
    emails.push({"to": "ada@example.org"}, shard_key="ada")

    with emails.tail(lambda envelope: send(envelope.message)) as worker:
        worker.run_forever()

A queue is a topic, its shards are the topic's partitions, its consumers are the members of one consumer group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tailrace.coordination import guard
from tailrace.errors import AlreadyThere, BadInput, BadSetting, UnknownQueue, UnknownTopic
from tailrace.log import catalog
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.topic import Topic
from tailrace.log.upkeep import retention_holds
from tailrace.log.write.acknowledgement import CommitBatch
from tailrace.log.write.append import commit
from tailrace.log.write.placement import place
from tailrace.queue import (
    dead_letters,
    dedup,
    delayed,
    deletion,
    diary,
    existence,
    explain,
    pushing,
    replay,
    supervisor,
)
from tailrace.queue.dead_letters import DeadLetter, DeadNumbers, Requeue
from tailrace.queue.envelope import Codec, Json
from tailrace.queue.pushing import Message, NotBefore, Pushed, Ready, push_all, ready, signature, topic_of
from tailrace.queue.replay import Replay
from tailrace.queue.settings import DAY_MS, SHARDS, Settings, Working, queue_key, settings, stored_settings
from tailrace.queue.shard import GROUP
from tailrace.queue.stats import Stats, stats
from tailrace.queue.transaction import AckTransaction
from tailrace.queue.worker import Worker
from tailrace.storage.calls import Steps, Store

if TYPE_CHECKING:
    from tailrace.queue.aio import AsyncQueue

T = TypeVar("T")
RETENTION_MS = 7 * DAY_MS
"""How long a queue keeps acknowledged messages, for replays, unless its creator chooses otherwise."""


class Queue:
    """A queue of a home.  Cheap to make, and safe to use from any thread.  Made by `home.queue(name)`."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        codec: Codec | None = None,
        pusher: str | None = None,
        create: bool = True,
        new_transaction: Callable[[], AckTransaction],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = catalog.check_name("queue", name)
        self.codec: Codec = codec or Json()
        self.store = store
        self.signature = signature(pusher)
        """The record headers of messages pushed through this object: the pusher's name, if it has one."""
        self._new_transaction, self._wall, self._creates = new_transaction, wall, create
        self._topic: Topic | None = None
        self._settings = Settings()

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    # -- being there
    def topic(self, *, create: bool = False) -> Topic:
        """Return the topic that holds the queue's messages.  If the queue is not there, create it with `create`, unless
        this object was made with `create=False`; else raise `UnknownQueue`."""
        if self._topic is None:
            found = self.store.run(catalog.find(self.name))
            item = None if found is None else self.store.run(guard.read(queue_key(found.id)))
            if found is None or item is None:
                if not create:
                    self._refuse()
                return self.make()
            self._topic = topic_of(self.store, found)
            self._settings = stored_settings(item)
        return self._topic

    def make(self, shards: int | None = None, **given: Any) -> Topic:
        """Create the queue, or check the one that is there: `BadSetting` if it has another number of shards or other
        settings."""
        kept = {"retention_ms": given.pop("retention_ms")} if "retention_ms" in given else {}
        wanted = settings(given)
        found = self.store.run(catalog.find(self.name))
        if not self._creates and (found is None or self.store.run(guard.read(queue_key(found.id))) is None):
            self._refuse()
        if found is None:
            dead_letters.check_queue_name(self.name)
            self.store.run(dead_letters.check_free(self.name))
            count = SHARDS if shards is None else catalog.check_partitions(shards)
            try:
                wall = int(self._wall() * 1000)
                found = self.store.run(catalog.create(self.name, count, {"retention_ms": RETENTION_MS, **kept}, wall))
            except AlreadyThere:  # another process has just created it
                found = self.store.run(catalog.describe(self.name))
        else:
            self.store.run(existence.check_own(topic_of(self.store, found).log))
        if shards is not None and shards != found.partitions:
            raise BadSetting(
                f"queue {self.name!r} has {found.partitions} shards, not {shards}; queue.rebalance(shards=N) adds some"
            )
        topic = topic_of(self.store, found)
        group = Group(GROUP, topic.log, topic.partitions)
        # The queue's item last: a process that finds it pushes at once, and relies on the group and on the hold.
        self.store.run(groups.make(group, "earliest"))
        self.store.run(retention_holds.hold(topic.id, [group.hash_key]))
        stored = self.store.run(existence.settle(topic.log, wanted))
        self._settings = stored_settings(stored)
        for name, asked in [(name, getattr(wanted, name)) for name in given] + list(kept.items()):
            has = getattr(found.settings if name in kept else self._settings, name)
            if has != asked:
                raise BadSetting(f"queue {self.name!r} has {name}={has!r}, not {asked!r}; queue.configure() changes it")
        self._topic = topic
        return topic

    def _refuse(self) -> NoReturn:
        raise UnknownQueue(self.store.run(existence.unknown(self.name)))

    @property
    def settings(self) -> Settings:
        """The queue's settings, as this object last read or changed them."""
        self.topic()
        return self._settings

    def configure(self, **given: Any) -> Settings:
        """Change settings; only workers that start afterwards obey them."""
        topic = self.topic()
        settings({name: value for name, value in given.items() if name != "retention_ms"})
        if "retention_ms" in given:
            topic.configure(retention_ms=given.pop("retention_ms"))
        self._settings = self.store.run(existence.change(topic.id, given))
        return self._settings

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self.topic().partitions

    # -- pushing
    def push(
        self,
        message: Any,
        shard_key: str | bytes | None = None,
        *,
        dedup: str | None = None,
        not_before: NotBefore | None = None,
    ) -> Pushed:
        """Push one message; it is durable when this returns.  Creates the queue if it is not there (see `home.queue`).

        Messages with the same `shard_key` are handled in order, one at a time.  With a `dedup` id the message is in the
        queue once, for as long as it is kept.  `not_before` (a time, or a delay in seconds) holds it back."""
        return self.push_many([Message(message, shard_key, dedup, not_before)])[0]

    def push_many(self, messages: Iterable[Any]) -> list[Pushed]:
        """Push messages, or `Message`s with shard keys, in one transaction; each delayed one is stored by a write of
        its own."""
        topic, now = self.topic(create=True), int(self._wall() * 1000)
        limit = topic.settings.max_record_bytes
        checked = [ready(one, self.codec, now, limit) for one in messages]
        try:
            return push_all(topic, checked, now, self.signature)
        except (UnknownTopic, UnknownQueue):
            self._topic = None
            again = "the next push makes it again" if self._creates else f"`tailrace queue create {self.name}` makes it"
            raise UnknownQueue(f"queue {self.name!r} was deleted meanwhile; {again}") from None

    def has(self, dedup_id: str) -> bool:
        """Whether a message with this dedup id is in the queue."""
        return self.store.run(dedup.is_there(self.topic().id, dedup.check_id(dedup_id)))

    # -- handling
    def tail(self, handler: Callable[[Any], Any], **working: Any) -> Worker:
        """Start a consumer that calls `handler` with each `Envelope`; `Working` lists its settings.

        When the handler returns, the message is acknowledged.  When it raises, the message is tried again as the
        queue's settings say."""
        given = Working.of(working)
        Worker.check_handler(handler)
        topic = self.topic(create=True)
        if (item := self.store.run(guard.read(queue_key(topic.id)))) is not None:  # else the worker finds it deleted
            self._settings = stored_settings(item)
        return Worker(
            topic, self.name, handler, self._settings, self.codec, given, self._new_transaction,
            wall=self._wall,
        )  # fmt: skip

    # -- supervising
    def pause(self) -> None:
        """Stop the queue in every process: once this returns, no consumer hands out a message.  Running handlers
        finish."""
        self._supervise(supervisor.set_paused(self._group(), True))

    def play(self) -> None:
        """Resume a paused queue."""
        self._supervise(supervisor.set_paused(self._group(), False))

    def rebalance(self, shards: int | None = None, *, timeout: float = 10.0) -> dict[str, int]:
        """Wait until the consumers have shared out the shards evenly; with `shards`, first grow the queue to that
        number.

        Returns how many shards each consumer then has.  Consumers also share by themselves whenever one comes or goes.
        A consumer gives a shard up only when its handlers have finished, so after `timeout` seconds the shares may
        still be uneven."""
        topic = self.topic()
        if shards is not None:
            topic.grow(shards)
            self.store.run(groups.make(Group(GROUP, topic.log, shards), "earliest"))
        topic.log.on_commit()
        deadline = self.store.clock() + timeout
        while True:
            shares, even = self.store.run(supervisor.shares(self._group()))
            if even or self.store.clock() >= deadline:
                return shares
            self.store.sleep(0.05)

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every message, delayed ones included, is done; returns False if `timeout` seconds pass first."""
        deadline = None if timeout is None else self.store.clock() + timeout
        while (now := self.stats()).backlog or now.delayed:
            if deadline is not None and self.store.clock() >= deadline:
                return False
            self.store.sleep(0.05)
        return True

    def purge(self, *, sure: bool = False) -> int:
        """Drop every message that is in a shard and not done, and return how many; delayed messages stay.  Raises
        `BadInput` unless `sure`."""
        if not sure:
            raise BadInput(f"purge would drop {self.stats().backlog} messages of {self.name!r}; purge(sure=True) does")
        return self._supervise(supervisor.purge(self._group(), int(self._wall() * 1000)))

    def delete(self, *, sure: bool = False) -> None:
        """Delete the queue with its messages, dead letters and settings, for good.  Raises `BadInput` unless `sure`.

        The queue is gone at once, and its workers end.  If the deletion is cut off, the same call again, or upkeep,
        finishes it."""
        try:
            topic = self.topic()
        except UnknownQueue:
            if sure and self.store.run(deletion.finish()):
                return  # an earlier deletion was cut off
            raise
        if not sure:
            now = self.stats()
            raise BadInput(
                f"delete would remove queue {self.name!r} with {now.backlog + now.delayed} messages that are not done; "
                "delete(sure=True) does"
            )
        self.store.run(deletion.delete(topic.described))
        self._topic = None
        topic.log.on_commit()

    def replay(self, start: datetime | int, end: datetime | int | None = None) -> Replay:
        """Deliver messages again, from a time or an offset up to before another (default: now), beside the live ones.

        An offset applies to every shard.  The shards' own positions do not move."""
        topic = self.topic()
        if isinstance(start, datetime) and isinstance(end, datetime) and start > end:
            raise BadInput(f"a replay from {start} to {end} is of nothing: it ends before it starts")
        if type(start) is int and type(end) is int and start > end:
            raise BadInput(f"a replay from offset {start} to {end} is of nothing: it ends before it starts")
        ends = topic.ends()
        first = topic._offsets(None, start)
        last = {q: next for q, (_, next) in ends.items()} if end is None else topic._offsets(None, end)
        ranges = {q: (max(first[q], ends[q][0]), min(last[q], ends[q][1])) for q in ends}
        number = self._supervise(replay.start(topic.id, ranges))
        count = sum(max(0, b - a) for a, b in ranges.values())
        return Replay(number, count, count)

    def replays(self) -> list[Replay]:
        """The replays of this queue that upkeep has not removed, and how far each has come."""
        return replay.states(self.store.run(replay.items(self.topic().id)))

    def stats(self) -> Stats:
        """Count the messages by state, for the queue and for each shard."""
        return self.store.run(stats(self._group(), self._wall()))

    def explain(self, shard: int, offset: int) -> explain.Story:
        """Tell one message's life: when it was pushed and by which program, its consumers, each error, its
        acknowledgement.  `print` the result."""
        return explain.story(self.topic(), self._group(), shard, offset)

    def upkeep(self) -> None:
        """Remove the marks of moved messages, expired dedup ids, finished replays and old diary entries."""
        topic = self.topic()
        self.store.run(delayed.sweep(topic.id, int(self._wall() * 1000)))
        self.store.run(dedup.sweep(topic.log))
        self.store.run(replay.remove(topic.id, only_done=True))
        self.store.run(diary.sweep(topic.id, {q: floor for q, (floor, _) in topic.ends().items()}))

    # -- dead letters
    def dead(self, start: int = 0) -> Iterator[DeadLetter]:
        """Return the dead letters, oldest first, beginning with number `start`."""
        found = self.store.run(catalog.find(dead_letters.topic_name(self.name)))
        if found is None:
            return iter(())
        topic, again = Topic(self.store, found), self.store.run(dead_letters.requeued(found.id))
        floor, end = topic.ends()[0]
        return dead_letters.letters(self.name, topic.records(0, min(max(start, floor), end)), again)

    def dead_numbers(self) -> DeadNumbers:
        """Return the range of the dead letters' numbers, and how many were not put back; reads no letter."""
        found = self.store.run(catalog.find(dead_letters.topic_name(self.name)))
        if found is None:
            return DeadNumbers(0, 0, 0)
        again = self.store.run(dead_letters.requeued(found.id))
        floor, end = Topic(self.store, found).ends()[0]
        return DeadNumbers(floor, end, end - floor - sum(floor <= number < end for number in again))

    def requeue(self, *numbers: int) -> int:
        """Put dead letters back into the queue: those with these numbers, or all that were not put back yet.  Returns
        how many.

        The push and the mark that says it happened are one transaction.  Many letters take several such transactions.
        """
        self.topic()
        if numbers:
            there = {one.number for one in self.dead(min(numbers)) if not one.requeued}
            if missing := sorted(set(numbers) - there):
                raise BadInput(f"queue {self.name!r} has no dead letters {missing} that could be put back")
        end = self.dead_numbers().end  # a message that dies again meanwhile is not put back again
        before = takewhile(lambda one: one.number < end, self.dead(min(numbers, default=0)))
        chosen = (one for one in before if not one.requeued and (not numbers or one.number in numbers))
        return sum(self._put_back(some) for some in _portions(chosen))

    def _put_back(self, letters: Sequence[DeadLetter]) -> int:
        """Push some dead letters again and mark them, in one transaction."""
        topic, now = self.topic(), int(self._wall() * 1000)
        found = self.store.run(catalog.describe(dead_letters.topic_name(self.name)))
        log = topic.log
        batch = CommitBatch(topic.name, log.partitions, 1 << 30, log.next_turn(), partitioner=log.partitioner)
        pushing.add(batch, [_again(one) for one in letters], now, signature("requeue"))
        placed = self.store.run(place(topic.log, batch.buffer.encode(topic.settings.compression)))
        marks = Requeue(found.id, [one.number for one in letters])
        self.store.run(marks.prepare())
        self.store.run(commit([placed], others=marks))
        return len(letters)

    # -- asyncio
    @property
    def aio(self) -> AsyncQueue:
        """The same queue for asyncio."""
        from tailrace.queue.aio import AsyncQueue

        return AsyncQueue(self)

    def _group(self) -> Group:
        topic = self.topic()
        return Group(GROUP, topic.log, topic.partitions)

    def _supervise(self, steps: Steps[T]) -> T:
        result = self.store.run(steps)
        self.topic().log.on_commit()  # workers of this process look at once
        return result


def _portions(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Split dead letters into portions for one transaction each: up to 50 letters, or some 4 MiB."""
    some: list[DeadLetter] = []
    for one in letters:
        some.append(one)
        if len(some) == 50 or sum(len(each.message) for each in some) >= 4 << 20:
            yield some
            some = []
    if some:
        yield some


def _again(letter: DeadLetter) -> Ready:
    from tailrace.queue.envelope import CODED, RAW

    return Ready(letter.message, CODED if letter.coded else RAW, letter.shard_key, None, None)


def names(store: Store) -> list[str]:
    """The names of a home's queues."""
    topics = store.run(catalog.ids("$Topics"))
    listed = store.run(catalog.ids("$Queues"))
    return sorted(name for name, id in listed.items() if topics.get(name) == id)
