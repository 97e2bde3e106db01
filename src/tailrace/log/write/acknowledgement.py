"""Acknowledgements: batches of records, and what a sender gets for each record.  They are light, because each record
has one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

import msgspec

from tailrace.errors import OutcomeUnknown, TimedOut
from tailrace.log.format.chunk import Chunk, Compression
from tailrace.log.record import Partitioner
from tailrace.log.write.append import Appended
from tailrace.log.write.buffer import Buffer


class OffsetSpan(NamedTuple):
    """Consecutive offsets of one partition."""

    partition: int
    offset: int
    records: int


class _Waiter:
    """A thread that waits for a batch, and whether it can lead: commit the batch itself instead of leaving it to
    another thread.  Waking sixteen threads by sixteen locks takes a third of the time that an Event takes."""

    __slots__ = ("leads", "turn")

    def __init__(self, leads: bool) -> None:
        self.leads, self.turn = leads, threading.Lock()
        self.turn.acquire()


class CommitBatch:
    """Records that are committed together."""

    __slots__ = (
        "_encoding",
        "_finished",
        "_losses_seen",
        "_trace",
        "_waiting",
        "appended",
        "began",
        "buffer",
        "chunk",
        "error",
        "lead",
        "moved",
        "records",
        "size",
        "topic",
        "waited",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partitions: int,
        max_record_bytes: int,
        number: int = 0,
        lead: Callable[[CommitBatch, bool], None] | None = None,
        *,
        partitioner: Partitioner = "sha256",
    ) -> None:
        self.topic, self.lead = topic, lead
        self.buffer = Buffer(partitions, max_record_bytes, number, partitioner)
        self.chunk: Chunk | None = None
        self._encoding = threading.Lock()
        self.began: float | None = None
        """When the batch began to wait for more records."""
        self.waited = False
        """Whether a sender waits for it."""
        self.appended: Appended | None = None
        self.moved: dict[int, list[tuple[int, int]]] | None = None
        """If the topic had grown meanwhile: the partition that each record went to instead, and its place there."""
        self.error: Exception | None = None
        self._trace: TracebackType | None = None
        self._losses_seen: dict[object, int] = {}
        self.records = self.size = 0
        self._finished = False
        self._waiting: list[_Waiter] = []

    def encode(self, compression: Compression) -> Chunk:
        """The batch's records as a chunk; the first thread that asks encodes it."""
        with self._encoding:
            if self.chunk is None:
                self.chunk = self.buffer.encode(compression)
            return self.chunk

    def finish(self, appended: Appended | None, error: Exception | None) -> None:
        """Record the outcome and wake the threads that wait."""
        if not self._finished:
            if appended is not None and appended.partitions not in (0, self.buffer.partitions):
                self.moved = self.buffer.destinations(appended.partitions)
            self.appended, self.error, self.size = appended, error, self.buffer.size
            if error is not None:
                self._trace, self.records = error.__traceback__, self.buffer.count
                self.buffer = Buffer(
                    self.buffer.partitions, self.buffer.max_record_bytes, partitioner=self.buffer.partitioner
                )
            self.buffer.bins, self.chunk = {}, None
            self._finished = True
        self._wake()

    def _wake(self) -> None:
        """Wake one waiting thread, which wakes the next.  If all woke at the same time they would fight for the
        interpreter."""
        if self._waiting:
            with suppress(IndexError):  # another thread has just woken it
                self._waiting.pop().turn.release()

    def settle(self, timeout: float | None = None) -> bool:
        """Block until the batch is committed or has failed; returns whether that was in time."""
        self.waited = True
        while not self._finished:
            if self.lead is not None:
                self.lead(self, timeout is None)
            if self._finished or not self._wait(_Waiter(timeout is None), -1 if timeout is None else max(timeout, 0)):
                break
        return self.done

    def _wait(self, waiter: _Waiter, timeout: float) -> bool:
        self._waiting.append(waiter)
        # The committing thread sets _finished before it looks for waiters, so one of the two sees the other.
        try:
            return self._finished or waiter.turn.acquire(timeout=timeout)
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiter)
            if self._finished:
                self._wake()

    def call(self) -> bool:
        """Wake one of the waiting threads to commit the batch; returns whether one could be woken."""
        for waiter in self._waiting:
            with suppress(ValueError):  # another thread has just woken it, or it has stopped waiting
                if waiter.leads:
                    self._waiting.remove(waiter)
                    waiter.turn.release()
                    return True
        return False

    def wait(self, timeout: float | None = None) -> Appended:
        """Block until the batch is committed; raises the error that prevented it."""
        if not self.settle(timeout):
            raise TimedOut(
                f"records sent to {self.topic!r} are not yet acknowledged after {timeout} s; they still may be"
            )
        if self.error is not None:
            # Many waiters raise this error, and its traceback would grow with each.
            raise self.error.with_traceback(self._trace)
        assert self.appended is not None
        return self.appended

    def tell(self, sender: object, records: int = 1) -> None:
        """Note that the sender of these records has seen the error."""
        if self.error is not None:
            self._losses_seen[sender] = records

    @property
    def unsaid(self) -> bool:
        """Whether it has failed and some of its senders have not seen the error."""
        return self.error is not None and sum(self._losses_seen.values()) < self.records

    @property
    def done(self) -> bool:
        """Whether it is committed or has failed."""
        return self._finished

    def landed(self, partition: int, rank: int) -> tuple[int, int]:
        """The partition that a record went to, and its place among this batch's records there, once the batch is
        committed."""
        return self.moved[partition][rank] if self.moved is not None else (partition, rank)

    def spans(self, partition: int, rank: int, count: int) -> list[OffsetSpan]:
        """Where some records are, once the batch is committed."""
        if self.moved is None:
            return [OffsetSpan(partition, self.offset(partition, rank), count)]
        out: list[OffsetSpan] = []
        for q, place in sorted(self.moved[partition][rank : rank + count]):
            at = self.offset(q, place)
            if out and out[-1].partition == q and at == out[-1].offset + out[-1].records:
                out[-1] = out[-1]._replace(records=out[-1].records + 1)
            else:
                out.append(OffsetSpan(q, at, 1))
        return out

    def offset(self, partition: int, rank: int) -> int:
        """The offset of a record, once the batch is committed."""
        offsets = self.wait().offsets
        if offsets is None:
            raise OutcomeUnknown(
                f"the records are in {self.topic!r}, but retention has removed the page with their offsets"
            )
        return offsets[partition] + rank


