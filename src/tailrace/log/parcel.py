"""Parcels: chunks that one process has put and another commits, as a Spark task and its driver do.

What goes between them is small: the entries, and the bytes of chunks that are kept with the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from tailrace.coordination import guard
from tailrace.errors import Conflict, ObjectMissing, TimedOut
from tailrace.log import head as heads
from tailrace.log.append import Log, Placed, place
from tailrace.log.buffer import Buffer
from tailrace.log.catalog import Described
from tailrace.log.head import Entry
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """Chunks of one topic that are put and not yet referred to; it can be pickled."""

    entries: tuple[bytes, ...] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    records: int = 0


def pack_up(
    store: Store,
    log: Log,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> Parcel:
    """Put records, in chunks of about 4 MiB.  The batches have a chunk's columns (see buffer.rows) or are typed.

    `to` says where a batch goes: to the partitions of its keys (None), or as a whole to each of these."""
    entries: list[bytes] = []
    data: dict[str, bytes] = {}
    records = 0
    buffer = Buffer(topic.partitions, topic.settings.max_record_bytes)
    for batch in batches:
        for partition in to(batch):
            buffer.add_batch(batch, partition)
        if buffer.size >= CHUNK_BYTES:
            records += _put(store, log, topic, buffer, entries, data)
            buffer = Buffer(topic.partitions, topic.settings.max_record_bytes)
    records += _put(store, log, topic, buffer, entries, data)
    return Parcel(tuple(entries), data, records)


def _put(store: Store, log: Log, topic: Described, buffer: Buffer, entries: list[bytes], data: dict[str, bytes]) -> int:
    if buffer.count:
        placed = store.run(place(log, buffer.encode(topic.settings.compression)))
        entries += [heads.pack(entry) for entry in placed.entries]
        data |= placed.data
    return buffer.count


def unpack_parcels(log: Log, parcels: Iterable[Parcel]) -> Placed | None:
    """All chunks of some parcels, ready to be committed together; None if they hold nothing."""
    entries: list[Entry] = []
    data: dict[str, bytes] = {}
    for parcel in parcels:
        entries += [heads.unpack(entry) for entry in parcel.entries]
        data |= parcel.data
    return _placed(log, tuple(entries), data) if entries else None


def _placed(log: Log, entries: tuple[Entry, ...], data: Mapping[str, bytes]) -> Placed:
    return Placed(log, entries, lambda: _again(log, entries, data), data)


def _again(log: Log, entries: tuple[Entry, ...], data: Mapping[str, bytes]) -> Steps[Placed]:
    """The same bytes under new names at the newest gen; `ObjectMissing` if cleaning has already taken the old ones,
    and then only who made them can make them again."""
    out: list[Entry] = []
    kept: dict[str, bytes] = {}
    for entry in entries:
        if entry.id in data:
            out.append(replace(entry, id=log.new_id(), gen=log.newest.gen))
            kept[out[-1].id] = data[entry.id]
        else:
            again = partial(_copied, log, entry)
            out.append((yield from guard.persist(again, (*guard.NOT_DONE, TimedOut, Conflict))))
    return _placed(log, tuple(out), kept)


def _copied(log: Log, entry: Entry) -> Steps[Entry]:
    new = replace(entry, id=log.new_id(), gen=log.newest.gen)
    if entry.inline:
        item = yield from calls.get(heads.chunk_key(log.id, entry.gen, entry.id))
        if item is None or item["id"] != entry.id:
            raise ObjectMissing(f"item of chunk {entry.id}")
        yield from calls.write(heads.chunk_item(log.id, new, item["d"]))
    else:
        whole = yield from calls.get_whole(heads.object_name(log.id, entry.gen, entry.id))
        yield from calls.put_object(heads.object_name(log.id, new.gen, new.id), whole)
    return new
