"""Producers for asyncio: one group commit after the other, as in producer.py, in one task."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from tailrace.errors import BadSetting, Broken, Closed, OutcomeUnknown
from tailrace.log.append import Appended, Log, Placed, commit, place
from tailrace.log.batch import Batch, BatchAck, Span
from tailrace.log.buffer import Headers
from tailrace.log.catalog import Described
from tailrace.log.given import CHUNK_BYTES, Records, pieces, rows
from tailrace.log.linger import Linger
from tailrace.log.record import attributes, milliseconds
from tailrace.storage.calls import Store


class AsyncBatch(Batch):
    """Records that are committed together; `settled` is set when they are, or have failed, and `hurried` when somebody
    begins to wait for them."""

    __slots__ = ("hurried", "settled")

    def __init__(
        self, topic: str, partitions: int, max_record_bytes: int, number: int = 0, hurried: asyncio.Event | None = None
    ) -> None:
        super().__init__(topic, partitions, max_record_bytes, number)
        self.settled, self.hurried = asyncio.Event(), hurried

    def settling(self) -> Generator[Any, None, object]:
        """Wait for it."""
        if not self.waited and self.hurried is not None:
            self.waited = True
            self.hurried.set()
        return self.settled.wait().__await__()

    def finish(self, appended: Appended | None, error: Exception | None) -> None:
        """Tell everyone who waits."""
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

    def __await__(self) -> Generator[Any, None, list[Span]]:
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
        log: Log,
        described: Described,
        *,
        linger: Linger | None = None,
        max_bytes: int = 64 * 1024 * 1024,
        puts: int = 2,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if max_bytes < 1:
            raise BadSetting(f"a producer's max_bytes is at least 1, not {max_bytes}")
        self._store, self._log, self._topic, self._wall = store, log, described, wall
        self._linger, self._max_bytes, self._puts = linger or Linger(), max_bytes, puts
        self._outstanding = self._batches = 0
        self._work, self._room = asyncio.Event(), asyncio.Event()
        self._open, self._full = self._batch(), deque[AsyncBatch]()
        self._waiting: deque[tuple[AsyncBatch, asyncio.Task[Placed]]] = deque()
        self._closing = False
        self._failed: Exception | None = None
        self._lost = deque[AsyncBatch](maxlen=1000)
        self._task: asyncio.Task[None] | None = None

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
        batch = await self._roomy()
        before = batch.buffer.size
        row = batch.buffer.add(key, value, stamp, headers, attributes(mode, op) if mode or op else 0, partition)
        self._taken(batch.buffer.size - before)
        return AsyncAck(batch, row)

    async def send_batch(self, records: Records, *, partition: int | None = None) -> AsyncBatchAck:
        """Take many records at once: an Arrow table or batch, or (key, value) pairs; see `Producer.send_batch`."""
        ack = AsyncBatchAck()
        stamp, limit = int(self._wall() * 1000), self._topic.settings.max_record_bytes
        for data in [rows(piece, stamp, limit) for piece in pieces(records)]:
            batch = await self._roomy()
            before = batch.buffer.size
            ack.parts += [(batch, *at) for at in batch.buffer.add_batch(data, partition)]
            self._taken(batch.buffer.size - before)
        return ack

    async def _roomy(self) -> AsyncBatch:
        """The batch to add to, once there is room."""
        while self._outstanding >= self._max_bytes and not self._closing and self._failed is None:
            self._room.clear()
            await self._room.wait()
        if self._failed is not None:
            raise Closed(f"this producer of {self._log.name!r} has failed: {self._failed}") from self._failed
        if self._closing:
            raise Closed(f"this producer of {self._log.name!r} is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"tailrace-{self._log.name}")
        return self._open

    def _taken(self, size: int) -> None:
        if not self._outstanding:
            self._work.set()
        self._outstanding += size
        if self._open.buffer.size >= CHUNK_BYTES:
            self._close_batch()

    def _batch(self) -> AsyncBatch:
        self._batches += 1
        limit = self._topic.settings.max_record_bytes
        return AsyncBatch(self._log.name, self._log.partitions, limit, self._batches, self._work)

    def _close_batch(self) -> list[AsyncBatch]:
        """Let what is buffered be committed now; gives all that is not yet."""
        if self._open.buffer.count:
            self._linger.gathered(self._open.buffer.size, time.monotonic())
            self._full.append(self._open)
            self._open = self._batch()
        self._work.set()
        return [*(batch for batch, _ in self._waiting), *self._full]

    async def flush(self) -> None:
        """Wait until everything sent so far is durable; raises if any of it could not be made so, and nobody knows."""
        for batch in self._close_batch():
            await batch.settled.wait()
        self._say()

    def _say(self) -> None:
        unsaid = [batch for batch in self._lost if batch.unsaid]
        self._lost.clear()
        if unsaid:
            unsaid[0].wait()

    async def close(self) -> None:
        """Flush, and stop.  Raises what a flush would raise."""
        self._closing = True
        self._close_batch()
        self._room.set()
        if self._task is not None:
            await self._task
        self._say()

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- committing, in the producer's own task
    async def _run(self) -> None:
        while True:
            if not self._waiting and not self._full:
                await self._gather()
                self._close_batch()
            while self._full and len(self._waiting) < self._puts:
                batch = self._full.popleft()
                self._waiting.append((batch, asyncio.create_task(self._place(batch))))
            if self._waiting:
                await self._finish()
            elif self._closing:
                return

    async def _gather(self) -> None:
        """Wait for records, and a little for their company."""
        self._work.clear()
        if not self._outstanding and not self._closing:
            await self._work.wait()
        self._work.clear()
        began = time.monotonic()
        while self._linger.seconds and not self._full and not self._closing:
            left = self._linger.left(time.monotonic() - began, waited=self._open.waited)
            if not left:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._work.wait()
            self._work.clear()

    async def _place(self, batch: AsyncBatch) -> Placed:
        chunk = await asyncio.to_thread(batch.encode, self._topic.settings.compression)
        return await self._store.arun(place(self._log, chunk))

    async def _finish(self) -> None:
        """Commit the oldest put chunk, and acknowledge it."""
        batch, put = self._waiting[0]
        try:
            appended = (await self._store.arun(commit([await put])))[0]
        except Exception as error:
            await self._fail(error)
        else:
            self._waiting.popleft()
            self._done(batch, appended, None)

    def _done(self, batch: AsyncBatch, appended: Appended | None, error: Exception | None) -> None:
        self._outstanding -= batch.buffer.size
        self._room.set()
        batch.finish(appended, error)

    async def _fail(self, error: Exception) -> None:
        """Fail what was sent so far, in order: a later chunk must not be in the log where an earlier one is not."""
        if isinstance(error, (OutcomeUnknown, Broken)):
            self._failed = error
        doomed = self._close_batch()
        self._lost.extend(doomed)
        puts = [put for _, put in self._waiting]
        self._waiting.clear()
        self._full.clear()
        for batch in doomed:
            self._done(batch, None, error)
        await asyncio.gather(*puts, return_exceptions=True)
