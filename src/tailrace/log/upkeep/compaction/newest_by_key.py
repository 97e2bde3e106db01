"""The newest record of each key, which compaction keeps.  Pure, and in Arrow: no Python per record.

A record replaces the earlier ones of its key in its partition, except where it cannot: a record without a key, a row of
which the source did not send all fields (see docs/formats/message.md), and a record meant for a single writer of a
pipeline replace nothing.  A tombstone says that its key is deleted: a record without a value, or whose op is delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.coordination.rules import in_force
from tailrace.log.format.chunk import OFFSETS, CompactBy
from tailrace.log.read.fetched import place_of, without_offsets
from tailrace.log.record import Op
from tailrace.log.upkeep.repack import RunToPack

_OP = pa.scalar(2, pa.uint8())
_DELETE = pa.scalar(int(Op.DELETE), pa.uint8())
_NUMBERS = pa.int64()
BYTES_BEFORE_THINNING = 64 * 1024 * 1024
"""Bytes of keys and offsets that are collected before all but the newest of each key are forgotten."""
BYTES_PER_COPY = 1024 * 1024
"""Bytes of records that are copied together: a copy of this size is read again before it has left the processor's
cache."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one partition, and the offset of each."""

    batch: pa.RecordBatch
    offsets: pa.Array[Any]

    def keys(self, by: CompactBy) -> pa.Array[Any]:
        """The key whose state each record describes; null: the record describes no key's state."""
        metadata = self.batch.schema.metadata or {}
        if by == "namespace" and b"namespace" in metadata:
            return pa.repeat(pa.scalar(metadata[b"namespace"], pa.binary()), self.batch.num_rows)
        return self.batch.column("key")

    def stands(self) -> pa.Array[Any] | None:
        """Whether each record replaces the earlier ones of its key; None: all do."""
        batch = self.batch
        if b"only" in (batch.schema.metadata or {}) and in_force("compact.only"):
            return pa.repeat(pa.scalar(False), batch.num_rows)
        partial = "unset" in batch.schema.names and in_force("compact.unset")
        if not partial and not batch.column("key").null_count:
            return None
        whole = batch.column("key").is_valid()
        return pc.and_(whole, batch.column("unset").is_null()) if partial else whole

    def tombstones(self) -> pa.Array[Any] | None:
        """Whether each record says that its key is deleted as a whole; None: none does."""
        attributes, value = self.batch.column("attributes"), self.batch.schema.get_field_index("value")
        nulls = self.batch.column(value).null_count if value >= 0 else 0
        if not nulls and (pc.max(attributes).as_py() or 0) >> 2 < Op.DELETE:
            return None
        deleted = pc.equal(pc.shift_right(attributes, _OP), _DELETE)
        if nulls:
            deleted = pc.or_(deleted, self.batch.column(value).is_null())
        stands = self.stands()
        return deleted if stands is None else pc.and_(deleted, stands)


@dataclass(frozen=True, slots=True)
class _ReadBatch:
    """A batch as it was read: the offsets of its records, or, if these are consecutive, None and the first offset."""

    batch: pa.RecordBatch
    first: int
    offsets: pa.Array[Any] | None

    def joins(self, after: _ReadBatch) -> bool:
        """Whether another batch can be joined to the end of this one."""
        if (self.offsets is None) != (after.offsets is None):
            return False
        follows = self.offsets is not None or self.first + self.batch.num_rows == after.first
        return follows and bool(self.batch.schema.equals(after.batch.schema, check_metadata=True))


def each_rows(pieces: Iterable[RunToPack], *columns: str) -> Iterator[Rows]:
    """The records of neighbouring runs, to find their newest keys; those of the same schema come together, up to what
    the processor's cache holds.  `columns`: only these.  Compressed batches are uncompressed as the caller asks for
    them."""
    some: list[_ReadBatch] = []
    size = 0
    for one in _each(pieces, frozenset(columns) or None):
        if some and (size >= BYTES_PER_COPY or not some[-1].joins(one)):
            yield _as_rows(some)
            some, size = [], 0
        some.append(one)
        size += one.batch.nbytes
    if some:
        yield _as_rows(some)


def _each(pieces: Iterable[RunToPack], only: frozenset[str] | None) -> Iterator[_ReadBatch]:
    for piece in pieces:
        at = piece.first
        for batch in piece.batches(only) if piece.run.length else ():
            offsets = None
            if piece.kind & OFFSETS:
                offsets, batch = batch.column(batch.num_columns - 1), without_offsets(batch)
            yield _ReadBatch(batch, at, offsets)
            at += batch.num_rows


def _as_rows(some: Sequence[_ReadBatch]) -> Rows:
    whole = some[0].batch if len(some) == 1 else pa.concat_batches([one.batch for one in some])
    given = [one.offsets for one in some if one.offsets is not None]
    return Rows(whole, pa.concat_arrays(given) if given else pa.arange(some[0].first, some[0].first + len(whole)))


