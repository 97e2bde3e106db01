"""Joint append: chunks that other processes have stored, and chunks that are not stored yet, appended by one write.

Spark's tasks put chunks and die; the driver appends all of them by one write.  If cleaning has fenced the names
meanwhile, the objects are copied to new names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tailrace.errors import ObjectMissing, Unavailable
from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import ChunkEntry
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.placement import Placed, place
from tailrace.log.write.repartition_stored import ChunkOrigin, copy_chunk, is_stale, taken_back
from tailrace.storage.calls import Steps

EntryOrChunk: TypeAlias = ChunkEntry | Chunk
"""The entry of a chunk that is stored as an object, or a chunk that is not stored yet."""


def gather(
    log: TopicLog, parts: Sequence[EntryOrChunk], *, inline: bool = True, made: Mapping[str, ChunkOrigin] | None = None
) -> Steps[Placed]:
    """Parts of one topic, in this order, ready to be appended.  Without `inline`, and where there are so many that a
    manifest lists them, all become objects.  `made` says how stored parts were made, by id."""
    how = made or {}
    many = sum(map(_size, parts)) > manifest.MAX_ENTRY_BYTES_WITHOUT_MANIFEST
    if many or not inline:
        log = replace(log, inline_bytes=0)
    entries: list[ChunkEntry] = []
    data: dict[str, bytes] = {}
    counts: list[int] = []
    for part in parts:
        if isinstance(part, ChunkEntry):
            entries.append(part)
            counts.append(how.get(part.id, ChunkOrigin()).partitions)
        else:
            placed = yield from place(log, part)
            entries += placed.entries
            data.update(placed.data)
            counts.append(placed.partitions)

    def again() -> Steps[Placed]:
        fresh: list[EntryOrChunk] = []
        kept: dict[str, ChunkOrigin] = {}
        for part in parts:
            fresh.append((yield from _again(log, part, how)) if isinstance(part, ChunkEntry) else part)
            if isinstance(part, ChunkEntry) and isinstance(fresh[-1], ChunkEntry):
                kept[fresh[-1].id] = how.get(part.id, ChunkOrigin())
        return (yield from gather(log, fresh, inline=inline, made=kept))

    shown = [(yield from manifest.put_manifest(log.id, entries, log.new_id))] if many else entries
    return Placed(log, tuple(shown), again, data, partitions=min(filter(None, counts), default=0))


def _again(log: TopicLog, entry: ChunkEntry, how: Mapping[str, ChunkOrigin]) -> Steps[EntryOrChunk]:
    """A stored chunk under a new name; spread again, if its topic has grown."""
    made = how.get(entry.id, ChunkOrigin())
    try:
        if is_stale(log, made):
            return (yield from taken_back(log, entry, made))
        return (yield from copy_chunk(log, entry))
    except ObjectMissing:
        raise _cleaned(log, heads.object_name(log.id, entry.gen, entry.id)) from None


def _cleaned(log: TopicLog, name: str) -> Unavailable:
    return Unavailable(
        f"{name}, which this write to {log.name!r} had stored, was cleaned away before it could be committed, since "
        "the write took longer than the time between two cleanings; nothing was written, run it again"
    )


def _size(part: EntryOrChunk) -> int:
    """The bytes of a part's entry; an estimate if it has none yet."""
    return len(heads.pack(part)) if isinstance(part, ChunkEntry) else 64 * (1 + len(part.runs))
