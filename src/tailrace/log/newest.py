"""The newest record of each key: what compaction decides by.  Pure, and in Arrow: no step of Python's per record.

A record takes the place of the earlier ones of its key in its partition, unless it cannot stand for them: it has no
key, it is a row of which the source did not send all fields (see docs/formats/message.md), or it is meant for one
writer of a pipeline alone.  A tombstone says that its key is deleted: a record without a value, or whose op is delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.coordination.rules import in_force
from tailrace.log.chunk import OFFSETS, CompactBy
from tailrace.log.packing import Piece
from tailrace.log.reader import without_offsets
from tailrace.log.record import Op

_OP = pa.scalar(2, pa.uint8())
_DELETE = pa.scalar(int(Op.DELETE), pa.uint8())
_NUMBERS = pa.int64()


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

    def stands(self) -> pa.Array[Any]:
        """Whether each takes the place of the earlier ones of its key."""
        batch = self.batch
        if b"only" in (batch.schema.metadata or {}) and in_force("compact.only"):
            return pa.repeat(pa.scalar(False), batch.num_rows)
        whole = batch.column("key").is_valid()
        if "unset" in batch.schema.names and in_force("compact.unset"):
            whole = pc.and_(whole, batch.column("unset").is_null())
        return whole

    def tombstones(self) -> pa.Array[Any]:
        """Whether each says that its key is deleted, and all of it."""
        deleted = pc.equal(pc.shift_right(self.batch.column("attributes"), _OP), _DELETE)
        if "value" in self.batch.schema.names:
            deleted = pc.or_(deleted, self.batch.column("value").is_null())
        return pc.and_(deleted, self.stands())


def rows_of(piece: Piece) -> Iterable[Rows]:
    """The records of a piece."""
    if not piece.run.length:
        return
    at = piece.first
    for batch in piece.batches():
        if piece.kind & OFFSETS:
            yield Rows(without_offsets(batch), batch.column(batch.num_columns - 1))
        else:
            yield Rows(batch, pa.arange(at, at + batch.num_rows))
            at += batch.num_rows


class Newest:
    """The offset of the newest record of each key, of the partitions of a topic."""

    def __init__(self, by: CompactBy = "key") -> None:
        self._by = by
        self._found: dict[int, pa.Table] = {}
        self._waiting: dict[int, list[pa.Table]] = {}

    def add(self, partition: int, some: Rows) -> None:
        """Take in some more records."""
        stands = some.stands()
        keys, offsets = some.keys(self._by).filter(stands), some.offsets.filter(stands)
        if len(keys):
            self._waiting.setdefault(partition, []).append(pa.table({"key": keys, "offset": offsets}))

    def settle(self) -> int:
        """Forget all but the newest; gives the bytes of memory that takes."""
        for q, tables in self._waiting.items():
            whole = pa.concat_tables([*([self._found[q]] if q in self._found else []), *tables])
            found = whole.group_by("key").aggregate([("offset", "max")]).combine_chunks()
            self._found[q] = pa.table({"key": found.column("key"), "offset": found.column("offset_max")})
        self._waiting = {}
        return sum(table.nbytes for table in self._found.values())

    def kept(self, partition: int, some: Sequence[Rows], before: int | None) -> list[pa.Array[Any]]:
        """Which of these records stay: the newest of their keys, but tombstones only if not older than `before`."""
        offsets = pa.chunked_array([rows.offsets for rows in some], _NUMBERS)
        stay = pc.invert(self._superseded(partition, some, offsets))
        if before is not None and self._by == "key":
            old = pc.less(
                pa.chunked_array([rows.batch.column(0).view(_NUMBERS) for rows in some], _NUMBERS),
                pa.scalar(before, _NUMBERS),
            )
            gone = pc.and_(old, pa.chunked_array([rows.tombstones() for rows in some], pa.bool_()))
            stay = pc.and_not(stay, gone)
        out, at = [], 0
        for rows in some:
            out.append(stay.slice(at, len(rows.offsets)).combine_chunks())
            at += len(rows.offsets)
        return out

    def _superseded(self, partition: int, some: Sequence[Rows], offsets: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        if partition not in self._found:
            return pa.chunked_array([pa.repeat(pa.scalar(False), len(offsets))])
        table = self._found[partition]
        keys = pa.chunked_array([rows.keys(self._by) for rows in some], pa.binary())
        place = pc.index_in(keys, value_set=table.column("key").combine_chunks())
        newest = table.column("offset").combine_chunks().take(place)
        return pc.fill_null(pc.greater(newest, offsets), False)
