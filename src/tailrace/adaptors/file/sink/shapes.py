"""Shapes: the columns of a file for rows.

_op            insert, update or delete            _timestamp   when the change happened
_partition     the commit log's partition          _offset      the offset in that partition
_transaction   the source's transaction            _position    the number of the change in that transaction
…              the document's fields               _unset       the names of fields that the source did not send

If a document has a field with one of these names, all of tailrace's own columns begin with more underscores, as many as
it takes.  The file's metadata has this prefix (`own`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.json_text import interval_text, to_json
from tailrace.adaptors.rows.provenance import PLACE, place_columns
from tailrace.adaptors.rows.removal import as_columns
from tailrace.adaptors.rows.rows import columns_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import left_as_they_are, unset_names
from tailrace.log.record import Op

OP, TIMESTAMP, UNSET = "op", "timestamp", "unset"
OWN = (OP, TIMESTAMP, *PLACE, UNSET)
"""The names of tailrace's own columns, without their prefix."""
_NAMES = pa.array([op.name.lower() for op in sorted(Op)])
MOST_DIGITS = 38


def shaped(batch: pa.RecordBatch, *, plain: bool) -> pa.RecordBatch:
    """The columns of a file for rows.  With `plain` only the documents, and only of inserts and updates."""
    if plain:
        kept = pc.less_equal(ops_of(batch), pa.scalar(int(Op.UPDATE), pa.uint8()))
        return columns_of(batch.filter(kept)).replace_schema_metadata(batch.schema.metadata)
    batch = as_columns(batch, namespace_of(batch))
    columns = columns_of(batch)
    prefix = _free_prefix(columns.schema.names)
    where = place_columns(batch)
    arrays = [_NAMES.take(ops_of(batch)), batch.column("timestamp"), *where.values(), *columns.columns]
    names = [*(prefix + name for name in (OP, TIMESTAMP, *where)), *columns.schema.names]
    if "unset" in batch.schema.names:
        arrays.append(unset_names(left_as_they_are(batch), columns.schema.names))
        names.append(prefix + UNSET)
    metadata = {**batch.schema.metadata, b"own": prefix.encode()}
    return pa.RecordBatch.from_arrays(arrays, names=names).replace_schema_metadata(metadata)


def _free_prefix(taken: Collection[str]) -> str:
    prefix = "_"
    while any(prefix + name in taken for name in OWN):
        prefix += "_"
    return prefix


def own_name(schema: pa.Schema, name: str) -> str:
    """The name of one of tailrace's own columns in a file.  Files of earlier versions have one underscore."""
    prefix = (schema.metadata or {}).get(b"own", b"_")
    return str(prefix.decode()) + name


def own_columns(schema: pa.Schema) -> list[str]:
    """The names of tailrace's own columns that a file has; a file of an earlier version has fewer."""
    return [name for name in (own_name(schema, own) for own in OWN) if name in schema.names]


def joins(first: pa.Schema, second: pa.Schema) -> pa.Schema | None:
    """The schema of a file that can hold rows of both schemas without changing a value; None if there is none."""
    if first.equals(second, check_metadata=True):
        return first
    unset = own_name(first, UNSET)
    same = [n for n in first.names if n != unset] == [n for n in second.names if n != unset]
    if not same or first.metadata != second.metadata:
        return None
    try:
        return pa.unify_schemas([first, second], promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to a wider schema; columns that the batch lacks are null."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        batch.column(f.name).cast(f.type) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def without(batch: pa.RecordBatch, unfit: Any) -> pa.RecordBatch:
    """The batch with the columns for whose types `unfit` is true as text."""
    if not any(unfit(field.type) for field in batch.schema):
        return batch
    arrays, fields = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if unfit(field.type):
            column = as_text(column)
            field = pa.field(field.name, pa.string())
        arrays.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=batch.schema.metadata))


def as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Values as text, for a file whose format lacks their type: nested ones as JSON, bytes as base64, intervals as ISO
    8601."""
    if isinstance(column.type, pa.JsonType):
        return column.storage.cast(pa.string())
    return pa.array([None if value is None else _text(value) for value in column.to_pylist()], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, pa.MonthDayNano):
        return interval_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return to_json(value).decode() if isinstance(value, (dict, list, tuple)) else str(value)


def parquet_unfit(kind: pa.DataType) -> bool:
    """Whether Parquet lacks a type, or other programs cannot read it: DuckDB makes floats of decimals with more than 38
    digits, and Spark and Polars refuse the file."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision > MOST_DIGITS)
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(parquet_unfit(kind.field(n).type) for n in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return parquet_unfit(kind.value_type)
    return bool(pa.types.is_interval(kind) or pa.types.is_union(kind))


def csv_unfit(kind: pa.DataType) -> bool:
    """Whether CSV lacks a type, so that a file has text instead."""
    return bool(
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_interval(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )
