"""AsyncProducer: takes records in one event loop and commits them in groups; one task drives `group_commit`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from tailrace.log.catalog import Described
from tailrace.log.record import Partitioner, attributes, milliseconds
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.acknowledgement import BatchAck, CommitBatch, OffsetSpan, unsettled
from tailrace.log.write.append import Appended, commit
from tailrace.log.write.buffer import Headers
from tailrace.log.write.group_commit import (
    DEFAULTS,
    CommitOldest,
    Flight,
    GroupCommit,
    GroupSettings,
    PutBytes,
    WaitForWork,
)
from tailrace.log.write.input import Records, pieces, rows
from tailrace.log.write.placement import Placed, place
from tailrace.storage import forks
from tailrace.storage.calls import Store


class AsyncBatch(CommitBatch):
    """Records that are committed together.  The event `settled` is set when they are committed or have failed,
    `hurried` when a task begins to wait for them."""

    __slots__ = ("hurried", "settled")

    def __init__(
        self,
        topic: str,
        partitions: int,
        max_record_bytes: int,
        number: int = 0,
        hurried: asyncio.Event | None = None,
        *,
        partitioner: Partitioner = "sha256",
    ) -> None:
        super().__init__(topic, partitions, max_record_bytes, number, partitioner=partitioner)
        self.settled, self.hurried = asyncio.Event(), hurried

    def settling(self) -> Generator[Any, None, object]:
        """Wait until the batch is committed or has failed."""
        if not self.waited and self.hurried is not None:
            self.waited = True
            self.hurried.set()
        return self.settled.wait().__await__()

    def finish(self, appended: Appended | None, error: Exception | None) -> None:
        """Wake every task that waits."""
        super().finish(appended, error)
        self.settled.set()


class AsyncAck(msgspec.Struct, gc=False):
    """One record's acknowledgement; awaiting it gives its offset."""

    batch: AsyncBatch
    row: int

    def __await__(self) -> Generator[Any, None, int]:
        yield from self.batch.settling()
        self.batch.tell(self.row)
        self.batch.wait()
        return self.batch.offset(*self.batch.landed(*self.batch.buffer.place(self.row)))

    @property
    def partition(self) -> int:
        """The partition it went to, once it is durable."""
        return self.batch.landed(*self.batch.buffer.place(self.row))[0]

    def done(self) -> bool:
        """Whether awaiting it would answer at once."""
        return self.batch.done


