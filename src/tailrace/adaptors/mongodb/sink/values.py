"""Values on their way into MongoDB: converts Arrow columns to BSON values.

integers up to 32 bits, up to 64        int32, int64; an unsigned integer beyond int64 becomes a Decimal128
decimal                                 Decimal128; more than 34 digits are refused
timestamp, date                         date, in milliseconds; finer digits are cut off, with a warning
time, interval                          text in the form of ISO 8601
JSON                                    documents, arrays and numbers; a number that no double holds is a Decimal128
list, struct, map                       array, document, document
fields marked by a MongoDB source       ObjectId, Decimal128, UUID, Extended JSON: the value that the source had
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId

from tailrace.adaptors.mongodb.extended_json import from_text
from tailrace.adaptors.mongodb.id_text import id_of
from tailrace.adaptors.rows.json_text import duration_text, interval_text
from tailrace.adaptors.sinks.nested_values import convert_nested

_EPOCH = dt.date(1970, 1, 1)
_DAY_MS = 86_400_000
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)


def values_of(field: pa.Field[Any], column: pa.Array[Any]) -> list[Any]:
    """Return a column's values as BSON values; raise an error (`ValueError`, …) for one that BSON cannot hold."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return values_of(field, column.dictionary_decode())
    marked = _MARKED.get((field.metadata or {}).get(b"bson", b""))
    if marked is not None:
        return [None if value is None else marked(value) for value in column.to_pylist()]
    if isinstance(kind, pa.JsonType):
        return [None if text is None else from_json(text) for text in column.storage.to_pylist()]
    if isinstance(kind, pa.UuidType):
        return [None if raw is None else Binary(raw, 4) for raw in column.storage.to_pylist()]
    if pa.types.is_timestamp(kind):
        times, per = _PER_MS[kind.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else DatetimeMS(number * times // per) for number in numbers]
    if pa.types.is_int64(kind) or pa.types.is_uint32(kind):
        return [None if number is None else Int64(number) for number in column.to_pylist()]
    return [plain(value) for value in column.to_pylist()]


def is_cut_off(column: pa.Array[Any]) -> bool:
    """Return whether a column has timestamps finer than milliseconds."""
    if not pa.types.is_timestamp(column.type):
        return False
    per = _PER_MS[column.type.unit][1]
    return per > 1 and any(number is not None and number % per for number in column.cast(pa.int64()).to_pylist())


def plain(value: Any) -> Any:
    """Convert a Python value, nested to any depth, to a BSON value."""
    if isinstance(value, bool | str | bytes | float | None):
        return value
    if isinstance(value, int):
        return _integer(value)
    return convert_nested(value, plain, _CONVERTED, "BSON")


def from_json(text: str) -> Any:
    """Convert JSON text to BSON documents, arrays and values."""
    return plain(_json.decode(text))


def _integer(value: int) -> Any:
    if value in _INT32:
        return int(value)
    return Int64(value) if value in _INT64 else decimal128(Decimal(value))


def decimal128(value: Decimal) -> Decimal128:
    """Return a decimal as BSON's Decimal128; raise `ValueError` if it has more digits than that holds."""
    made = Decimal128(str(value)) if len(value.as_tuple().digits) <= 34 else None
    if made is None or (value.is_finite() and made.to_decimal() != value):
        raise ValueError(f"{value} has more than the 34 digits of a Decimal128")
    return made


def _number(text: str) -> Any:
    """Return a number of JSON as a double if that has the same value, else as a Decimal128."""
    near = float(text)
    return near if Decimal(repr(near)) == Decimal(text) else decimal128(Decimal(text))


def _day(value: dt.date) -> DatetimeMS:
    return DatetimeMS((value - _EPOCH).days * _DAY_MS)


def _moment(value: dt.datetime) -> DatetimeMS:
    return DatetimeMS(value)


_json = msgspec.json.Decoder(float_hook=_number)
_CONVERTED: dict[type, Callable[[Any], Any]] = {
    Decimal: decimal128,
    Decimal128: lambda value: value,
    dt.date: _day,
    dt.datetime: _moment,
    dt.time: lambda value: value.isoformat(),
    dt.timedelta: duration_text,
    pa.MonthDayNano: interval_text,
    uuid.UUID: lambda value: Binary(value.bytes, 4),
}
_MARKED: dict[bytes, Callable[[Any], Any]] = {
    b"id": id_of,
    b"objectId": ObjectId,
    b"decimal": Decimal128,
    b"uuid": lambda value: Binary(uuid.UUID(value).bytes, 4),
    b"json": from_text,
    b"document": from_text,
}
"""Converters for the marks that a MongoDB source sets in a field's metadata."""
