"""Producer: takes records from any thread and commits them in groups.

`group_commit` decides what to commit when; the threads here carry it out.  A commit begins at once when none is under
way, else when that one returns, or at 4 MiB.  A thread that waits for its record commits it itself, together with what
other threads have sent by then; otherwise the producer's own thread commits.  While one chunk is committed the next are
encoded and put.  The thread that fills a chunk encodes it: a thread that sends without a pause would keep other threads
from the interpreter.  Chunks are committed in the order they were filled, so records of one producer keep their order
in each partition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias

from tailrace.errors import TimedOut
from tailrace.log.catalog import Described
from tailrace.log.format.chunk import Chunk
from tailrace.log.record import attributes, milliseconds
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.acknowledgement import Ack, BatchAck, CommitBatch, unsettled
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Headers
from tailrace.log.write.group_commit import (
    DEFAULTS,
    CommitOldest,
    Flight,
    GroupCommit,
    GroupSettings,
    PutBytes,
    Step,
    WaitForWork,
)
from tailrace.log.write.input import CHUNK_BYTES, Records, pieces, rows
from tailrace.log.write.placement import Placed, place
from tailrace.storage import forks
from tailrace.storage.calls import Store

TICK_SECONDS, TICKS = 0.005, 10
"""How often, and how many times, the producer's thread checks for work after another thread has committed."""

BytesPut: TypeAlias = Placed | Future[Placed] | Exception
"""Where the bytes of a batch are stored, or the thread that stores them, or the error that prevented it."""