class AsyncBatchAck(BatchAck):
    """The acknowledgement of many records; awaiting it gives their spans of offsets."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[OffsetSpan]]:
        for batch, *_ in self.parts:
            assert isinstance(batch, AsyncBatch)
            yield from batch.settling()
        return self.result()


class AsyncProducer:
    """Appends records to a topic, from one event loop.  Use it in an `async with` block, or close it.

    `send` waits while `max_bytes` are buffered or in flight.  Failures are as in `Producer`."""

    def __init__(
        self,
        store: Store,
        log: TopicLog,
        described: Described,
        settings: GroupSettings = DEFAULTS,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._log, self._topic, self._wall = store, log, described, wall
        self._work, self._room = asyncio.Event(), asyncio.Event()
        self._group: GroupCommit[AsyncBatch, asyncio.Task[Placed]] = GroupCommit(log.name, settings, self._batch)
        self._task: asyncio.Task[None] | None = None
        forks.watch(self)

    def left_behind(self) -> None:
        """Fails everything that is not settled: this is a forked child's copy, and the parent commits the records."""
        self._room, self._work = asyncio.Event(), asyncio.Event()  # the former ones may belong to the parent's loop
        refusal = forks.refusal()
        self._group.refuse(refusal)
        self._group.fail(refusal, time.monotonic())
        for batch in self._group.pending():
            batch.settled = asyncio.Event()
        self._fail_in_flight(refusal)

    # -- sending
    async def send(
        self,
        key: bytes | None = None,
        value: bytes | None = None,
        *,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        mode: int = 0,
        op: int = 0,
        partition: int | None = None,
    ) -> AsyncAck:
        """Take one record; awaiting the acknowledgement gives its offset, once it is durable."""
        stamp = int(self._wall() * 1000) if timestamp is None else milliseconds(timestamp)
        group = self._group
        if group.outstanding >= group.limit or self._task is None:
            await self._wait_for_room()
        batch = group.open
        before = batch.buffer.size
        row = batch.buffer.add(key, value, stamp, headers, attributes(mode, op) if mode or op else 0, partition)
        self._took(batch.buffer.size - before)
        return AsyncAck(batch, row)

    async def send_batch(self, records: Records, *, partition: int | None = None) -> AsyncBatchAck:
        """Take many records at once: an Arrow table or batch, or (key, value) pairs; see `Producer.send_batch`."""
        ack = AsyncBatchAck()
        stamp, limit = int(self._wall() * 1000), self._topic.settings.max_record_bytes
        group = self._group
        for data in [rows(piece, stamp, limit) for piece in pieces(records)]:
            if group.outstanding >= group.limit or self._task is None:
                await self._wait_for_room()
            batch = group.open
            before = batch.buffer.size
            ack.parts += [(batch, *at) for at in batch.buffer.add_batch(data, partition)]
            self._took(batch.buffer.size - before)
        return ack

    async def _wait_for_room(self) -> None:
        """Wait until `send` may take a record, and start the task that commits."""
        self._store.check()
        while not self._group.has_room(time.monotonic()):
            self._work.set()
            self._room.clear()
            await self._room.wait()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"tailrace-{self._log.name}")

    def _took(self, size: int) -> None:
        if not self._group.outstanding:
            self._work.set()
        if self._group.took(size):
            self._seal()

    def _batch(self) -> AsyncBatch:
        limit = self._topic.settings.max_record_bytes
        log = self._log
        return AsyncBatch(log.name, log.partitions, limit, log.next_turn(), self._work, partitioner=log.partitioner)

    def _seal(self) -> None:
        """Commit what is buffered without lingering."""
        self._group.seal(time.monotonic())
        self._work.set()

    async def flush(self) -> None:
        """Wait until everything sent so far is durable; raises a failure that no acknowledgement has raised yet."""
        self._seal()
        for batch in self._group.pending():
            await batch.settled.wait()
        self._report()

    def _report(self) -> None:
        if unreported := self._group.take_unreported():
            unreported[0].wait()

    async def close(self) -> None:
        """Flush, and stop.  Raises what a flush would raise, and an error if anything that was sent is not settled."""
        self._group.close(time.monotonic())
        self._work.set()
        self._room.set()
        if self._task is not None and not self._store.forked:
            await self._task
        self._report()
        if left := sum(batch.buffer.count for batch in self._group.pending()):
            raise unsettled(self._log.name, left)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- committing, in the producer's own task
    async def _run(self) -> None:
        while True:
            self._work.clear()
            step = self._group.next_step(time.monotonic())
            if isinstance(step, PutBytes):
                step.flight.put = asyncio.create_task(self._place(step.flight.batch))
            elif isinstance(step, CommitOldest):
                await self._commit(step.flight)
            elif isinstance(step, WaitForWork):
                with suppress(TimeoutError):
                    async with asyncio.timeout(step.seconds):
                        await self._work.wait()
            else:
                return

    async def _place(self, batch: AsyncBatch) -> Placed:
        chunk = await asyncio.to_thread(batch.encode, self._topic.settings.compression)
        return await self._store.arun(place(self._log, chunk))

    async def _commit(self, flight: Flight[AsyncBatch, asyncio.Task[Placed]]) -> None:
        """Append the oldest batch in flight, and acknowledge it."""
        assert flight.put is not None, "no task puts it"
        try:
            appended = (await self._store.arun(commit([await flight.put])))[0]
        except Exception as error:
            self._group.fail(error, time.monotonic())
            puts = [flight.put for flight in self._group.in_flight if flight.put is not None]
            self._fail_in_flight(error)
            await asyncio.gather(*puts, return_exceptions=True)
        else:
            flight.batch.finish(appended, None)
            self._settled()

    def _fail_in_flight(self, error: Exception) -> None:
        while self._group.in_flight:
            self._group.in_flight[0].batch.finish(None, error)
            self._settled()

    def _settled(self) -> None:
        self._group.settled()
        self._room.set()
