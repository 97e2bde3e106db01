"""Types: the Arrow type that carries each MySQL type, and the conversion of values to it.

    tinyint … bigint, signed and unsigned      int8 … int64, uint8 … uint64       float, double     float32, float64
    decimal(p,s)                               decimal128, decimal256             year              int16
    bit(1); bit(n)                             bool; uint64                       json              arrow.json
    date, datetime, timestamp                  date32, timestamp[us], timestamp[us, UTC]
    time                                       time64[us]
    char, varchar, text, enum, set, uuid, inet text
    binary, varbinary, blob, geometry, vector  binary; a geometry as MySQL keeps it: SRID, then WKB

A copy gives values as the texts of SELECT (see `Column.expression`).  The binlog's decoder gives numbers as numbers,
and dates, times and decimals as the texts that SELECT would give.  Each field's metadata has the type's name under the
key `mysql`, so that a MySQL sink restores the type exactly.

**If an Arrow type cannot hold one value of a column, the batch carries the whole column as text**: a date such as
0000-00-00 or 2024-02-00, a time such as 838:59:59 or -1:00:00.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
BYTES = {
    "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", "geometry", "point", "linestring",
    "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection", "geometrycollection",
}  # fmt: skip
_FIXED: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "year": pa.int16(),
    "json": pa.json_(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
CALENDAR = {"date", "datetime", "timestamp"}


@dataclass(frozen=True, slots=True)
class Type:
    """A MySQL type: its kind ("int"), its name in SQL ("int unsigned", "varchar(10)"), and its numbers."""

    kind: str
    name: str
    unsigned: bool = False
    precision: int = 0
    scale: int = 0

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that carries the column, unless a value is out of that type's range."""
        if self.kind in INTEGERS:
            return _INTS[self.unsigned, INTEGERS[self.kind]]
        if self.kind == "decimal":
            kind = pa.decimal128 if self.precision <= 38 else pa.decimal256
            return kind(self.precision, self.scale)
        if self.kind == "bit":
            return pa.bool_() if self.precision == 1 else pa.uint64()
        if self.kind in BYTES:
            return pa.binary()
        return _FIXED.get(self.kind, pa.string())

    def field(self, name: str, type: pa.DataType | None = None) -> pa.Field[Any]:
        """Return the Arrow field of a column of this type, with the MySQL type's name in its metadata."""
        return pa.field(name, type or self.arrow, metadata={"mysql": self.name})


_INTS = {
    (False, 8): pa.int8(), (False, 16): pa.int16(), (False, 32): pa.int32(), (False, 64): pa.int64(),
    (True, 8): pa.uint8(), (True, 16): pa.uint16(), (True, 32): pa.uint32(), (True, 64): pa.uint64(),
}  # fmt: skip


def from_texts(type: Type, values: Sequence[bytes | None]) -> pa.Array[Any]:
    """Make an array of a MySQL type from the texts that SELECT gives."""
    arrow = type.arrow
    if pa.types.is_binary(arrow):
        return pa.array(values, pa.binary())
    return typed(type, pa.array(values, pa.string()))


def from_log(type: Type, values: Sequence[Any]) -> pa.Array[Any]:
    """Make an array of a MySQL type from the values that the binlog's decoder gives."""
    arrow = type.arrow
    if type.kind in _BY_TEXT:
        return typed(type, pa.array(values, pa.string()))
    if isinstance(arrow, pa.JsonType):
        return pa.array(values, pa.string()).cast(arrow)
    return pa.array(values, arrow)


def typed(type: Type, text: pa.Array[Any]) -> pa.Array[Any]:
    """Convert texts to the type's Arrow type; return the texts unchanged if one of them is out of its range."""
    convert = _CONVERT.get(type.kind)
    try:
        return convert(text) if convert else text.cast(type.arrow)
    except (pa.ArrowInvalid, OverflowError):
        return text


def without_impossible(type: Type, array: pa.Array[Any]) -> pa.Array[Any]:
    """Replace dates that no calendar has by null; keep all other values."""
    if type.kind not in CALENDAR or not pa.types.is_string(array.type):
        return array
    values = [None if v is not None and not _possible(type, v) else v for v in array.to_pylist()]
    return typed(type, pa.array(values, pa.string()))


def _possible(type: Type, value: str) -> bool:
    return not pa.types.is_string(typed(type, pa.array([value], pa.string())).type)


def _calendar(arrow: pa.DataType) -> Callable[[pa.Array[Any]], pa.Array[Any]]:
    def convert(text: pa.Array[Any]) -> pa.Array[Any]:
        if pc.any(pc.starts_with(text, "0000")).as_py():  # Arrow has the year 0, Python does not
            raise pa.ArrowInvalid("year 0")
        return text.cast(arrow if not getattr(arrow, "tz", None) else pa.timestamp("us")).cast(arrow)

    return convert


def _times(text: pa.Array[Any]) -> pa.Array[Any]:
    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01"), text, " ")
    return stamps.cast(pa.timestamp("us")).cast(pa.time64("us"))


_BY_TEXT = {*CALENDAR, "time", "decimal"}
"""The kinds whose values the binlog's decoder gives as text."""
_CONVERT: dict[str, Callable[[pa.Array[Any]], pa.Array[Any]]] = {
    **{kind: _calendar(_FIXED[kind]) for kind in CALENDAR},
    "time": _times,
}


def named(kind: str, *, unsigned: bool = False, size: int = 0, scale: int = 0, values: Sequence[str] = ()) -> str:
    """Return a type's name in SQL, without the parts that some servers leave out."""
    if values:
        listed = ",".join("'" + value.replace("'", "''") + "'" for value in values)
        return f"{kind}({listed})"
    text = f"{kind}({size},{scale})" if kind == "decimal" else f"{kind}({size})" if size else kind
    return f"{text} unsigned" if unsigned else text
