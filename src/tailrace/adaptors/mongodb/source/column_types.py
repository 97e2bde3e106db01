"""Column types: the Arrow type that carries a field's values in the documents of a batch.

bool, text, binary                    bool, string, binary
int32, int64                          int64
double, also mixed with integers      float64, if it holds each of the integers exactly
date of the years 1 to 9999           timestamp in milliseconds, UTC
ObjectId, Decimal128, UUID            text; PostgreSQL has the last two as numeric and uuid
anything else, or a mixture           Extended JSON
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId

from tailrace.adaptors.mongodb.extended_json import to_text

FIRST_DATE, LAST_DATE = -62135596800000, 253402300799999
"""Milliseconds of the years 1 to 9999: the dates that every sink and every function can hold."""
_UUID = 4
_WHOLE = {int, Int64}


def column(name: str, values: Sequence[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
    """Return a field's values as an array and its Arrow field; `values` has None for documents without the field."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values)), pa.field(name, pa.null())
    array, metadata = _typed(kinds, values)
    return array, pa.field(name, array.type, metadata=metadata)


def _typed(kinds: set[type], values: Sequence[Any]) -> tuple[pa.Array[Any], dict[str, str]]:
    if kinds <= _WHOLE:
        return pa.array([None if v is None else int(v) for v in values], pa.int64()), {}
    if float in kinds and kinds <= {*_WHOLE, float} and all(_is_exact(v) for v in values):
        return pa.array([None if v is None else float(v) for v in values], pa.float64()), {}
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in _PLAIN:
            return pa.array(values, _PLAIN[kind]), {}
        if kind is DatetimeMS and all(v is None or FIRST_DATE <= int(v) <= LAST_DATE for v in values):
            stamps = pa.array([None if v is None else int(v) for v in values], pa.int64())
            return stamps.cast(pa.timestamp("ms", "UTC")), {}
        if kind in _TEXT:
            return _texts(str, values), _TEXT[kind]
        if kind is Binary and all(v is None or (v.subtype == _UUID and len(v) == 16) for v in values):
            return _texts(lambda v: str(uuid.UUID(bytes=bytes(v))), values), {"bson": "uuid", "pg": "uuid"}
    return pa.array([None if v is None else to_text(v) for v in values], pa.json_()), {"bson": "json"}


def _texts(text: Callable[[Any], str], values: Sequence[Any]) -> pa.Array[Any]:
    return pa.array([None if v is None else text(v) for v in values], pa.string())


def _is_exact(value: Any) -> bool:
    return not isinstance(value, int) or int(float(value)) == value


_PLAIN: dict[type, pa.DataType] = {bool: pa.bool_(), str: pa.string(), bytes: pa.binary()}
_TEXT: dict[type, dict[str, str]] = {
    ObjectId: {"bson": "objectId"},
    Decimal128: {"bson": "decimal", "pg": "numeric"},
}
