"""Consumers for asyncio: tasks drive the same members and inboxes as the threads of consumer.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pyarrow as pa

from tailrace.coordination.lease import BeatThread
from tailrace.coordination.watch import Wait, watch
from tailrace.errors import Closed
from tailrace.log.groups import lag as groupstate
from tailrace.log.groups.consumer import RETRIED_ERRORS, new_member
from tailrace.log.groups.lag import Lag
from tailrace.log.groups.prefetch import ConsumerSettings, Inbox
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Record
from tailrace.log.topic import Topic, as_arrow, as_records
from tailrace.storage import forks
from tailrace.storage.calls import Store


class AsyncConsumer:
    """A member of a consumer group: `async for record in consumer`, best within `async with`.  Records are handled and
    committed as `Consumer` says.  A thread sends the beats, so a handler that keeps the event loop busy does not cost
    the member its partitions."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        group: str,
        settings: ConsumerSettings,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._topic, self._settings, self._wall = store, topic, settings, wall
        self._member = new_member(topic, group, settings, wall)
        self._ready, self._due, self._more = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._inbox = Inbox(self._member, settings, self._ready, self._due, self._more)
        self._protocol = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._beating: BeatThread | None = None
        self._entered = self._closing = False
        forks.watch(self)

    def left_behind(self) -> None:
        """Stops handing out records: this is a forked child's copy, and the records belong to its parent."""
        self._inbox.interrupted = True

    async def _start(self) -> None:
        self._store.check()
        if self._closing:
            raise Closed(f"this consumer of {self._topic.name!r} is closed; `async with` keeps it open between loops")
        if not self._tasks:
            await self._store.arun(self._member.join(self._settings.start))
            self._beating = BeatThread(self._store, self._member.beat, self._settings.ttl / 3)
            self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._fetch())]

    # -- handing out
    async def __aiter__(self) -> AsyncIterator[Record]:
        await self._start()
        deadline = self._deadline()
        try:
            while (fetched := await self._next(deadline)) is not None:
                for record in as_records(self._topic.name, fetched):
                    self._inbox.current = record
                    yield record
                    if self._inbox.interrupted or self._late(deadline):
                        break
        finally:
            if not self._entered:
                await self.close()

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Record batches as they come, with the columns of `topic.read`."""
        await self._start()
        deadline = self._deadline()
        try:
            while (fetched := await self._next(deadline)) is not None:
                self._inbox.current = fetched
                yield as_arrow(fetched)
        finally:
            if not self._entered:
                await self.close()

    def _deadline(self) -> float | None:
        seconds = self._settings.max_seconds
        return None if seconds is None else self._store.clock() + seconds

    def _late(self, deadline: float | None) -> bool:
        return deadline is not None and self._store.clock() >= deadline

    async def _next(self, deadline: float | None) -> Fetched | None:
        """The next records to hand out; None when it is time to stop."""
        self._store.check()
        self._inbox.finish()
        while True:
            self._ready.clear()
            if self._closing or self._late(deadline):
                return None
            if (fetched := self._inbox.take()) is not None:
                return fetched
            if self._inbox.error is not None:
                raise self._inbox.error
            await _set(self._ready, None if deadline is None else deadline - self._store.clock())

    # -- in the background
    async def _keep(self) -> None:
        while True:
            self._due.clear()
            if self._closing:
                return
            try:
                async with self._protocol:
                    pause = await self._store.arun(self._inbox.keep())
            except RETRIED_ERRORS:
                pause = self._settings.ttl / 10
            except Exception as error:
                self._inbox.fail(error)
                return
            await _set(self._due, pause)

    async def _fetch(self) -> None:
        loop, watched = asyncio.get_running_loop(), watch(self._store)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop may have been closed
                loop.call_soon_threadsafe(self._more.set)

        stop = watched.listen(self._topic.id, wake)
        wait, found = Wait(watched, self._more), False
        try:
            while True:
                wait.begin(found)
                if self._closing:
                    return
                if self._inbox.full:
                    await self._more.wait()
                else:
                    found = await self._store.arun(self._inbox.fetch())
                    if not found:
                        await self._wait(wait)
        except Exception as error:
            self._inbox.fail(error)
        finally:
            stop()

    async def _wait(self, wait: Wait) -> None:
        for seconds in wait.pauses():
            if await _set(self._more, seconds):
                return

    # -- positions
    @property
    def partitions(self) -> list[int]:
        """The partitions that this member holds now."""
        return sorted(self._inbox.positions())

    @property
    def caught_up(self) -> bool:
        """Whether everything in its partitions, as of the last look at the topic's end, has been handed out."""
        return self._inbox.caught_up

    async def lag(self) -> Lag:
        """How far it is behind in its partitions: records not handled yet, and the age of the oldest in seconds."""
        return await self._store.arun(groupstate.lag(self._topic.log, self._inbox.positions(), self._wall()))

    async def commit(self) -> None:
        """Commit everything handed out so far, including the current record; durable when this returns.

        `Fenced` if another member has taken over a partition meanwhile: the other partitions are committed, and
        this member keeps them."""
        self._store.check()
        async with self._protocol:
            fenced = await self._store.arun(self._inbox.commit())
        if fenced:
            raise next(iter(fenced.values()))

    # -- the end
    async def close(self) -> None:
        """Commit what was handled, give the partitions back and leave the group.  Nothing more is handed out."""
        if self._closing or self._store.forked:
            return
        self._closing = True
        for event in (self._ready, self._due, self._more):
            event.set()
        await asyncio.gather(*self._tasks)
        if self._beating is not None:
            await asyncio.to_thread(self._beating.stop)
            await self._store.arun(self._inbox.leave())

    async def __aenter__(self) -> AsyncConsumer:
        self._entered = True
        await self._start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def _set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for a signal, at most `seconds`; returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
