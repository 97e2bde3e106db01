"""Task: writes rows into chunks and chunks into objects, and returns to the driver what it needs to append them."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from tailrace.errors import UnknownPartition
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import ChunkEntry
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.input import CHUNK_BYTES, pieces, rows
from tailrace.log.write.placement import Placed, place
from tailrace.log.write.repartition_stored import ChunkOrigin
from tailrace.spark.sink.rows import by_partition, by_topic, records

MAX_BYTES_HANDED_TO_DRIVER = 64 * 1024
"""A task whose rows make a chunk of at most this many bytes hands it to the driver, which joins such chunks."""


@dataclass
class TopicPart:
    """A task's output for one topic: packed entries of the chunks it has stored, or a small chunk (entry and bytes)."""

    id: str
    entries: list[bytes] = field(default_factory=list)
    small: tuple[bytes, bytes] | None = None
    origins: dict[str, ChunkOrigin] = field(default_factory=dict)
    """How each chunk was made, by id; the small one is under ""."""


@dataclass
class TaskOutput(WriterCommitMessage):
    """What a task has written, by topic; none of it is in the log before the driver commits."""

    query: str | None
    parts: dict[str, TopicPart]
    rows: int


class TopicRows:
    """The rows of one topic on their way into chunks, in order."""

    def __init__(self, home: Home, name: str) -> None:
        self._store, self._topic = home.store, home.topic(name)
        self._log = replace(self._topic.log, inline_bytes=0)  # objects only: a task's memory goes with the task
        self._store.run(self._log.head())  # the newest gen: under an old one the driver would have to copy the chunk
        self._buffer = self._empty()
        self._next = random.randrange(self._log.partitions)
        self._puts: deque[tuple[Chunk, Future[Placed]]] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._entries: list[ChunkEntry] = []
        self._origins: dict[str, ChunkOrigin] = {}

    def _empty(self) -> Buffer:
        limit = self._topic.settings.max_record_bytes
        return Buffer(self._log.partitions, limit, partitioner=self._log.partitioner)

    def add(self, batch: pa.RecordBatch, stamp: int) -> None:
        """Add rows for one topic."""
        for q, part in by_partition(batch):
            for piece in pieces(records(part, stamp)):
                where = self._turn(piece) if q is None else q
                try:
                    self._buffer.add_batch(rows(piece, stamp, self._buffer.max_record_bytes), where)
                except UnknownPartition as error:
                    raise UnknownPartition(
                        f"the column 'partition' says {q}: {error}; without that column keys decide"
                    ) from None
                if self._buffer.size >= CHUNK_BYTES:
                    self._put(self._buffer.encode(self._topic.settings.compression))
                    self._buffer = self._empty()

    def _turn(self, piece: pa.RecordBatch) -> int | None:
        """The partition for rows without keys: each in turn, and every task begins with a different one."""
        if "key" in piece.schema.names and piece.column("key").null_count < piece.num_rows:
            return None
        self._next = (self._next + 1) % self._buffer.partitions
        return self._next

    def _put(self, chunk: Chunk) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2 if self._log.joins_inline else 4, "tailrace-put")
        self._puts.append((chunk, self._pool.submit(lambda: self._store.run(place(self._log, chunk)))))
        while len(self._puts) > 4:
            self._take()

    def _take(self) -> None:
        chunk, put = self._puts.popleft()
        placed = put.result()
        self._entries += placed.entries
        self._origins[placed.id] = ChunkOrigin.of(chunk)._replace(partitions=placed.partitions)

    def finish(self) -> TopicPart:
        """What the task returns to the driver for the topic: chunks that are stored, or a small one."""
        part = TopicPart(self._topic.id)
        if self._buffer.count:
            chunk = self._buffer.encode("none")
            if not self._puts and not self._entries and chunk.size <= MAX_BYTES_HANDED_TO_DRIVER:
                data, runs = chunk.inline()
                part.small = heads.pack(ChunkEntry("", True, 0, chunk.kind, runs)), data
                part.origins[""] = ChunkOrigin.of(chunk)
            else:
                self._put(self._buffer.encode(self._topic.settings.compression))
        while self._puts:
            self._take()
        part.entries = [heads.pack(entry) for entry in self._entries]
        part.origins |= self._origins
        return part

    def close(self) -> None:
        """Stop the threads that store chunks."""
        if self._pool is not None:
            self._pool.shutdown()


def write(home: Home, batches: Iterable[pa.RecordBatch], topic: str | None, query: str | None) -> TaskOutput:
    """Store the rows of one task."""
    fillings: dict[str, TopicRows] = {}
    count = 0
    try:
        for batch in batches:
            count += batch.num_rows
            for name, part in by_topic(batch, topic):
                filling = fillings.get(name) or fillings.setdefault(name, TopicRows(home, name))
                filling.add(part, int(time.time() * 1000))
        return TaskOutput(query, {name: filling.finish() for name, filling in fillings.items()}, count)
    finally:
        for filling in fillings.values():
            filling.close()
