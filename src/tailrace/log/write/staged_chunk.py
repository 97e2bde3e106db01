"""Parcels: chunks that one process has put and another commits, as a Spark task and its driver do.

What goes between them is small: the entries, and the bytes of chunks that are kept with the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from tailrace.log.catalog import Described
from tailrace.log.format import head as heads
from tailrace.log.format.head import ChunkEntry
from tailrace.log.format.manifest import MAX_ENTRY_BYTES_WITHOUT_MANIFEST
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.joint_append import EntryOrChunk, gather
from tailrace.log.write.placement import Placed, place
from tailrace.log.write.repartition_stored import ChunkOrigin, copy_chunk, is_stale, taken_back
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Key

CHUNK_BYTES = 4 * 1024 * 1024
MAX_INLINE_CHUNKS = 64
"""Chunks that can be items written with the head: a transaction has at most 100 actions."""


@dataclass(frozen=True, slots=True)
class StagedChunks:
    """Chunks of one topic that are put and not yet referred to; it can be pickled."""

    entries: tuple[bytes, ...] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    records: int = 0
    made: Mapping[str, ChunkOrigin] = field(default_factory=dict)
    """How each chunk was made, by id."""


def stage_chunks(
    store: Store,
    log: TopicLog,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> StagedChunks:
    """Put records, in chunks of about 4 MiB.  The batches have a chunk's columns (see buffer.rows) or are typed.

    `to` says where a batch goes: to the partitions of its keys (None), or as a whole to each of these."""
    return store.run(stage_steps(log, topic, batches, to))


def stage_steps(
    log: TopicLog,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> Steps[StagedChunks]:
    """The same, as steps."""
    entries: list[bytes] = []
    data: dict[str, bytes] = {}
    made: dict[str, ChunkOrigin] = {}
    records = 0
    for buffer in _filled(log, topic, batches, to):
        chunk = buffer.encode(topic.settings.compression)
        placed = yield from place(log, chunk)
        entries += [heads.pack(entry) for entry in placed.entries]
        data |= placed.data
        made[placed.id] = ChunkOrigin.of(chunk)._replace(partitions=placed.partitions)
        records += buffer.count
    return StagedChunks(tuple(entries), data, records, made)


def _filled(
    log: TopicLog,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]],
) -> Iterator[Buffer]:
    """Records in buffers of a chunk's size."""
    partitions, limit = log.partitions or topic.partitions, topic.settings.max_record_bytes
    buffer = Buffer(partitions, limit, log.next_turn())
    for whole in batches:
        for batch in _sliced(whole):
            for partition in to(batch):
                buffer.add_batch(batch, partition)
            if buffer.size >= CHUNK_BYTES:
                yield buffer
                buffer = Buffer(partitions, limit, log.next_turn())
    if buffer.count:
        yield buffer


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices of about a chunk's size, so that neither chunks nor the memory to make them grow with the
    batch."""
    if batch.nbytes <= 2 * CHUNK_BYTES:
        yield batch
        return
    rows = max(1, batch.num_rows * CHUNK_BYTES // batch.nbytes)
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def unpack_parcels(log: TopicLog, parcels: Iterable[StagedChunks]) -> Placed | None:
    """All chunks of some parcels, ready to be committed together; None if they hold nothing."""
    entries, data, made = _contents(log, parcels)
    return _placed(log, tuple(entries), data, made) if entries else None


def _contents(
    log: TopicLog, parcels: Iterable[StagedChunks]
) -> tuple[list[ChunkEntry], dict[str, bytes], dict[str, ChunkOrigin]]:
    """The entries of all parcels, the bytes of those that are not stored yet, and how each was made, by id."""
    entries: list[ChunkEntry] = []
    data: dict[str, bytes] = {}
    made: dict[str, ChunkOrigin] = {}
    keys: set[Key] = set()
    for parcel in parcels:
        for entry in map(heads.unpack, parcel.entries):
            fresh = entry
            if entry.id in parcel.data and heads.chunk_key(log.id, entry.gen, entry.id) in keys:
                fresh = replace(entry, id=log.new_id())  # another process made one at the very same time
            keys.add(heads.chunk_key(log.id, fresh.gen, fresh.id))
            entries.append(fresh)
            made[fresh.id] = parcel.made.get(entry.id, ChunkOrigin())
            if entry.id in parcel.data:
                data[fresh.id] = parcel.data[entry.id]
    return entries, data, made


def place_staged(log: TopicLog, parcels: Iterable[StagedChunks]) -> Steps[Placed | None]:
    """The same, however many chunks there are: those whose entries would fill the head are listed by a manifest."""
    entries, data, made = _contents(log, parcels)
    if (
        sum(len(heads.pack(entry)) for entry in entries) <= MAX_ENTRY_BYTES_WITHOUT_MANIFEST
        and len(data) <= MAX_INLINE_CHUNKS
    ):
        return _placed(log, tuple(entries), data, made) if entries else None
    parts: list[EntryOrChunk] = []
    for entry in entries:
        if entry.inline:  # a manifest lists only objects
            parts.append((yield from taken_back(log, entry, made[entry.id], data.get(entry.id))))
        else:
            parts.append(entry)
    return (yield from gather(log, parts, inline=False, made=made))


def _placed(
    log: TopicLog, entries: tuple[ChunkEntry, ...], data: Mapping[str, bytes], made: Mapping[str, ChunkOrigin]
) -> Placed:
    counts = [made.get(entry.id, ChunkOrigin()).partitions for entry in entries]
    again = partial(_again, log, entries, data, made)
    return Placed(log, entries, again, data, partitions=min(filter(None, counts), default=0))


def _again(
    log: TopicLog, entries: tuple[ChunkEntry, ...], data: Mapping[str, bytes], made: Mapping[str, ChunkOrigin]
) -> Steps[Placed]:
    """The same records under new names at the newest gen, spread again if the topic has grown; `ObjectMissing` if
    cleaning has already removed the old objects, and then only the process that made them can make them again."""
    out: list[ChunkEntry] = []
    kept: dict[str, bytes] = {}
    how: dict[str, ChunkOrigin] = {}
    for entry in entries:
        was = made.get(entry.id, ChunkOrigin())
        if is_stale(log, was):
            chunk = yield from taken_back(log, entry, was, data.get(entry.id))
            placed = yield from place(log, chunk)
            out += placed.entries
            kept |= placed.data
            how[placed.id] = ChunkOrigin.of(chunk)._replace(partitions=placed.partitions)
            continue
        if entry.id in data:
            out.append(replace(entry, id=log.new_id(), gen=log.newest.gen))
            kept[out[-1].id] = data[entry.id]
        else:
            out.append((yield from copy_chunk(log, entry)))
        how[out[-1].id] = was
    return _placed(log, tuple(out), kept, how)
