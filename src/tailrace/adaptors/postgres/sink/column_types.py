"""Types of columns: the PostgreSQL types for the kinds in which values are staged, and for Arrow's types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.adaptors.postgres import arrays
from tailrace.adaptors.sql.columns import PLAIN, StagedColumn, staged_form

STAGING = {"json": "text", "bytes": "bytea"}
"""The PostgreSQL type of each kind whose name is not a PostgreSQL type."""
_SQL = {
    "text": "text", "int8": "bigint", "int4": "integer", "int2": "smallint", "bool": "boolean", "bytes": "bytea",
    "float8": "double precision", "float4": "real", "date": "date", "time": "time without time zone",
}  # fmt: skip


def staged(field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
    """Return the staged column of a field, and its values in staged form.  Arrays of PostgreSQL are staged as the texts
    that PostgreSQL writes."""
    metadata = field.metadata or {}
    if metadata.get(b"pg", b"").endswith(b"[]") and pa.types.is_list(array.type):
        kind, values = "text", arrays.texts(array)
    else:
        kind, values = staged_form(array)
    named = [metadata[key].decode() for key in (b"pg", b"pg.base") if key in metadata]
    return StagedColumn(field.name, kind, (*named, sql_type(field.type)), named[0] if named else ""), values


def sql_type(type: pa.DataType) -> str:
    """The PostgreSQL type for columns of an Arrow type."""
    if pa.types.is_dictionary(type):
        return sql_type(type.value_type)
    for is_kind, kind, _ in PLAIN:
        if is_kind(type):
            return _SQL[kind]
    if pa.types.is_decimal(type):
        return f"numeric({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp with time zone" if type.tz else "timestamp without time zone"
    if pa.types.is_list(type) and not pa.types.is_nested(type.value_type):
        return f"{sql_type(type.value_type)}[]"
    return _other(type)


def _other(type: pa.DataType) -> str:
    if isinstance(type, pa.JsonType) or pa.types.is_nested(type):
        return "jsonb"
    if isinstance(type, pa.UuidType):
        return "uuid"
    if pa.types.is_duration(type) or pa.types.is_interval(type):
        return "interval"
    return "numeric" if pa.types.is_uint64(type) else "text"


def as_texts(array: pa.Array[Any]) -> list[str | None]:
    """Staged values as texts that the server can read."""
    if pa.types.is_binary(array.type):
        return [None if value is None else f"\\x{value.hex()}" for value in array.to_pylist()]
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts
