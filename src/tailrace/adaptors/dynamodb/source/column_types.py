"""Column types: the Arrow type that carries an attribute's values in the items of a batch.

S, B, BOOL                       string, binary, bool
N                                text with all digits, marked as a number: numeric in PostgreSQL
anything else, or a mixture      JSON, as `item_json` writes it
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tailrace.adaptors.dynamodb.item_json import number_text, to_text
from tailrace.storage.keys import KeyKind

NUMBER = {"dynamodb": "N", "pg": "numeric"}
JSON = {"dynamodb": "json"}
_PLAIN: dict[type, pa.DataType] = {bool: pa.bool_(), str: pa.string(), bytes: pa.binary()}
_NUMBERS = {int, Decimal}


def column(name: str, values: Sequence[Any]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """Return the Arrow field and the array of an attribute's values; None is for items with NULL or without it."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.field(name, pa.null()), pa.nulls(len(values))
    if kinds <= _NUMBERS:
        return pa.field(name, pa.string(), metadata=NUMBER), _texts(values, number_text)
    if len(kinds) == 1 and (kind := next(iter(kinds))) in _PLAIN:
        return pa.field(name, _PLAIN[kind]), pa.array(values, _PLAIN[kind])
    texts = [None if value is None else to_text(value) for value in values]
    return pa.field(name, pa.json_(), metadata=JSON), pa.array(texts, pa.json_())


def key_column(name: str, kind: KeyKind, values: Sequence[Any]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """Return the Arrow field and the array of a key attribute, whose type depends only on the key's kind."""
    if kind == "N":
        return pa.field(name, pa.string(), nullable=False, metadata=NUMBER), _texts(values, number_text)
    type = pa.string() if kind == "S" else pa.binary()
    return pa.field(name, type, nullable=False), pa.array(values, type)


def _texts(values: Sequence[Any], text: Any) -> pa.Array[Any]:
    return pa.array([None if value is None else text(value) for value in values], pa.string())
