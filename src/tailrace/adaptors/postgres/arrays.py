"""Arrays: converts PostgreSQL's array texts, {1,NULL,"a b"}, to Arrow lists and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_ITEM = r'"(?:[^"\\]|\\.)*"|[^",{}\\]+'
_ITEMS = re.compile(_ITEM, re.DOTALL)
_WHOLE = re.compile(rf"\{{(?:(?:{_ITEM})(?:,(?:{_ITEM}))*)?\}}", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def elements(text: str) -> list[str | None]:
    """Return the elements of the text of a one-dimensional array.  Raises `ArrowInvalid` for any other text."""
    if '"' not in text and text[0] == "{" and text.count("{") == 1:
        return [None if item == "NULL" else item for item in text[1:-1].split(",")] if text != "{}" else []
    if not _WHOLE.fullmatch(text):
        raise pa.ArrowInvalid(f"an array of several dimensions, or with bounds: {text[:20]}…")
    return [_element(item) for item in _ITEMS.findall(text)]


def _element(item: str) -> str | None:
    if item[0] == '"':
        return _ESCAPED.sub(r"\1", item[1:-1])
    return None if item == "NULL" else item


def lists(text: pa.Array[Any], convert: Callable[[pa.Array[Any]], pa.Array[Any]], type: pa.DataType) -> pa.Array[Any]:
    """Convert array texts to lists, with the elements that `convert` makes of their texts."""
    flat: list[str | None] = []
    offsets: list[int | None] = []
    for value in text.to_pylist():
        offsets.append(None if value is None else len(flat))
        if value is not None:
            flat += elements(value)
    values = convert(pa.array(flat, pa.string()))
    return pa.ListArray.from_arrays(pa.array([*offsets, len(flat)], pa.int32()), values, type=type)


def texts(column: pa.Array[Any]) -> pa.Array[Any]:
    """Convert lists of scalars to array texts."""
    values = column.flatten().cast(pa.string())
    values = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    quoted = pc.fill_null(pc.binary_join_element_wise(pa.scalar('"'), values, pa.scalar('"'), ""), "NULL")
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, quoted), ",")
    whole = pc.binary_join_element_wise(pa.scalar("{"), joined, pa.scalar("}"), "")
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, pa.string()))