class Producer:
    """Appends records to a topic, from any thread.  Use it in a `with` block, or close it.

    `send` waits while `max_bytes` are buffered and in flight.  A failed commit fails everything sent before the failure
    was seen; the next `flush` or `close` raises the error too, unless each acknowledgement has.  The producer goes on
    with what is sent after it, except when the outcome is unknown: then order could break, so it closes."""

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
        self._lock = threading.Lock()
        self._work, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self._group: GroupCommit[CommitBatch, BytesPut] = GroupCommit(log.name, settings, self._batch)
        self._idle = self._led = False
        self._ticks = 0
        self._putters = ThreadPoolExecutor(settings.max_puts, "tailrace-put")
        forks.watch(self)
        self._thread = threading.Thread(target=self._run, name=f"tailrace-{described.name}", daemon=True)
        self._thread.start()

    # -- sending
    def send(
        self,
        key: bytes | None = None,
        value: bytes | None = None,
        *,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        mode: int = 0,
        op: int = 0,
        partition: int | None = None,
    ) -> Ack:
        """Take one record; the acknowledgement resolves to its offset once it is durable."""
        stamp = int(self._wall() * 1000) if timestamp is None else milliseconds(timestamp)
        marks = attributes(mode, op) if mode or op else 0
        group = self._group
        with self._lock:
            if group.outstanding >= group.limit:
                self._wait_for_room()
            batch = group.open
            buffer = batch.buffer
            before = buffer.size
            row = buffer.add(key, value, stamp, headers, marks, partition)
            group.outstanding += buffer.size - before
            full = buffer.size >= CHUNK_BYTES
            if full or self._idle:
                self._took(full)
        if full:
            self._encode(batch)
        return Ack(batch, row)

    def send_batch(self, records: Records, *, partition: int | None = None) -> BatchAck:
        """Take many records at once: an Arrow table or batch (columns value, and perhaps key, timestamp, attributes,
        headers), or (key, value) pairs."""
        ack = BatchAck()
        stamp, limit = int(self._wall() * 1000), self._topic.settings.max_record_bytes
        group = self._group
        for data in [rows(piece, stamp, limit) for piece in pieces(records)]:
            with self._lock:
                if group.outstanding >= group.limit:
                    self._wait_for_room()
                batch = group.open
                before = batch.buffer.size
                ack.parts += [(batch, *at) for at in batch.buffer.add_batch(data, partition)]
                full = group.took(batch.buffer.size - before)
                self._took(full)
            if full:
                self._encode(batch)
        return ack

    def _took(self, full: bool) -> None:
        """Wakes the producer's thread if there is work for it."""
        if full:
            self._group.seal(time.monotonic())
        if full or self._idle:
            self._idle = False
            self._work.notify()

    def _encode(self, batch: CommitBatch) -> None:
        with suppress(Exception):  # the producer's thread meets the same error, and fails the batch
            batch.encode(self._topic.settings.compression)

    def _wait_for_room(self) -> None:
        self._store.check()
        while not self._group.has_room(time.monotonic()):
            self._work.notify()
            self._room.wait()

    def _batch(self) -> CommitBatch:
        limit = self._topic.settings.max_record_bytes
        log = self._log
        return CommitBatch(log.name, log.partitions, limit, log.next_turn(), self._lead, partitioner=log.partitioner)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is durable; raises a failure that no acknowledgement has raised yet."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._group.seal(time.monotonic())
            self._work.notify()
            pending = self._group.pending()
        for batch in pending:
            if not batch.settle(None if end is None else end - time.monotonic()):
                raise TimedOut(f"records sent to {self._log.name!r} are not yet durable after {timeout} s")
        self._report(pending)

    def close(self) -> None:
        """Flush, and stop.  Raises what a flush would raise, and an error if anything that was sent is not settled."""
        with self._lock:
            self._group.close(time.monotonic())
            self._work.notify()
            self._room.notify_all()
        if not self._store.forked:
            self._thread.join()
            self._putters.shutdown()
        self._report([])
        if left := sum(batch.buffer.count for batch in self._group.pending()):
            raise unsettled(self._log.name, left)

    def left_behind(self) -> None:
        """Fails everything that is not settled: this is a forked child's copy, and the parent commits the records."""
        self._lock = threading.Lock()
        self._work, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self._led = False
        refusal = forks.refusal()
        self._group.refuse(refusal)
        self._fail(refusal)

    def _report(self, pending: list[CommitBatch]) -> None:
        with self._lock:
            unreported = self._group.take_unreported(pending)
        if unreported:
            unreported[0].wait()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- committing, by a thread that waits for it
    def _lead(self, batch: CommitBatch, leads: bool) -> None:
        """Commit the open batch in this thread, which waits for it and `leads`, unless another thread is committing.
        So no thread has to wake another.  In the cloud the producer's own thread commits: it decides again how long to
        linger.

        If this thread is interrupted (Ctrl-C), the producer's own thread continues where it stopped."""
        if self._store.forked:
            batch.finish(None, forks.refusal())
            return
        leading = False
        try:
            with self._lock:
                group = self._group
                busy = self._led or not group.is_idle or group.linger.seconds
                if busy or batch is not group.open or not leads or not self._is_small():
                    if group.linger.seconds and batch is group.open:
                        self._work.notify()
                    return
                leading = self._led = True
                flight = group.start_open()
            self._commit(flight)
        finally:
            if leading:
                self._hand_over()

    def _is_small(self) -> bool:
        return self._group.open.buffer.size <= self._log.inline_bytes

    def _hand_over(self) -> None:
        """Leave the records that came meanwhile to another thread that waits for them, else to the producer's own
        thread."""
        with self._lock:
            self._led, self._ticks = False, TICKS
            group = self._group
            called = bool(group.open.buffer.count) and self._is_small() and group.open.call()
            if not group.is_idle or group.closing or (group.open.buffer.count and not called):
                self._work.notify()

    # -- committing, in the producer's own thread
    def _run(self) -> None:
        try:
            while True:
                step = self._next_step()
                if isinstance(step, PutBytes):
                    self._put(step.flight)
                elif isinstance(step, CommitOldest):
                    self._commit(step.flight)
                else:
                    return
        except Exception as error:  # whatever the error, no sender may wait for ever
            self._group.refuse(error)
            self._fail(error)

    def _next_step(self) -> Step[CommitBatch, BytesPut]:
        with self._lock:
            while True:
                if self._led:
                    self._work.wait(TICK_SECONDS)
                    continue
                step = self._group.next_step(time.monotonic())
                if not isinstance(step, WaitForWork):
                    return step
                self._sleep(step.seconds)

    def _sleep(self, seconds: float | None) -> None:
        """Wait for work.  Where threads commit for themselves, waking this thread for each record would take as long as
        the commit, so for a while it polls instead."""
        if seconds is None and self._ticks:
            self._ticks -= 1
            self._work.wait(TICK_SECONDS)
        else:
            self._idle = seconds is None
            self._work.wait(seconds)
            self._idle = False

    # -- committing, in the producer's thread or a sender's
    def _put(self, flight: Flight[CommitBatch, BytesPut]) -> None:
        """Encode a batch, and store its bytes: in this thread if they are written with the head, else in another
        thread."""
        try:
            chunk = flight.batch.encode(self._topic.settings.compression)
            if chunk.size <= self._log.inline_bytes and self._log.joins_inline:
                flight.put = self._place(chunk)
            else:
                flight.put = self._putters.submit(self._place, chunk)
        except Exception as error:
            flight.put = error

    def _place(self, chunk: Chunk) -> Placed:
        return self._store.run(place(self._log, chunk))

    def _commit(self, flight: Flight[CommitBatch, BytesPut]) -> None:
        """Append the oldest batch in flight, and acknowledge it."""
        try:
            if flight.put is None:
                self._put(flight)
            appended = self._store.run(commit([_placed(flight.put)]))[0]
        except Exception as error:
            self._fail(error)
            return
        flight.batch.finish(appended, None)
        self._settled()

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._group.fail(error, time.monotonic())
        while self._group.in_flight:
            self._group.in_flight[0].batch.finish(None, error)
            self._settled()

    def _settled(self) -> None:
        with self._lock:
            self._group.settled()
            self._room.notify_all()


def _placed(put: BytesPut | None) -> Placed:
    """Where the bytes of a batch are, once they are stored; raises the error if they could not be."""
    assert put is not None, "no thread puts it"
    if isinstance(put, Exception):
        raise put
    return put if isinstance(put, Placed) else put.result()
