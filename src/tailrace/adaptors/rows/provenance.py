"""Provenance of rows: columns beside the documents that say where each change stands.

    partition     int32    the partition of the commit log        offset     int64    its offset there
    transaction   int64    the source's transaction               position   int64    the change's number in it

The commit log keeps `transaction` and `position`, if the source has them.  `partition` and `offset` are added when rows
are read from the commit log, before any function.  What a column that a batch lacks would say is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.rows.message import NOWHERE, Place

PLACE: tuple[str, ...] = Place._fields
TYPES: dict[str, pa.DataType] = {
    "partition": pa.int32(), "offset": pa.int64(), "transaction": pa.int64(), "position": pa.int64(),
}  # fmt: skip


def placed(batch: pa.RecordBatch, partition: int, offsets: pa.Array[Any]) -> pa.RecordBatch:
    """Add the columns `partition` and `offset` to rows of one partition of the commit log."""
    where = pa.repeat(pa.scalar(partition, TYPES["partition"]), batch.num_rows)
    return batch.append_column("partition", where).append_column("offset", offsets)


def place_columns(batch: pa.RecordBatch) -> dict[str, pa.Array[Any]]:
    """Return the four columns of a batch; those that it does not have are null."""
    there = set(batch.schema.names)
    return {name: batch.column(name) if name in there else pa.nulls(batch.num_rows, TYPES[name]) for name in PLACE}


def places_of(batch: pa.RecordBatch) -> list[Place]:
    """Return the place of each row."""
    if not any(name in batch.schema.names for name in PLACE):
        return [NOWHERE] * batch.num_rows
    columns = [column.to_pylist() for column in place_columns(batch).values()]
    return list(map(Place, *columns))


def with_places(batch: pa.RecordBatch, places: Sequence[Place]) -> pa.RecordBatch:
    """Add places to rows that have none yet.  A column that would be all null is left out."""
    for name, values in zip(PLACE, zip(*places, strict=True), strict=True):
        if any(value is not None for value in values):
            batch = batch.append_column(name, pa.array(values, TYPES[name]))
    return batch
