"""Types of columns: the MySQL type for each Arrow type, and the text form in which values are staged.

Tasks stage every value as text, in a staging table as well as in `Staged`, so one cast for each type of column reads
both.  Bytes are staged as hexadecimal digits.

    text, and types not listed here    longtext, as a key varchar(512) or shorter; compared by their bytes
    bytes                              longblob, as a key varbinary(512)
    bool                               tinyint(1)
    decimal(p,s)                       the same up to decimal(65,30), else longtext
    timestamps, with a zone or without datetime(6), in UTC: TIMESTAMP ends in 2038
    lists, structs, JSON               json
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from tailrace.adaptors.sql.columns import StagedColumn, staged_form

_INTS = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "tinyint unsigned", pa.uint16(): "smallint unsigned", pa.uint32(): "int unsigned",
    pa.uint64(): "bigint unsigned",
}  # fmt: skip
_KINDS = {
    "bool": "tinyint(1)", "float4": "float", "float8": "double", "bytes": "longblob", "date": "date", "time": "time(6)",
    "timestamp": "datetime(6)", "timestamptz": "datetime(6)", "json": "json",
}  # fmt: skip
INDEX_BYTES = 3072
"""The most bytes of an index."""
LONGEST_KEY = 512
"""The most characters of a key column."""


def staged(field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
    """Return the staged column of a field, with the types to try for it, and its values as texts."""
    kind, values = staged_form(array)
    declared = (field.metadata or {}).get(b"mysql", b"").decode()
    types = (*([declared] if declared else []), sql_type(field.type, kind))
    return StagedColumn(field.name, kind, types, declared), _texts(kind, values)


def sql_type(type: pa.DataType, kind: str) -> str:
    """Return the MySQL type for an Arrow type whose values are staged as `kind`."""
    if pa.types.is_dictionary(type):
        return sql_type(type.value_type, kind)
    if type in _INTS:
        return _INTS[type]
    if pa.types.is_decimal(type):
        fits = type.precision <= 65 and 0 <= type.scale <= 30
        return f"decimal({type.precision},{type.scale})" if fits else "longtext"
    if isinstance(type, pa.UuidType):
        return "char(36)"
    return _KINDS.get(kind, "longtext")


def _texts(kind: str, values: pa.Array[Any]) -> pa.Array[Any]:
    if kind == "bytes":
        return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())
    if kind == "bool":
        return values.cast(pa.int8()).cast(pa.string())
    if kind == "float4":  # with the digits of a double, because the server compares a float as a double
        return values.cast(pa.float64()).cast(pa.string())
    if kind == "timestamptz":
        return values.cast(pa.timestamp("us")).cast(pa.string())
    return values.cast(pa.string())


_VARCHAR = re.compile(r"varchar\((\d+)\)")
LONGEST_VARCHAR = 16383
"""The most characters of a varchar whose characters may take four bytes."""


def is_too_long(type: str) -> bool:
    """Return whether a varchar, at the source of a smaller character set, is too long for utf8mb4."""
    found = _VARCHAR.fullmatch(type)
    return found is not None and int(found[1]) > LONGEST_VARCHAR


ENDLESS = {
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), ("varchar", 4)),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), ("varbinary", 1)),
}
"""The types without a length, which an index cannot have: what stands for each in a key, and the bytes of a character.
"""


def indexed_as(kind: str, keys: int) -> str:
    """Return the type of a column of a key of so many columns, in place of a type without a length."""
    name, width = ENDLESS[kind]
    return f"{name}({min(LONGEST_KEY, INDEX_BYTES // width // keys)})"
