"""Types: which Arrow type carries each MySQL type, and how values become that.

    tinyint … bigint, signed and unsigned      int8 … int64, uint8 … uint64       float, double     float32, float64
    decimal(p,s)                               decimal128, decimal256             year              int16
    bit(1); bit(n)                             bool; uint64                       json              arrow.json
    date, datetime, timestamp                  date32, timestamp[us], timestamp[us, UTC]
    time                                       time64[us]
    char, varchar, text, enum, set, uuid, inet text
    binary, varbinary, blob, geometry, vector  binary; a geometry as MySQL keeps it: SRID, then WKB

Values come as the server writes them in SELECT (see `Column.expression`), or as the log has them: numbers as numbers,
all that has a calendar or a comma as the same text.  Each field's metadata has the type's name, `mysql`, so that a
MySQL sink restores it exactly.

**What an Arrow type cannot hold, the batch carries as text**: a column with 0000-00-00 or 2024-02-00 among dates, with
838:59:59 or -1:00:00 among times.
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
    """A MySQL type: its kind ("int"), its name as SQL writes it ("int unsigned", "varchar(10)"), and its numbers."""

    kind: str
    name: str
    unsigned: bool = False
    precision: int = 0
    scale: int = 0

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that carries it, unless a value is out of its range."""
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
        """A column of this type, as a field that says so."""
        return pa.field(name, type or self.arrow, metadata={"mysql": self.name})


_INTS = {
    (False, 8): pa.int8(), (False, 16): pa.int16(), (False, 32): pa.int32(), (False, 64): pa.int64(),
    (True, 8): pa.uint8(), (True, 16): pa.uint16(), (True, 32): pa.uint32(), (True, 64): pa.uint64(),
}  # fmt: skip


def from_texts(type: Type, values: Sequence[bytes | None]) -> pa.Array[Any]:
    """Values as SELECT gives them → an array."""
    arrow = type.arrow
    if pa.types.is_binary(arrow):
        return pa.array(values, pa.binary())
    return typed(type, pa.array(values, pa.string()))


def from_log(type: Type, values: Sequence[Any]) -> pa.Array[Any]:
    """Values as the log's decoder gives them → an array."""
    arrow = type.arrow
    if type.kind in _BY_TEXT:
        return typed(type, pa.array(values, pa.string()))
    if isinstance(arrow, pa.JsonType):
        return pa.array(values, pa.string()).cast(arrow)
    return pa.array(values, arrow)


def typed(type: Type, text: pa.Array[Any]) -> pa.Array[Any]:
    """Texts → an array of the type's Arrow type, or the texts themselves if one is out of its range."""
    convert = _CONVERT.get(type.kind)
    try:
        return convert(text) if convert else text.cast(type.arrow)
    except (pa.ArrowInvalid, OverflowError):
        return text


def without_impossible(type: Type, array: pa.Array[Any]) -> pa.Array[Any]:
    """Dates that no calendar has made null; other values as they are."""
    if type.kind not in CALENDAR or not pa.types.is_string(array.type):
        return array
    values = [None if v is not None and not _possible(type, v) else v for v in array.to_pylist()]
    return typed(type, pa.array(values, pa.string()))


def _possible(type: Type, value: str) -> bool:
    return not pa.types.is_string(typed(type, pa.array([value], pa.string())).type)


def _calendar(arrow: pa.DataType) -> Callable[[pa.Array[Any]], pa.Array[Any]]:
    def convert(text: pa.Array[Any]) -> pa.Array[Any]:
        if pc.any(pc.starts_with(text, "0000")).as_py():  # a year that Arrow has, and Python has not
            raise pa.ArrowInvalid("year 0")
        return text.cast(arrow if not getattr(arrow, "tz", None) else pa.timestamp("us")).cast(arrow)

    return convert


def _times(text: pa.Array[Any]) -> pa.Array[Any]:
    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01"), text, " ")
    return stamps.cast(pa.timestamp("us")).cast(pa.time64("us"))


_BY_TEXT = {*CALENDAR, "time", "decimal"}
"""What the log's decoder gives as text."""
_CONVERT: dict[str, Callable[[pa.Array[Any]], pa.Array[Any]]] = {
    **{kind: _calendar(_FIXED[kind]) for kind in CALENDAR},
    "time": _times,
}


def named(kind: str, *, unsigned: bool = False, size: int = 0, scale: int = 0, values: Sequence[str] = ()) -> str:
    """A type as SQL writes it, without what a server may leave out."""
    if values:
        listed = ",".join("'" + value.replace("'", "''") + "'" for value in values)
        return f"{kind}({listed})"
    text = f"{kind}({size},{scale})" if kind == "decimal" else f"{kind}({size})" if size else kind
    return f"{text} unsigned" if unsigned else text
