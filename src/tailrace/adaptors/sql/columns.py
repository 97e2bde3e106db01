"""Columns on their way into a table: Arrow values in one of the few kinds that a database can load in bulk.

    text  json  bool  int2  int4  int8  float4  float8  bytes  date  time  timestamp  timestamptz

"json" is text that is JSON.  Values of a type without a kind (decimals, uuids, intervals) are staged as text, which the
server casts to the type of the table's own column.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.json_text import to_json


class StagedColumn(NamedTuple):
    """A column as a task stages it: its kind, and the types that the sink's own column should have, of which the first
    that the server knows is used."""

    name: str
    kind: str
    types: tuple[str, ...]
    declared: str = ""
    """The type that the column has in the source, if the source is of the same kind as the sink; "" if not."""


def staged_form(array: pa.Array[Any]) -> tuple[str, pa.Array[Any]]:
    """Return the kind in which these values are staged, and the values in this kind."""
    type = array.type
    if pa.types.is_dictionary(type):
        return staged_form(array.cast(type.value_type))
    for is_kind, kind, arrow in PLAIN:
        if is_kind(type):
            return kind, array if type == arrow else array.cast(arrow, safe=not pa.types.is_timestamp(type))
    if pa.types.is_timestamp(type):
        return ("timestamptz" if type.tz else "timestamp"), array.cast(pa.timestamp("us", type.tz), safe=False)
    if isinstance(type, pa.JsonType):
        return "json", array.cast(pa.string())
    if pa.types.is_nested(type):
        values = [None if value is None else to_json(value).decode() for value in array.to_pylist()]
        return "json", pa.array(values, pa.string())
    return "text", _text(array)


def _text(array: pa.Array[Any]) -> pa.Array[Any]:
    if isinstance(array.type, pa.UuidType):
        values = array.storage.to_pylist()
        return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in values], pa.string())
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


PLAIN: list[tuple[Any, str, pa.DataType]] = [
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
    (_is_bytes, "bytes", pa.binary()),
    (pa.types.is_date, "date", pa.date32()),
    (pa.types.is_time, "time", pa.time64("us")),
]
"""Arrow types that are staged by a cast at most: a test for the type, its kind, and the Arrow type of that kind."""
