"""Columns on their way into a sink: Arrow types as PostgreSQL's, in a form that ADBC writes.

A column is staged as the built-in type that holds it, or as text, which the server casts to the table's own type.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.postgres import arrays

_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode


class Staged(NamedTuple):
    """A column as it is staged: the type it has there ("json" is text that is JSON), and the types that the sink's own
    column should have: the first that it knows."""

    name: str
    kind: str
    types: tuple[str, ...]


def staged(field: pa.Field[Any], array: pa.Array[Any]) -> tuple[Staged, pa.Array[Any]]:
    """A field's values in a form that can be staged."""
    kind, values = _form(field, array)
    named = [field.metadata[key].decode() for key in (b"pg", b"pg.base") if field.metadata and key in field.metadata]
    return Staged(field.name, kind, (*named, sql_type(field.type))), values


def _form(field: pa.Field[Any], array: pa.Array[Any]) -> tuple[str, pa.Array[Any]]:
    type = array.type
    if pa.types.is_dictionary(type):
        return _form(field, array.cast(type.value_type))
    for is_kind, kind, arrow in _PLAIN:
        if is_kind(type):
            return kind, array if type == arrow else array.cast(arrow, safe=not pa.types.is_timestamp(type))
    if pa.types.is_timestamp(type):
        return ("timestamptz" if type.tz else "timestamp"), array.cast(pa.timestamp("us", type.tz), safe=False)
    if isinstance(type, pa.JsonType):
        return "json", array.cast(pa.string())
    if pa.types.is_nested(type):
        return _nested(field, array)
    return "text", _text(array)


def _nested(field: pa.Field[Any], array: pa.Array[Any]) -> tuple[str, pa.Array[Any]]:
    if (field.metadata or {}).get(b"pg", b"").endswith(b"[]") and pa.types.is_list(array.type):
        return "text", arrays.texts(array)
    values = [None if value is None else _json(value).decode() for value in array.to_pylist()]
    return "json", pa.array(values, pa.string())


def _text(array: pa.Array[Any]) -> pa.Array[Any]:
    if isinstance(array.type, pa.UuidType):
        return pa.array(
            [None if v is None else str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()], pa.string()
        )
    if pa.types.is_duration(array.type):
        micros = array.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(micros, pa.scalar("microseconds"), " ")
    if pa.types.is_interval(array.type):
        return pa.array([None if v is None else _interval(v) for v in array.to_pylist()], pa.string())
    return array.cast(pa.string())


def _interval(value: Any) -> str:
    return f"{value.months} months {value.days} days {value.nanoseconds // 1000} microseconds"


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _is_bytes(type: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(is_kind(type) for is_kind in kinds)


_PLAIN: list[tuple[Any, str, pa.DataType]] = [
    (_is_text, "text", pa.string()),
    (pa.types.is_int64, "int8", pa.int64()),
    (pa.types.is_int32, "int4", pa.int32()),
    (pa.types.is_int16, "int2", pa.int16()),
    (pa.types.is_boolean, "bool", pa.bool_()),
    (pa.types.is_float64, "float8", pa.float64()),
    (pa.types.is_float32, "float4", pa.float32()),
    (pa.types.is_float16, "float4", pa.float32()),
    (pa.types.is_int8, "int2", pa.int16()),
    (pa.types.is_uint8, "int2", pa.int16()),
    (pa.types.is_uint16, "int4", pa.int32()),
    (pa.types.is_uint32, "int8", pa.int64()),
    (_is_bytes, "bytea", pa.binary()),
    (pa.types.is_date, "date", pa.date32()),
    (pa.types.is_time, "time", pa.time64("us")),
]
_SQL = {
    "text": "text", "int8": "bigint", "int4": "integer", "int2": "smallint", "bool": "boolean", "bytea": "bytea",
    "float8": "double precision", "float4": "real", "date": "date", "time": "time without time zone",
}  # fmt: skip


def sql_type(type: pa.DataType) -> str:
    """The PostgreSQL type for columns of an Arrow type."""
    if pa.types.is_dictionary(type):
        return sql_type(type.value_type)
    for is_kind, kind, _ in _PLAIN:
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
    """Staged values as texts that the server reads."""
    if pa.types.is_binary(array.type):
        return [None if value is None else f"\\x{value.hex()}" for value in array.to_pylist()]
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts
