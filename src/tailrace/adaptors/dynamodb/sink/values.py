"""Values on their way into DynamoDB: converts Arrow columns to the values of items.

integers, decimals, floats          N; more than 38 digits, NaN and infinity are refused
text, bool, bytes                   S, BOOL, B
timestamp, date, time, interval     S, in the form of ISO 8601
UUID, and other types held as text  S
JSON, list, struct, map             L, M, and the values in them
fields marked by a DynamoDB source  N, SS, NS, BS, B, L, M: the value that the source had
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tailrace.adaptors.dynamodb.item_json import from_plain_text, from_text, number_text
from tailrace.adaptors.rows.json_text import duration_text, interval_text, plain
from tailrace.adaptors.sinks.nested_values import convert_nested
from tailrace.storage.keys import KeyKind

DOCUMENT = b"document"


def mark_of(field: pa.Field[Any]) -> bytes:
    """Return a DynamoDB source's mark of a field: N, json or document; "" for a field without one."""
    found: bytes = (field.metadata or {}).get(b"dynamodb", b"")
    return found


def values_of(field: pa.Field[Any], column: pa.Array[Any]) -> list[Any]:
    """Return a column's values as values of items; raise an error (`ValueError`, …) for one that no item can hold."""
    if pa.types.is_dictionary(column.type):
        return values_of(field, column.dictionary_decode())
    convert = _MARKED.get(mark_of(field))
    if convert is not None and (pa.types.is_string(column.type) or isinstance(column.type, pa.JsonType)):
        return [None if value is None else convert(value) for value in column.to_pylist()]
    if isinstance(column.type, pa.JsonType):
        return [None if text is None else _checked(from_plain_text(text)) for text in column.storage.to_pylist()]
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        texts = column.cast(pa.string()).to_pylist()
        return [None if text is None else text.replace(" ", "T", 1) for text in texts]
    if _is_number(field):
        return [None if value is None else _number(value) for value in column.to_pylist()]
    return [value_of(value) for value in column.to_pylist()]


def kind_of(field: pa.Field[Any]) -> KeyKind:
    """Return the kind of a DynamoDB key whose values a field has: S for text, N for a number, B for bytes."""
    if _is_number(field) or pa.types.is_integer(field.type) or pa.types.is_decimal(field.type):
        return "N"
    return "B" if pa.types.is_binary(field.type) or pa.types.is_fixed_size_binary(field.type) else "S"


def _is_number(field: pa.Field[Any]) -> bool:
    """Return whether a field has numbers as text, as sources of DynamoDB and PostgreSQL mark them."""
    named = (field.metadata or {}).get(b"pg", b"")
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    return is_text and (mark_of(field) == b"N" or (named.startswith(b"numeric") and not named.endswith(b"[]")))


def value_of(value: Any) -> Any:
    """Convert a Python value, nested to any depth, to a value of an item."""
    if value is None or isinstance(value, bool | str | bytes):
        return value
    if isinstance(value, int | Decimal | float):
        return _number(repr(value) if isinstance(value, float) else value)
    return convert_nested(value, value_of, _CONVERTED, "DynamoDB")


def _number(value: str | int | Decimal) -> Decimal:
    try:
        return Decimal(number_text(Decimal(value)))
    except ArithmeticError:
        raise ValueError(f"{value!r} is not a number that DynamoDB holds") from None


def _checked(value: Any) -> Any:
    """Return a value of JSON with its numbers checked; raise `ValueError` for one that DynamoDB cannot hold."""
    return value_of(value)


_CONVERTED: dict[type, Callable[[Any], Any]] = {
    dt.date: plain,
    dt.datetime: plain,
    dt.time: plain,
    dt.timedelta: duration_text,
    pa.MonthDayNano: interval_text,
    uuid.UUID: str,
}
_MARKED: dict[bytes, Callable[[Any], Any]] = {b"N": _number, b"json": from_text, DOCUMENT: from_text}
