"""Shapes: rows as the columns of a file.

_op          insert, update or delete           _timestamp   when
…            the document's fields               _unset      the names of those the source did not send
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.jsontext import interval_text, to_json
from tailrace.adaptors.rows import columns_of, namespace_of, ops_of
from tailrace.errors import Rejected
from tailrace.log.record import Op

OP, TIMESTAMP, UNSET = "_op", "_timestamp", "_unset"
_NAMES = pa.array([op.name.lower() for op in sorted(Op)])
_NO_UNSET = pa.list_(pa.string())


def shaped(batch: pa.RecordBatch, *, plain: bool) -> pa.RecordBatch:
    """Rows as a file's columns; plain: the documents alone, and only those that were inserted or updated."""
    if plain:
        kept = pc.less_equal(ops_of(batch), pa.scalar(int(Op.UPDATE), pa.uint8()))
        return columns_of(batch.filter(kept)).replace_schema_metadata(batch.schema.metadata)
    columns = columns_of(batch)
    for name in (OP, TIMESTAMP, UNSET):
        if name in columns.schema.names:
            raise Rejected(
                f"{namespace_of(batch)!r} has a field {name!r}, which the file's own column would hide; rename it, "
                "or say plain = true",
                namespace=namespace_of(batch),
            )
    arrays = [_NAMES.take(ops_of(batch)), batch.column("timestamp"), *columns.columns]
    names = [OP, TIMESTAMP, *columns.schema.names]
    if "unset" in batch.schema.names:
        arrays.append(_unset_names(batch, columns.schema.names))
        names.append(UNSET)
    return pa.RecordBatch.from_arrays(arrays, names=names).replace_schema_metadata(batch.schema.metadata)


def _unset_names(batch: pa.RecordBatch, names: list[str]) -> pa.Array[Any]:
    encoded = batch.column("unset").dictionary_encode()
    lists = [[n for i, n in enumerate(names) if bits[i // 8] >> i % 8 & 1] for bits in encoded.dictionary.to_pylist()]
    return pa.array(lists, _NO_UNSET).take(encoded.indices)


def joins(first: pa.Schema, second: pa.Schema) -> pa.Schema | None:
    """The schema of a file that can hold both, without changing a value; None if there is none."""
    if first.equals(second, check_metadata=True):
        return first
    same = [n for n in first.names if n != UNSET] == [n for n in second.names if n != UNSET]
    if not same or first.metadata != second.metadata:
        return None
    try:
        return pa.unify_schemas([first, second], promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in a schema that holds it."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        batch.column(f.name).cast(f.type) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def without(batch: pa.RecordBatch, unfit: Any) -> pa.RecordBatch:
    """A batch with the columns of unfit types written as text."""
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
    """Values as text: JSON for what has parts, base64 for bytes, ISO 8601 for intervals."""
    if isinstance(column.type, pa.JsonType):
        return column.storage.cast(pa.string())
    return pa.array([None if value is None else _text(value) for value in column.to_pylist()], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, pa.MonthDayNano):
        return interval_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return to_json(value).decode() if isinstance(value, (dict, list, tuple)) else str(value)


def parquet_unfit(kind: pa.DataType) -> bool:
    """What Parquet has no place for."""
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(parquet_unfit(kind.field(n).type) for n in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return parquet_unfit(kind.value_type)
    return bool(pa.types.is_interval(kind) or pa.types.is_union(kind))


def csv_unfit(kind: pa.DataType) -> bool:
    """What a line of text has no place for."""
    return bool(
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_interval(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )
