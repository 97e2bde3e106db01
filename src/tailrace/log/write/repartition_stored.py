"""Repartitioning of stored chunks: reads back, or copies, a chunk of which this process has only the entry.

With the entry comes a note of how many partitions the chunk was made for, and which records were sent to their
partition.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tailrace.coordination import guard
from tailrace.errors import Conflict, ObjectMissing, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk, Compression, decode, encode
from tailrace.log.format.head import ChunkEntry
from tailrace.log.format.run import read_runs, where_is
from tailrace.log.topic_log import TopicLog
from tailrace.storage import calls
from tailrace.storage.calls import Steps


class ChunkOrigin(NamedTuple):
    """How a chunk was made: for how many partitions (0: it does not matter), and which of its records must stay in
    their partition: (partition, place, count)."""

    partitions: int = 0
    pinned: tuple[tuple[int, int, int], ...] = ()
    compression: Compression = "none"

    @classmethod
    def of(cls, chunk: Chunk) -> ChunkOrigin:
        """The origin of a chunk that is at hand."""
        return cls(chunk.partitions, chunk.pinned, chunk.compression)


def is_stale(log: TopicLog, origin: ChunkOrigin) -> bool:
    """Whether a topic has grown since a chunk was made."""
    return 0 < origin.partitions < log.newest.partitions


def copy_chunk(log: TopicLog, entry: ChunkEntry) -> Steps[ChunkEntry]:
    """Copy a stored chunk to a new name, at the newest gen; `ObjectMissing` if cleaning has removed it."""
    return (yield from guard.persist(lambda: _copy_chunk(log, entry), (*guard.NOT_DONE, TimedOut, Conflict)))


def _copy_chunk(log: TopicLog, entry: ChunkEntry) -> Steps[ChunkEntry]:
    new = replace(entry, id=log.new_id(), gen=log.newest.gen)
    if entry.inline:
        item = yield from calls.get(heads.chunk_key(log.id, entry.gen, entry.id))
        if item is None or item["id"] != entry.id:
            raise ObjectMissing(f"item of chunk {entry.id}")
        yield from calls.write(heads.chunk_item(log.id, new, heads.chunk_data(item)))
    else:
        whole = yield from calls.get_whole(heads.object_name(log.id, entry.gen, entry.id))
        yield from calls.put_object(heads.object_name(log.id, new.gen, new.id), whole)
    return new


def read_back(log: TopicLog, entry: ChunkEntry, origin: ChunkOrigin, data: bytes | None = None) -> Steps[Chunk]:
    """Read a stored chunk back as one that is not placed yet; placing it spreads it over the partitions that exist by
    then.

    `ObjectMissing` if cleaning has removed it."""
    if data is None:
        pieces = yield from read_runs(log.id, entry, entry.runs)
    else:
        pieces = [memoryview(data)[run.position : run.position + run.length] for run in entry.runs]
    where = where_is(log.id, entry)
    runs = zip(entry.runs, pieces, strict=True)
    batches = {run.partition: decode(entry.kind, run, piece, where) for run, piece in runs}
    return encode(batches, origin.compression, origin.partitions, origin.pinned, log.partitioner)
