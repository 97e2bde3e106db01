"""Manifests: objects that list the entries of many chunks, so that one small entry in the head stands for all of them.

Its entry has the kind MANIFEST.  Its runs say, for each partition, how many records the listed chunks have and the
range of their timestamps; position, length and crc32c are those of the list itself.  Its gen is the lowest of theirs,
so that one fence covers all.  The object is a msgpack list of packed entries.  See docs/formats/head.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import crc32c
import msgspec

from tailrace.coordination import guard
from tailrace.errors import Damaged, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, PartitionRun
from tailrace.log.format.head import ChunkEntry
from tailrace.storage import calls
from tailrace.storage.calls import Steps

MAX_ENTRY_BYTES_WITHOUT_MANIFEST = 32 * 1024
"""Entries that are appended together and have more bytes than this go into a manifest."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def put_manifest(
    topic_id: str, entries: Sequence[ChunkEntry], new_id: Callable[[], str], gen: int | None = None
) -> Steps[ChunkEntry]:
    """Store the list of these entries; returns the entry that stands for all of them.  `gen` is given when the log
    refers to these chunks already."""
    data = _encode([heads.pack(entry) for entry in entries])
    gen, runs = min(entry.gen for entry in entries) if gen is None else gen, _totals(entries, data)

    def put() -> Steps[ChunkEntry]:
        made = ChunkEntry(new_id(), False, gen, MANIFEST, runs)
        yield from calls.put_object(heads.object_name(topic_id, gen, made.id), [data])
        return made

    return (yield from guard.persist(put, (*guard.NOT_DONE, TimedOut)))


def _totals(entries: Sequence[ChunkEntry], data: bytes) -> tuple[PartitionRun, ...]:
    found: dict[int, list[PartitionRun]] = {}
    for entry in entries:
        for run in entry.runs:
            found.setdefault(run.partition, []).append(run)
    crc, out = crc32c.crc32c(data), []
    for q, runs in sorted(found.items()):
        latest, earliest = max(r.latest for r in runs), min(r.latest - r.span for r in runs)
        out.append(PartitionRun(q, sum(r.count for r in runs), 0, len(data), crc, latest, latest - earliest))
    return tuple(out)


def listed(entry: ChunkEntry, data: memoryview, where: str) -> tuple[ChunkEntry, ...]:
    """The entries in a manifest's bytes; `Damaged` unless they are exactly what was written."""
    run = entry.runs[0]
    if len(data) != run.length or crc32c.crc32c(data) != run.crc:
        raise Damaged(
            f"{where}: these {len(data)} bytes are not the {run.length} of the list of chunks that was written there; "
            "restore it from a backup",
            where=where,
            position=0,
        )
    return tuple(heads.unpack(packed) for packed in _decode(data))


def expand(topic_id: str, entry: ChunkEntry) -> Steps[tuple[ChunkEntry, ...]]:
    """The chunks that an entry stands for: itself, or those that its manifest lists.  `ObjectMissing` if it is gone."""
    if not entry.kind & MANIFEST:
        return (entry,)
    name, run = heads.object_name(topic_id, entry.gen, entry.id), entry.runs[0]
    ranges = ((run.position, run.length),)
    (data,) = yield from guard.persist(lambda: calls.get_object(name, ranges))
    return listed(entry, data, name)
