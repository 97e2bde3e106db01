"""Staged chunks: one process stores them and another commits them, as a Spark task and its driver do.

The first hands little to the second: the entries, and the bytes of chunks that are written with the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from tailrace.log.catalog import Described
from tailrace.log.format import head as heads
from tailrace.log.format.head import ChunkEntry
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.joint_append import gather
from tailrace.log.write.placement import Placed, place
from tailrace.log.write.repartition_stored import ChunkOrigin
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Key

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StagedChunks:
    """Chunks of one topic that are stored and not yet referred to; it can be pickled."""

    entries: tuple[bytes, ...] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    """The bytes of the chunks that the second process writes with the head, by id."""
    records: int = 0
    origins: Mapping[str, ChunkOrigin] = field(default_factory=dict)
    """How each chunk was made, by id."""


def stage_chunks(
    store: Store,
    log: TopicLog,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> StagedChunks:
    """Store records in chunks of about 4 MiB.  The batches have a chunk's columns (see buffer.rows) or are typed.

    `to` says where a batch goes: to the partitions of its keys (None), or as a whole to each of these partitions."""
    return store.run(stage_steps(log, topic, batches, to))


def stage_steps(
    log: TopicLog,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> Steps[StagedChunks]:
    """`stage_chunks`, as steps."""
    entries: list[bytes] = []
    data: dict[str, bytes] = {}
    origins: dict[str, ChunkOrigin] = {}
    records = 0
    for buffer in _filled(log, topic, batches, to):
        chunk = buffer.encode(topic.settings.compression)
        placed = yield from place(log, chunk)
        entries += [heads.pack(entry) for entry in placed.entries]
        data |= placed.data
        origins[placed.id] = ChunkOrigin.of(chunk)._replace(partitions=placed.partitions)
        records += buffer.count
    return StagedChunks(tuple(entries), data, records, origins)


def _filled(
    log: TopicLog,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]],
) -> Iterator[Buffer]:
    """Records in buffers of a chunk's size."""
    partitions, limit = log.partitions or topic.partitions, topic.settings.max_record_bytes
    buffer = Buffer(partitions, limit, log.next_turn(), log.partitioner)
    for whole in batches:
        for batch in _sliced(whole):
            for partition in to(batch):
                buffer.add_batch(batch, partition)
            if buffer.size >= CHUNK_BYTES:
                yield buffer
                buffer = Buffer(partitions, limit, log.next_turn(), log.partitioner)
    if buffer.count:
        yield buffer


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices of about a chunk's size, so that neither the chunks nor the memory for making them grow with
    the batch."""
    if batch.nbytes <= 2 * CHUNK_BYTES:
        yield batch
        return
    rows = max(1, batch.num_rows * CHUNK_BYTES // batch.nbytes)
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def place_staged(log: TopicLog, staged: Iterable[StagedChunks]) -> Steps[Placed | None]:
    """All staged chunks of a topic, ready to be committed together, however many there are; None if there are none.

    `ObjectMissing`, then or while they are committed, if cleaning has removed one of them: only the process that staged
    it can stage it again."""
    entries: list[ChunkEntry] = []
    data: dict[str, bytes] = {}
    origins: dict[str, ChunkOrigin] = {}
    keys: set[Key] = set()
    for chunks in staged:
        for entry in map(heads.unpack, chunks.entries):
            fresh = entry
            if entry.id in chunks.data and heads.chunk_key(log.id, entry.gen, entry.id) in keys:
                fresh = replace(entry, id=log.new_id())  # another process made one at the very same time
            keys.add(heads.chunk_key(log.id, fresh.gen, fresh.id))
            entries.append(fresh)
            origins[fresh.id] = chunks.origins.get(entry.id, ChunkOrigin())
            if entry.id in chunks.data:
                data[fresh.id] = chunks.data[entry.id]
    return (yield from gather(log, entries, origins=origins, data=data)) if entries else None
