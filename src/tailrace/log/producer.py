"""Producers: records in, acknowledgements out, one group commit after the other.

A commit begins at once when none is under way, else when that one returns, or at 4 MiB.  A thread that waits for its
record commits it itself, with what other threads have sent by then; else the producer's own thread does.  While one
chunk is committed the next are encoded and put.  Whoever fills a chunk encodes it: a thread that sends without a pause
would not let another one at the interpreter.  Chunks are committed in the order they were filled, so records of one
producer keep their order in each partition.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

from tailrace.errors import BadSetting, Broken, Closed, OutcomeUnknown, TimedOut
from tailrace.log.append import Appended, Log, Placed, commit, place
from tailrace.log.batch import Ack, Batch, BatchAck
from tailrace.log.buffer import Headers
from tailrace.log.catalog import Described
from tailrace.log.chunk import Chunk
from tailrace.log.flight import Flight
from tailrace.log.given import CHUNK_BYTES, Records, pieces, rows
from tailrace.log.linger import Linger
from tailrace.log.record import attributes, milliseconds
from tailrace.storage.calls import Store

TICK, TICKS = 0.005, 10
"""How often, and how long, the producer's thread looks for work by itself after another thread has committed."""


class Producer:
    """Appends records to a topic, from any thread.  Use it in a `with` block, or close it.

    `linger` is how long to wait for company before a commit; `max_bytes` bounds what is buffered and in
    flight: `send` waits when that is reached.  A failed commit fails everything sent before the failure was seen; the
    next `flush` or `close` raises it too, unless each acknowledgement has.  The producer goes on with what is sent
    after it, except when the outcome is unknown: then order could break, so it closes."""

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
        self._linger, self._max_bytes = linger or Linger(), max_bytes
        self._lock = threading.Lock()
        self._work, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self._outstanding = self._batches = 0
        self._open, self._full = self._batch(), deque[Batch]()
        self._idle = self._closing = self._led = False
        self._ticks = 0
        self._failed: Exception | None = None
        self._lost = deque[Batch](maxlen=1000)
        self._waiting = deque[Flight]()
        self._putters, self._puts = ThreadPoolExecutor(puts, "tailrace-put"), puts
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
        with self._lock:
            if self._failed is not None or self._closing or self._outstanding >= self._max_bytes:
                self._wait_for_room()
            batch = self._open
            buffer = batch.buffer
            before = buffer.size
            row = buffer.add(key, value, stamp, headers, marks, partition)
            self._outstanding += buffer.size - before
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
        for batch in [rows(piece, stamp, limit) for piece in pieces(records)]:
            with self._lock:
                if self._failed is not None or self._closing or self._outstanding >= self._max_bytes:
                    self._wait_for_room()
                open = self._open
                before = open.buffer.size
                ack.parts += [(open, *place) for place in open.buffer.add_batch(batch, partition)]
                self._outstanding += open.buffer.size - before
                full = open.buffer.size >= CHUNK_BYTES
                self._took(full)
            if full:
                self._encode(open)
        return ack

    def _took(self, full: bool) -> None:
        """Wake the producer's thread, if there is work for it."""
        if full:
            self._close_batch()
        elif self._idle:
            self._idle = False
            self._work.notify()

    def _encode(self, batch: Batch) -> None:
        with suppress(Exception):  # the producer's thread meets it too, and fails the batch
            batch.encode(self._topic.settings.compression)

    def _wait_for_room(self) -> None:
        while True:
            if self._failed is not None:
                raise Closed(f"this producer of {self._log.name!r} has failed: {self._failed}") from self._failed
            if self._closing:
                raise Closed(f"this producer of {self._log.name!r} is closed")
            if self._outstanding < self._max_bytes:
                return
            if self._linger.seconds and self._open.buffer.count:
                self._close_batch()
            self._room.wait()

    def _batch(self) -> Batch:
        self._batches += 1
        limit = self._topic.settings.max_record_bytes
        return Batch(self._log.name, self._log.partitions, limit, self._batches, self._lead)

    def _close_batch(self) -> None:
        self._linger.gathered(self._open.buffer.size, time.monotonic())
        self._full.append(self._open)
        self._open = self._batch()
        self._work.notify()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is durable; raises if any of it could not be made so, and nobody knows."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            if self._open.buffer.count:
                self._close_batch()
            pending = [*(flight.batch for flight in self._waiting), *self._full]
        for batch in pending:
            if not batch.settle(None if end is None else end - time.monotonic()):
                raise TimedOut(f"records sent to {self._log.name!r} are not yet durable after {timeout} s")
        self._say(pending)

    def close(self) -> None:
        """Flush, and stop.  Raises what a flush would raise."""
        with self._lock:
            if self._open.buffer.count:
                self._close_batch()
            self._closing = True
            self._work.notify()
            self._room.notify_all()
        self._thread.join()
        self._putters.shutdown()
        self._say([])

    def _say(self, pending: list[Batch]) -> None:
        with self._lock:
            unsaid = [batch for batch in (*self._lost, *pending) if batch.unsaid]
            self._lost.clear()
        for batch in unsaid:
            batch.tell(self, batch.records)
        if unsaid:
            unsaid[0].wait()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- committing, by a thread that waits for it
    def _lead(self, batch: Batch, leads: bool) -> None:
        """Commit the open batch in this thread, which waits for it and `leads`, if nobody commits: so nothing is handed
        over.  In the cloud the producer's own does, which looks again at how long to linger.

        If this thread is interrupted (Ctrl-C), the producer's own goes on where it was."""
        leading = False
        try:
            with self._lock:
                busy = self._led or self._full or self._waiting or self._failed is not None or self._linger.seconds
                if busy or batch is not self._open or not leads or not self._is_small():
                    if self._linger.seconds and batch is self._open:
                        self._work.notify()
                    return
                leading = self._led = True
                self._waiting.append(Flight(batch))
                self._open = self._batch()
            self._finish()
        finally:
            if leading:
                self._hand_over()

    def _is_small(self) -> bool:
        return self._open.buffer.size <= self._log.inline_bytes

    def _hand_over(self) -> None:
        """Have what came meanwhile committed by another thread that waits for it, else by the producer's own."""
        with self._lock:
            self._led, self._ticks = False, TICKS
            called = bool(self._open.buffer.count) and self._is_small() and self._open.call()
            if self._waiting or self._full or self._closing or (self._open.buffer.count and not called):
                self._work.notify()

    # -- committing, in the producer's own thread
    def _run(self) -> None:
        try:
            while True:
                flight = self._next()
                if flight is not None:
                    self._start(flight)
                elif not self._waiting:
                    return
                if flight is None or len(self._waiting) >= self._puts or not self._full:
                    self._finish()
        except Exception as error:  # whatever it is, nobody may be left waiting
            self._failed = error
            self._fail(error)

    def _next(self) -> Flight | None:
        """The next batch to put; None if there is none and one under way should be finished, or it is time to end."""
        with self._lock:
            while True:
                if self._led:
                    self._work.wait(TICK)
                    continue
                left = self._left()
                if left == 0 and not self._full and not self._waiting:
                    self._close_batch()
                if self._full:
                    self._waiting.append(Flight(self._full.popleft()))
                    return self._waiting[-1]
                if self._waiting or (self._closing and left is None):
                    return None
                self._sleep(left)

    def _sleep(self, left: float | None) -> None:
        """Wait for work.  Where threads commit for themselves, waking this one for each record would cost as much as
        the commit: for a while it looks for itself."""
        if left is None and self._ticks:
            self._ticks -= 1
            self._work.wait(TICK)
        else:
            self._idle = left is None
            self._work.wait(left)
            self._idle = False

    def _left(self) -> float | None:
        """Seconds until what is buffered should be committed; None if nothing is."""
        if not self._open.buffer.count:
            return None
        if self._full or self._waiting or self._closing or not self._linger.seconds:
            return 0.0
        now = time.monotonic()
        self._open.began = self._open.began or now
        return self._linger.left(now - self._open.began, waited=self._open.waited)

    # -- committing, by whoever does
    def _start(self, flight: Flight) -> None:
        """Encode a batch, and put its bytes: here when they go with the head, else beside the commits."""
        try:
            chunk = flight.batch.encode(self._topic.settings.compression)
            if chunk.size <= self._log.inline_bytes and self._log.joins_inline:
                flight.placed = self._place(chunk)
            else:
                flight.put = self._putters.submit(self._place, chunk)
        except Exception as error:
            flight.error = error

    def _place(self, chunk: Chunk) -> Placed:
        return self._store.run(place(self._log, chunk))

    def _finish(self) -> None:
        """Commit the oldest batch under way, and acknowledge it."""
        flight = self._waiting[0]
        try:
            if not flight.started:
                self._start(flight)
            appended = self._store.run(commit([flight.stored()]))[0]
        except Exception as error:
            self._fail(error)
            return
        self._done(flight.batch, appended, None)

    def _done(self, batch: Batch, appended: Appended | None, error: Exception | None) -> None:
        batch.finish(appended, error)
        with self._lock:
            self._waiting.popleft()
            self._outstanding -= batch.size
            self._room.notify_all()

    def _fail(self, error: Exception) -> None:
        """Fail what was sent so far, in order: a later chunk must not be in the log where an earlier one is not."""
        with self._lock:
            if isinstance(error, (OutcomeUnknown, Broken)):
                self._failed = error
            self._full.append(self._open)
            self._open = self._batch()
            while self._full:
                self._waiting.append(Flight(self._full.popleft()))
        while self._waiting:
            batch = self._waiting[0].batch
            self._done(batch, None, error)
            with self._lock:
                self._lost.append(batch)
