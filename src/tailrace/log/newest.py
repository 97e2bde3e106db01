"""The newest record of each key: what compaction decides by.  Pure, and in Arrow: no step of Python's per record.

A record takes the place of the earlier ones of its key in its partition, unless it cannot stand for them: it has no
key, it is a row of which the source did not send all fields (see docs/formats/message.md), or it is meant for one
writer of a pipeline alone.  A tombstone says that its key is deleted: a record without a value, or whose op is delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.coordination.rules import in_force
from tailrace.log.chunk import OFFSETS, CompactBy
from tailrace.log.fetched import place_of, without_offsets
from tailrace.log.packing import Piece
from tailrace.log.record import Op

_OP = pa.scalar(2, pa.uint8())
_DELETE = pa.scalar(int(Op.DELETE), pa.uint8())
_NUMBERS = pa.int64()
SOME = 64 * 1024 * 1024
"""Bytes of keys and offsets that are taken in before all but the newest are forgotten."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one partition, and the offset of each."""

    batch: pa.RecordBatch
    offsets: pa.Array[Any]

    def keys(self, by: CompactBy) -> pa.Array[Any]:
        """What each counts as a state of; null: of nothing."""
        metadata = self.batch.schema.metadata or {}
        if by == "namespace" and b"namespace" in metadata:
            return pa.repeat(pa.scalar(metadata[b"namespace"], pa.binary()), self.batch.num_rows)
        return self.batch.column("key")

    def stands(self) -> pa.Array[Any] | None:
        """Whether each takes the place of the earlier ones of its key; None: all do."""
        batch = self.batch
        if b"only" in (batch.schema.metadata or {}) and in_force("compact.only"):
            return pa.repeat(pa.scalar(False), batch.num_rows)
        partial = "unset" in batch.schema.names and in_force("compact.unset")
        if not partial and not batch.column("key").null_count:
            return None
        whole = batch.column("key").is_valid()
        return pc.and_(whole, batch.column("unset").is_null()) if partial else whole

    def tombstones(self) -> pa.Array[Any] | None:
        """Whether each says that its key is deleted, and all of it; None: none does."""
        attributes, value = self.batch.column("attributes"), self.batch.schema.get_field_index("value")
        nulls = self.batch.column(value).null_count if value >= 0 else 0
        if not nulls and (pc.max(attributes).as_py() or 0) >> 2 < Op.DELETE:
            return None
        deleted = pc.equal(pc.shift_right(attributes, _OP), _DELETE)
        if nulls:
            deleted = pc.or_(deleted, self.batch.column(value).is_null())
        stands = self.stands()
        return deleted if stands is None else pc.and_(deleted, stands)


def rows_of(pieces: Iterable[Piece], *columns: str) -> list[Rows]:
    """The records of some neighbouring pieces, those of the same schema together; only these columns, if any."""
    found: list[tuple[pa.RecordBatch, pa.Array[Any]]] = []
    for piece in pieces:
        at = piece.first
        for batch in piece.batches() if piece.run.length else ():
            if piece.kind & OFFSETS:
                offsets, batch = batch.column(batch.num_columns - 1), without_offsets(batch)
            else:
                offsets, at = pa.arange(at, at + batch.num_rows), at + batch.num_rows
            wanted = [name for name in batch.schema.names if name in columns] if columns else []
            found.append((batch.select(wanted) if wanted else batch, offsets))
    alike = groupby(found, lambda one: one[0].schema.to_string(show_schema_metadata=True))
    return [_together([*some]) for _, some in alike]


def _together(some: Sequence[tuple[pa.RecordBatch, pa.Array[Any]]]) -> Rows:
    batches, offsets = zip(*some, strict=True)
    if len(some) == 1:
        return Rows(batches[0], offsets[0])
    return Rows(pa.concat_batches(batches), pa.concat_arrays(offsets))


class Newest:
    """The offset of the newest record of each key, of the partitions of a topic."""

    def __init__(self, by: CompactBy = "key") -> None:
        self._by = by
        self._found: dict[int, pa.Table] = {}
        self._sorted: dict[int, pa.Array[Any]] = {}
        self._waiting: dict[int, list[pa.Table]] = {}
        self._size = 0

    def add(self, partition: int, some: Rows) -> None:
        """Take in some more records."""
        stands = some.stands()
        keys, offsets = some.keys(self._by), some.offsets
        if stands is not None:
            keys, offsets = keys.filter(stands), offsets.filter(stands)
        if len(keys):
            self._waiting.setdefault(partition, []).append(pa.table({"key": keys, "offset": offsets}))
            self._size += int(keys.nbytes + offsets.nbytes)

    @property
    def size(self) -> int:
        """The bytes of memory that it takes.  From time to time all but the newest are forgotten."""
        known = int(sum(table.nbytes for table in self._found.values()))
        if self._size > max(SOME, known):
            self.settle()
            return int(sum(table.nbytes for table in self._found.values()))
        return known + self._size

    def settle(self) -> None:
        """Forget all but the newest."""
        for q, tables in self._waiting.items():
            whole = pa.concat_tables([*([self._found[q]] if q in self._found else []), *tables])
            found = whole.group_by("key", use_threads=False).aggregate([("offset", "max")]).combine_chunks()
            self._found[q] = pa.table({"key": found.column("key"), "offset": found.column("offset_max")})
            self._sorted[q] = _sorted(found.column("offset_max"))
        self._waiting, self._size = {}, 0

    def kept(self, partition: int, some: Sequence[Rows], before: int | None, known: bool) -> list[pa.Array[Any]]:
        """Which of these records stay: the newest of their keys, but tombstones only if not older than `before`.

        `known`: these were taken in, so that one that stands is the newest if its offset is among the newest."""
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
        """By offsets alone; None if there are records that do not stand for their key."""
        if any(rows.stands() is not None for rows in some):
            return None
        found = self._sorted[partition]
        low, high = place_of(found, some[0].offsets[0].as_py()), place_of(found, some[-1].offsets[-1].as_py() + 1)
        return pc.is_in(_joined(some), value_set=found.slice(low, high - low))

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


def _sorted(offsets: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    whole = offsets.combine_chunks()
    return whole.take(pc.sort_indices(whole))


def _old_tombstones(some: Sequence[Rows], before: int) -> pa.ChunkedArray[Any] | None:
    marks = [rows.tombstones() for rows in some]
    if all(mark is None for mark in marks):
        return None
    none = [pa.repeat(pa.scalar(False), len(rows.offsets)) for rows in some]
    stamps = pa.chunked_array([rows.batch.column(0).view(_NUMBERS) for rows in some], _NUMBERS)
    found = [no if mark is None else mark for mark, no in zip(marks, none, strict=True)]
    return pc.and_(pc.less(stamps, pa.scalar(before, _NUMBERS)), pa.chunked_array(found, pa.bool_()))