class NewestByKey:
    """The offset of the newest record of each key, for each partition of a topic."""

    def __init__(self, by: CompactBy = "key") -> None:
        self._by = by
        self._found: dict[int, pa.Table] = {}
        self._waiting: dict[int, list[pa.Table]] = {}
        self._size = 0

    def add(self, partition: int, some: Rows) -> None:
        """Take in some records."""
        stands = some.stands()
        keys, offsets = some.keys(self._by), some.offsets
        if stands is not None:
            keys, offsets = keys.filter(stands), offsets.filter(stands)
        if len(keys):
            # Copied, since these may be parts of a chunk, which would stay in memory whole.
            self._wait(partition, pa.table({"key": pa.concat_arrays([keys]), "offset": pa.concat_arrays([offsets])}))

    def add_all(self, later: NewestByKey) -> None:
        """Take in what another instance knows about later records."""
        for known in (later._found, later._waiting):
            for q, tables in known.items():
                for table in tables if isinstance(tables, list) else [tables]:
                    self._wait(q, table)

    def _wait(self, partition: int, table: pa.Table) -> None:
        """Queue a table of keys; once they are many, forget all but the newest of each key."""
        self._waiting.setdefault(partition, []).append(table)
        self._size += int(table.nbytes)
        if self._size > BYTES_BEFORE_THINNING and self._size > self._known:
            self.settle()

    @property
    def _known(self) -> int:
        return int(sum(table.nbytes for table in self._found.values()))

    @property
    def size(self) -> int:
        """The bytes of memory in use."""
        return self._known + self._size

    def settle(self) -> None:
        """Forget all but the newest record of each key.  Records come in the order of their offsets, so the last one of
        a key is its newest."""
        for q, tables in self._waiting.items():
            whole = pa.concat_tables([*([self._found[q]] if q in self._found else []), *tables]).combine_chunks()
            keys = whole.column("key").chunk(0).dictionary_encode()
            last = pc.inverse_permutation(keys.indices, max_index=len(keys.dictionary) - 1)
            self._found[q] = whole.filter(_marked(last, len(keys))).combine_chunks()
        self._waiting, self._size = {}, 0

    def kept(self, partition: int, some: Sequence[Rows], before: int | None, known: bool) -> list[pa.Array[Any]]:
        """Which of these records stay: the newest of their keys, but no tombstones older than `before`.

        `known`: all these records were added here, so a record is the newest of its key if its offset is among those
        kept."""
        stay = self._newest(partition, some) if known else None
        if stay is None:
            stay = pc.invert(self._superseded(partition, some))
        if before is not None and self._by == "key" and (gone := _old_tombstones(some, before)) is not None:
            stay = pc.and_not(stay, gone)
        out, at = [], 0
        for rows in some:
            out.append(stay.slice(at, len(rows.offsets)).combine_chunks())
            at += len(rows.offsets)
        return out

    def _newest(self, partition: int, some: Sequence[Rows]) -> pa.ChunkedArray[Any] | None:
        """Which records are the newest, by their offsets alone; None if some records do not describe the state of a
        key."""
        if any(rows.stands() is not None for rows in some):
            return None
        found = self._found[partition].column("offset").chunk(0)
        return pa.chunked_array([_among(found, rows.offsets) for rows in some], pa.bool_())

    def _superseded(self, partition: int, some: Sequence[Rows]) -> pa.ChunkedArray[Any]:
        offsets = _joined(some)
        if partition not in self._found:
            return pa.chunked_array([pa.repeat(pa.scalar(False), len(offsets))])
        table = self._found[partition]
        keys = pa.chunked_array([rows.keys(self._by) for rows in some], pa.binary())
        place = pc.index_in(keys, value_set=table.column("key").combine_chunks())
        newest = table.column("offset").combine_chunks().take(place)
        return pc.fill_null(pc.greater(newest, offsets), False)


def _joined(some: Sequence[Rows]) -> pa.ChunkedArray[Any]:
    return pa.chunked_array([rows.offsets for rows in some], _NUMBERS)


def _among(found: pa.Array[Any], offsets: pa.Array[Any]) -> pa.Array[Any]:
    """Whether each offset is among those found; both are in rising order."""
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    low = place_of(found, first)
    found = found.slice(low, place_of(found, last + 1) - low)
    if last - first + 1 > len(offsets):
        return pc.is_in(offsets, value_set=found)
    return _marked(pc.subtract(found, pa.scalar(first, _NUMBERS)).cast(pa.int32()), len(offsets))


def _marked(places: pa.Array[Any], count: int) -> pa.Array[Any]:
    """An array of booleans, true at these indices."""
    return pc.inverse_permutation(places, max_index=count - 1).is_valid()


def _old_tombstones(some: Sequence[Rows], before: int) -> pa.ChunkedArray[Any] | None:
    marks = [rows.tombstones() for rows in some]
    if all(mark is None for mark in marks):
        return None
    none = [pa.repeat(pa.scalar(False), len(rows.offsets)) for rows in some]
    stamps = pa.chunked_array([rows.batch.column(0).view(_NUMBERS) for rows in some], _NUMBERS)
    found = [no if mark is None else mark for mark, no in zip(marks, none, strict=True)]
    return pc.and_(pc.less(stamps, pa.scalar(before, _NUMBERS)), pa.chunked_array(found, pa.bool_()))