def unsettled(topic: str, records: int) -> OutcomeUnknown:
    """The error of a producer that is closed before each of its records was committed or had failed."""
    return OutcomeUnknown(
        f"this producer of {topic!r} has ended, and {records} of the records it took may or may not be stored; "
        "read the topic before you send them again"
    )


class Ack(msgspec.Struct, gc=False):
    """One record's acknowledgement; resolves to its offset."""

    batch: CommitBatch
    row: int

    def result(self, timeout: float | None = None) -> int:
        """The record's offset, once it is durable; raises the error if it could not be stored."""
        try:
            self.batch.wait(timeout)
        except Exception:
            self.batch.tell(self.row)
            raise
        return self.batch.offset(*self.batch.landed(*self.batch.buffer.place(self.row)))

    @property
    def partition(self) -> int:
        """The partition that the record went to, once it is durable."""
        self.batch.wait()
        return self.batch.landed(*self.batch.buffer.place(self.row))[0]

    def done(self) -> bool:
        """Whether the record is committed or has failed: then `result` returns at once."""
        return self.batch.done

    def __repr__(self) -> str:
        return f"Ack({self.batch.topic!r}, {'done' if self.done() else 'pending'})"


class BatchAck:
    """The acknowledgement of many records; resolves to their spans of offsets."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[tuple[CommitBatch, int, int, int]] = []

    def result(self, timeout: float | None = None) -> list[OffsetSpan]:
        """Where the records are, once all are durable; raises the error if one could not be stored."""
        out = []
        for batch, partition, rank, count in self.parts:
            try:
                batch.wait(timeout)
            except Exception:
                if batch.error is not None:
                    self._tell()
                raise
            out += batch.spans(partition, rank, count)
        return out

    def _tell(self) -> None:
        for batch, partition, rank, count in self.parts:
            batch.tell((partition, rank), count)

    def done(self) -> bool:
        """Whether the records are committed or have failed: then `result` returns at once."""
        return all(batch.done for batch, *_ in self.parts)
