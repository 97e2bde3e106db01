"""Joint append: chunks that other processes have stored, and chunks that are not stored yet, appended by one write.

Spark's tasks store chunks and end; the driver appends all of them by one write.  A chunk whose name cleaning has fenced
meanwhile gets a new name, and a chunk whose topic has grown is spread over the present partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import structs

from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import ChunkEntry
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.placement import Placed, place
from tailrace.log.write.repartition_stored import ChunkOrigin, copy_chunk, is_stale, read_back
from tailrace.storage.calls import Steps

MAX_INLINE_CHUNKS = 64
"""The most chunks that are written as items with the head: a transaction has at most 100 actions."""

EntryOrChunk: TypeAlias = ChunkEntry | Chunk
"""The entry of a chunk that another process has stored, or a chunk that is not stored yet."""


def gather(
    log: TopicLog,
    parts: Sequence[EntryOrChunk],
    *,
    inline: bool = True,
    origins: Mapping[str, ChunkOrigin] | None = None,
    data: Mapping[str, bytes] | None = None,
) -> Steps[Placed]:
    """Parts of one topic, in this order, ready to be appended.

    `origins` says how the chunks of entries were made; `data` has the bytes of those that are written together with the
    head; both by id.  All chunks become objects without `inline`, if the transaction would have too many items, and if
    a manifest has to list them, since it lists only objects.  `ObjectMissing` if cleaning has removed a chunk that
    needs a new name: only the process that made it can make it again."""
    origins, data = origins or {}, data or {}
    many = sum(map(_size, parts)) > manifest.MAX_ENTRY_BYTES_WITHOUT_MANIFEST
    if many or not inline or len(data) > MAX_INLINE_CHUNKS:
        log = replace(log, inline_bytes=0)
        parts = yield from _as_objects(log, parts, origins, data)
    entries: list[ChunkEntry] = []
    inline_data: dict[str, bytes] = {}
    counts: list[int] = []
    for part in parts:
        if isinstance(part, ChunkEntry):
            entries.append(part)
            counts.append(origins.get(part.id, ChunkOrigin()).partitions)
            if part.id in data:
                inline_data[part.id] = data[part.id]
        else:
            placed = yield from place(log, part)
            entries += placed.entries
            inline_data.update(placed.data)
            counts.append(placed.partitions)

    def again() -> Steps[Placed]:
        return (yield from _gather_again(log, parts, inline, origins, data))

    shown = [(yield from manifest.put_manifest(log.id, entries, log.new_id))] if many else entries
    return Placed(log, tuple(shown), again, inline_data, partitions=min(filter(None, counts), default=0))


def _as_objects(
    log: TopicLog, parts: Sequence[EntryOrChunk], origins: Mapping[str, ChunkOrigin], data: Mapping[str, bytes]
) -> Steps[list[EntryOrChunk]]:
    """The parts, with each inline chunk read back, so that placing it makes it an object."""
    out: list[EntryOrChunk] = []
    for part in parts:
        if isinstance(part, ChunkEntry) and part.inline:
            origin = origins.get(part.id, ChunkOrigin())
            out.append((yield from read_back(log, part, origin, data.get(part.id))))
        else:
            out.append(part)
    return out


def _gather_again(
    log: TopicLog,
    parts: Sequence[EntryOrChunk],
    inline: bool,
    origins: Mapping[str, ChunkOrigin],
    data: Mapping[str, bytes],
) -> Steps[Placed]:
    """The same records under new names at the newest gen, spread again if the topic has grown."""
    fresh: list[EntryOrChunk] = []
    new_origins: dict[str, ChunkOrigin] = {}
    new_data: dict[str, bytes] = {}
    for part in parts:
        if isinstance(part, Chunk):
            fresh.append(part)
            continue
        origin, bytes_of_part = origins.get(part.id, ChunkOrigin()), data.get(part.id)
        if is_stale(log, origin):
            fresh.append((yield from read_back(log, part, origin, bytes_of_part)))
            continue
        if bytes_of_part is None:
            entry = yield from copy_chunk(log, part)
        else:
            entry = structs.replace(part, id=log.new_id(), gen=log.newest.gen)
            new_data[entry.id] = bytes_of_part
        new_origins[entry.id] = origin
        fresh.append(entry)
    return (yield from gather(log, fresh, inline=inline, origins=new_origins, data=new_data))


def _size(part: EntryOrChunk) -> int:
    """The bytes of a part's entry; an estimate if it has none yet."""
    return len(heads.pack(part)) if isinstance(part, ChunkEntry) else 64 * (1 + len(part.runs))
