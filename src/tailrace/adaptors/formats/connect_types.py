"""Types of Kafka Connect's schemas as Arrow types, and conversions of values that JSON represents in another form."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tailrace.adaptors.formats.received import AS_BYTES, Received, bad

_PRIMITIVE = {
    "boolean": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
_DAYS, _TIME, _MICRO_TIME = pa.date32(), pa.time32("ms"), pa.time64("us")
_LOGICAL = {
    "io.debezium.time.Date": _DAYS, "org.apache.kafka.connect.data.Date": _DAYS,
    "io.debezium.time.Time": _TIME, "org.apache.kafka.connect.data.Time": _TIME,
    "io.debezium.time.MicroTime": _MICRO_TIME,
    "io.debezium.time.Timestamp": pa.timestamp("ms"), "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"), "io.debezium.time.NanoTimestamp": pa.timestamp("ns"),
    "io.debezium.time.ZonedTimestamp": pa.timestamp("us", "UTC"), "io.debezium.data.Json": pa.json_(),
}  # fmt: skip
_DECIMAL, _VARIABLE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
MAX_DIGITS = 76
"""The digits of Arrow's widest decimal."""


@dataclass(frozen=True, slots=True)
class RowTypes:
    """The types of a row's fields, and the conversions of their values from JSON."""

    like: pa.Schema | None = None
    conversions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    def converted(self, record: Received, row: dict[str, Any]) -> dict[str, Any]:
        """Convert the values of a row in place, and return the row.  `BadInput` names the record if a value is not what
        its schema says."""
        for name, convert in self.conversions.items():
            if row.get(name) is not None:
                try:
                    row[name] = convert(row[name])
                except (ValueError, TypeError, KeyError, ArithmeticError):
                    raise bad(record, f"has in its field {name!r} what its schema does not allow", AS_BYTES) from None
        return row


def row_types(schema: Mapping[str, Any]) -> RowTypes:
    """The types of the rows in an envelope, from the envelope's schema."""
    parts: list[dict[str, Any]] = schema.get("fields") or []
    after = next((part for part in parts if part.get("field") == "after"), dict[str, Any]())
    fields, conversions = [], {}
    for one in after.get("fields") or ():
        kind, convert = _type_of(one), _conversion(one)
        if kind is not None:
            fields.append(pa.field(one["field"], kind))
        if convert is not None:
            conversions[one["field"]] = convert
    return RowTypes(pa.schema([pa.field("data", pa.struct(fields))]) if fields else None, conversions)


def _type_of(one: Mapping[str, Any]) -> pa.DataType | None:
    """The Arrow type of a field; None if it is to be inferred from the values."""
    if one.get("name") == _DECIMAL:
        told = one.get("parameters") or {}
        digits, scale = int(told.get("connect.decimal.precision", 38)), int(told.get("scale", 0))
        return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(min(digits, MAX_DIGITS), scale)
    return _LOGICAL.get(one.get("name") or "") or _PRIMITIVE.get(one.get("type") or "")


def _conversion(one: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    name = one.get("name")
    if name == _DECIMAL:
        scale = int((one.get("parameters") or {}).get("scale", 0))
        return lambda value: _decimal(value, scale)
    if name == _VARIABLE:
        return lambda value: _decimal(value["value"], int(value["scale"]))
    if name == "io.debezium.time.ZonedTimestamp":
        return dt.datetime.fromisoformat
    if one.get("type") in ("float", "double"):
        return float  # JSON has no NaN and no infinity: the converter writes their names
    return _bytes if one.get("type") == "bytes" else None


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def _decimal(value: Any, scale: int) -> Decimal:
    """Decode a decimal, which JSON has as a big-endian number in base64, as text or as a number."""
    if isinstance(value, str):
        try:
            number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        except ValueError:
            return Decimal(value)
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
    return Decimal(str(value))
