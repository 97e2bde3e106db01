"""Parcels: chunks that one process has put and another commits, as a Spark task and its driver do.

What goes between them is small: the entries, and the bytes of chunks that are kept with the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from tailrace.log.spreading import Made, is_stale, taken_back
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Key

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """Chunks of one topic that are put and not yet referred to; it can be pickled."""

    entries: tuple[bytes, ...] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    records: int = 0
    made: Mapping[str, Made] = field(default_factory=dict)
    """How each chunk was made, by id."""


def pack_up(
    store: Store,
    log: Log,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> Parcel:
    """Put records, in chunks of about 4 MiB.  The batches have a chunk's columns (see buffer.rows) or are typed.

    `to` says where a batch goes: to the partitions of its keys (None), or as a whole to each of these."""
    return store.run(packed_up(log, topic, batches, to))


def packed_up(
    log: Log,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]] = lambda batch: (None,),
) -> Steps[Parcel]:
    """The same, as steps."""
    entries: list[bytes] = []
    data: dict[str, bytes] = {}
    made: dict[str, Made] = {}
    records = 0
    for buffer in _filled(log, topic, batches, to):
        chunk = buffer.encode(topic.settings.compression)
        placed = yield from place(log, chunk)
        entries += [heads.pack(entry) for entry in placed.entries]
        data |= placed.data
        made[placed.id] = Made.of(chunk)._replace(partitions=placed.partitions)
        records += buffer.count
    return Parcel(tuple(entries), data, records, made)


def _filled(
    log: Log,
    topic: Described,
    batches: Iterable[pa.RecordBatch],
    to: Callable[[pa.RecordBatch], Iterable[int | None]],
) -> Iterator[Buffer]:
    """Records in buffers of a chunk's size."""
    buffer = Buffer(log.partitions or topic.partitions, topic.settings.max_record_bytes)
    for batch in batches:
        for partition in to(batch):
            buffer.add_batch(batch, partition)
        if buffer.size >= CHUNK_BYTES:
            yield buffer
            buffer = Buffer(log.partitions or topic.partitions, topic.settings.max_record_bytes)
    if buffer.count:
        yield buffer


def unpack_parcels(log: Log, parcels: Iterable[Parcel]) -> Placed | None:
    """All chunks of some parcels, ready to be committed together; None if they hold nothing."""
    entries: list[Entry] = []
    data: dict[str, bytes] = {}
    made: dict[str, Made] = {}
    keys: set[Key] = set()
    for parcel in parcels:
        for entry in map(heads.unpack, parcel.entries):
            fresh = entry
            if entry.id in parcel.data and heads.chunk_key(log.id, entry.gen, entry.id) in keys:
                fresh = replace(entry, id=log.new_id())  # another process made one at the very same time
            keys.add(heads.chunk_key(log.id, fresh.gen, fresh.id))
            entries.append(fresh)
            made[fresh.id] = parcel.made.get(entry.id, Made())
            if entry.id in parcel.data:
                data[fresh.id] = parcel.data[entry.id]
    return _placed(log, tuple(entries), data, made) if entries else None


def _placed(log: Log, entries: tuple[Entry, ...], data: Mapping[str, bytes], made: Mapping[str, Made]) -> Placed:
    counts = [made.get(entry.id, Made()).partitions for entry in entries]
    again = partial(_again, log, entries, data, made)
    return Placed(log, entries, again, data, partitions=min(filter(None, counts), default=0))


def _again(log: Log, entries: tuple[Entry, ...], data: Mapping[str, bytes], made: Mapping[str, Made]) -> Steps[Placed]:
    """The same records under new names at the newest gen, spread anew if the topic has grown; `ObjectMissing` if
    cleaning has already taken the old ones, and then only who made them can make them again."""
    out: list[Entry] = []
    kept: dict[str, bytes] = {}
    how: dict[str, Made] = {}
    for entry in entries:
        was = made.get(entry.id, Made())
        if is_stale(log, was):
            chunk = yield from taken_back(log, entry, was, data.get(entry.id))
            placed = yield from place(log, chunk)
            out += placed.entries
            kept |= placed.data
            how[placed.id] = Made.of(chunk)._replace(partitions=placed.partitions)
            continue
        if entry.id in data:
            out.append(replace(entry, id=log.new_id(), gen=log.newest.gen))
            kept[out[-1].id] = data[entry.id]
        else:
            again = partial(_copied, log, entry)
            out.append((yield from guard.persist(again, (*guard.NOT_DONE, TimedOut, Conflict))))
        how[out[-1].id] = was
    return _placed(log, tuple(out), kept, how)


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
