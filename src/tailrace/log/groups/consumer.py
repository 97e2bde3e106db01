"""Consumers: records of a topic for a group of readers that share it, each record handled by one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from tailrace.coordination.lease import BeatThread, new_number
from tailrace.coordination.watch import Wait, block, watch
from tailrace.errors import Closed, Throttled, TimedOut, Unavailable
from tailrace.log.catalog import check_name
from tailrace.log.groups import lag as groupstate
from tailrace.log.groups.group import Group
from tailrace.log.groups.lag import Lag
from tailrace.log.groups.member import PartitionMember
from tailrace.log.groups.prefetch import ConsumerSettings, Inbox
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Record
from tailrace.log.topic import Topic, as_arrow, as_records
from tailrace.storage import forks
from tailrace.storage.calls import Store

RETRIED_ERRORS = (Throttled, TimedOut, Unavailable)
"""Errors after which the background thread goes on: it tries leases and positions again in the next round."""


class Ran(NamedTuple):
    """What a call of `Consumer.run` did.  `caught_up` is False if time ran out first."""

    records: int
    caught_up: bool
    seconds: float


def new_member(topic: Topic, group: str, settings: ConsumerSettings, wall: Callable[[], float]) -> PartitionMember:
    """Make the member of a consumer group that a consumer drives; it has not joined yet."""
    shared = Group(check_name("group", group), topic.log, topic.partitions)
    return PartitionMember(shared, new_number(), name=settings.member, ttl=settings.ttl, wall=wall)


class Consumer:
    """A member of a consumer group.  Iterating yields records as they come, for ever or for `max_seconds`.

        with topic.consumer("billing") as consumer:
            for record in consumer:
                ...

    A record counts as handled when the loop asks for the next one, and is committed within `commit_interval`, or on
    close: after a crash, the member that takes over handles again what was not committed.  So the record at which a
    loop is left comes again later, unless `commit` was called.  Without `with`, leaving the loop closes the consumer.
    A background thread fetches records, sends beats, shares out the partitions and commits; only one thread may
    iterate."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        group: str,
        settings: ConsumerSettings,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._topic, self._max_seconds, self._wall = store, topic, settings.max_seconds, wall
        self._member = new_member(topic, group, settings, wall)
        self._ready, self._due, self._more = threading.Event(), threading.Event(), threading.Event()
        self._inbox = Inbox(self._member, settings, self._ready, self._due, self._more)
        self._protocol = threading.Lock()
        self._closing, self._ending = threading.Event(), threading.Lock()
        self._entered = self._left = False
        forks.watch(self)
        store.run(self._member.join(settings.start))
        self._beating = BeatThread(store, self._member.beat, settings.ttl / 3)
        self._threads = [
            threading.Thread(target=work, name=f"tailrace-{what}-{group}", daemon=True)
            for what, work in (("keep", self._keep), ("fetch", self._fetch))
        ]
        for thread in self._threads:
            thread.start()

    def left_behind(self) -> None:
        """Stops handing out records: this is a forked child's copy, and the records belong to its parent."""
        self._inbox.interrupted = True

    # -- handing out
    def __iter__(self) -> Iterator[Record]:
        inbox, deadline = self._inbox, self._deadline(self._max_seconds)
        try:
            while (fetched := self._next(deadline)) is not None:
                for record in as_records(self._topic.name, fetched):
                    inbox.current = record
                    yield record
                    if inbox.interrupted or self._late(deadline):
                        break
        finally:
            if not self._entered:
                self.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches as they come, with the columns of `topic.read`; one counts as handled when the loop asks for
        the next."""
        deadline = self._deadline(self._max_seconds)
        try:
            while (fetched := self._next(deadline)) is not None:
                self._inbox.current = fetched
                yield as_arrow(fetched)
        finally:
            if not self._entered:
                self.close()

    def run(
        self,
        handler: Callable[[Record], object],
        *,
        max_seconds: float | None = None,
        on_unfinished: Callable[[], object] | None = None,
    ) -> Ran:
        """Handle records until all current ones are handled or the time is up, and commit them.

        If the time is up first, it calls `on_unfinished`, which should start another consumer, now or later."""
        began, records = self._store.clock(), 0
        deadline = self._deadline(self._max_seconds if max_seconds is None else max_seconds)
        while (fetched := self._next(deadline, until_caught_up=True)) is not None:
            for record in as_records(self._topic.name, fetched):
                self._inbox.current = record
                handler(record)
                records += 1
                if self._inbox.interrupted or self._late(deadline):
                    break
        caught_up = self.caught_up
        with self._protocol:
            self._store.run(self._inbox.commit(self._inbox.positions()))
        if not caught_up and on_unfinished is not None:
            on_unfinished()
        return Ran(records, caught_up, self._store.clock() - began)

    def _deadline(self, seconds: float | None) -> float | None:
        self._store.check()
        if self._closing.is_set():
            raise Closed(f"this consumer of {self._topic.name!r} is closed; `with` keeps it open between loops")
        return None if seconds is None else self._store.clock() + seconds

    def _late(self, deadline: float | None) -> bool:
        return deadline is not None and self._store.clock() >= deadline

    def _next(self, deadline: float | None, until_caught_up: bool = False) -> Fetched | None:
        """The next records to hand out; None when it is time to stop."""
        self._store.check()
        inbox = self._inbox
        inbox.finish()
        while True:
            self._ready.clear()
            if self._closing.is_set() or self._late(deadline):
                return None
            if (fetched := inbox.take()) is not None:
                return fetched
            if inbox.error is not None:
                raise inbox.error
            if until_caught_up and inbox.caught_up:
                return None
            self._ready.wait(None if deadline is None else max(0.0, deadline - self._store.clock()))

    # -- in the background
    def _keep(self) -> None:
        while True:
            self._due.clear()
            if self._closing.is_set():
                return
            try:
                with self._protocol:
                    pause = self._store.run(self._inbox.keep())
            except RETRIED_ERRORS:
                pause = self._member.ttl / 10
            except Exception as error:
                self._inbox.fail(error)
                return
            self._due.wait(pause)

    def _fetch(self) -> None:
        watched = watch(self._store)
        stop = watched.listen(self._topic.id, self._more.set)
        wait, found = Wait(watched, self._more), False
        try:
            while True:
                wait.begin(found)
                if self._closing.is_set():
                    return
                if self._inbox.full:
                    self._more.wait()
                else:
                    found = self._store.run(self._inbox.fetch())
                    if not found:
                        block(wait, self._more)
        except Exception as error:
            self._inbox.fail(error)
        finally:
            stop()

    # -- positions
    @property
    def partitions(self) -> list[int]:
        """The partitions that this member holds now."""
        self._store.check()
        return sorted(self._inbox.positions())

    @property
    def caught_up(self) -> bool:
        """Whether everything in its partitions, as of the last look at the topic's end, has been handed out."""
        return self._inbox.caught_up

    def lag(self) -> Lag:
        """How far it is behind in its partitions: records not handled yet, and the age of the oldest in seconds."""
        positions = self._inbox.positions() if not self._store.forked else {}
        return self._store.run(groupstate.lag(self._topic.log, positions, self._wall()))

    def commit(self) -> None:
        """Commit everything handed out so far, including the current record; durable when this returns.

        `Fenced` if another member has taken over a partition meanwhile: the other partitions are committed, and
        this member keeps them."""
        self._deadline(None)
        with self._protocol:
            fenced = self._store.run(self._inbox.commit())
        if fenced:
            raise next(iter(fenced.values()))

    # -- the end
    def close(self) -> None:
        """Commit what was handled, give the partitions back and leave the group.  Safe from any thread.

        A forked child's copy does nothing: the member belongs to its parent."""
        if self._store.forked:
            return
        self._closing.set()
        for event in (self._ready, self._due, self._more):
            event.set()
        with self._ending:
            if self._left:
                return
            self._left = True
            for thread in self._threads:
                thread.join()
            self._beating.stop()
            self._store.run(self._inbox.leave())

    def __enter__(self) -> Consumer:
        self._entered = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
