"""Types: which Arrow type carries each PostgreSQL type, and how its text becomes a value of that type.

    bool, int2, int4, int8, float4, float8, text, varchar, char(n), name, bytea     the Arrow type of this kind
    numeric(p, s) with p <= 76                                                      decimal128, decimal256
    date, time, timestamp, timestamptz                                              in microseconds
    json, jsonb                                                                     arrow.json
    oid                                                                             int64
    arrays of the above (but bytea), one-dimensional                                lists
    numeric without precision, uuid, interval, timetz, money, inet, ranges, enums, composites, …    text
    regclass and its like, aclitem; types of the server's own statistics and plans    text, also in a PostgreSQL sink

Text is what the type's output function writes with the session's settings (see database); it is the same in a copy and
in the log.  Each field's metadata has the type's name, `pg`, so that a PostgreSQL sink restores the type exactly, and
`pg.base`, the type to use if the sink does not know it.

**A batch carries a column as text if the Arrow type cannot hold one of its values**: NaN among decimals, infinity or a
year outside 1-9999 among timestamps and dates, 24:00:00, or an array of several dimensions.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.postgres.arrays import lists

_TEXTS = {"text", "varchar", "bpchar", "name"}
_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "json": pa.json_(),
    "jsonb": pa.json_(),
}
NATIVE = {"bool", "int2", "int4", "int8", "float4", "float8", "bytea", *_TEXTS}
"""The types that ADBC reads natively.  The server sends all others as text, which is as fast and keeps every value."""


TEXT_ONLY = {
    # Names of objects of one database, which another may not have.  0, written -, names no object at all.
    "regclass", "regcollation", "regconfig", "regdatabase", "regdictionary", "regnamespace", "regoper", "regoperator",
    "regproc", "regprocedure", "regrole", "regtype", "aclitem",
    # Types that no server reads from text.
    "gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list",
    "pg_ndistinct", "pg_node_tree",
}  # fmt: skip
"""Built-in types whose values, and arrays of them, become text in a PostgreSQL sink."""


@dataclass(frozen=True, slots=True)
class Type:
    """A PostgreSQL type, as a column has it.

    `name` is the type in SQL, with its modifiers; `base` a type in SQL for a server that lacks this one; `kind` the
    built-in type that the texts belong to ("" for others); `element` the kind of an array's elements; `output` the
    function that makes the text, `plain` the type that a value must be cast to for this function; `modifier` as in
    pg_attribute."""

    name: str
    base: str = "text"
    kind: str = ""
    element: str = ""
    output: str = ""
    plain: str = ""
    modifier: int = -1

    @property
    def native(self) -> bool:
        """Whether ADBC reads the type natively."""
        return self.kind in NATIVE

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that carries it, unless a value is out of its range."""
        if self.element:
            element = _scalar(self.element, self.modifier)
            return pa.string() if pa.types.is_binary(element) else pa.list_(element)
        return _scalar(self.kind, self.modifier)

    def field(self, name: str, type: pa.DataType | None = None) -> pa.Field[Any]:
        """Return an Arrow field for a column of this type, whose metadata names the type."""
        metadata = {"pg": self.name} | ({"pg.base": self.base} if self.base != self.name else {})
        return pa.field(name, type or self.arrow, metadata=metadata)


def _scalar(kind: str, modifier: int) -> pa.DataType:
    if kind == "numeric":
        return _decimal(modifier)
    return _ARROW.get(kind, pa.string())


def _decimal(modifier: int) -> pa.DataType:
    """The Arrow type for numeric(p, s): a decimal type, or text if none can hold it."""
    if modifier < 4:
        return pa.string()
    precision, scale = modifier - 4 >> 16 & 0xFFFF, modifier - 4 & 0x7FF
    if scale & 0x400 or scale > precision or precision > 76:
        return pa.string()
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def from_texts(type: Type, values: Sequence[bytes | None]) -> pa.Array[Any]:
    """Convert values as the log sends them to an array."""
    if type.kind == "bytea":
        return pa.array([None if v is None else binascii.unhexlify(v[2:]) for v in values], pa.binary())
    return typed(type, pa.array(values, pa.string()))


def typed(type: Type, text: pa.Array[Any]) -> pa.Array[Any]:
    """Convert texts to an array of the type's Arrow type; return the texts themselves if a value is out of its
    range."""
    arrow = type.arrow
    try:
        if pa.types.is_list(arrow):
            return lists(text, lambda values: scalars(type.element, arrow.value_type, values), arrow)
        return scalars(type.kind, arrow, text)
    except (pa.ArrowInvalid, OverflowError):
        return text


def scalars(kind: str, arrow: pa.DataType, text: pa.Array[Any]) -> pa.Array[Any]:
    """Convert texts of a built-in type to values.  Raises `ArrowInvalid` if one is out of range."""
    convert = _CONVERT.get(kind)
    return convert(text) if convert else text.cast(arrow)


def _times(text: pa.Array[Any]) -> pa.Array[Any]:
    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01"), text, " ")
    return stamps.cast(pa.timestamp("us")).cast(pa.time64("us"))


_CONVERT: dict[str, Callable[[pa.Array[Any]], pa.Array[Any]]] = {
    "bool": lambda text: pc.equal(text, "t"),
    "time": _times,
}
