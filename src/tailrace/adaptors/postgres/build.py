"""Rows from the columns of a table, in a copy and from the log alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.postgres.catalog import Column
from tailrace.adaptors.postgres.types import typed
from tailrace.adaptors.rows import id_text, make_rows, row_keys


def build_rows(
    namespace: str, columns: Sequence[Column], arrays: Sequence[pa.Array[Any]], keys: Sequence[str], **more: Any
) -> pa.RecordBatch:
    """Rows as `make_rows` makes them.  Arrays that are texts, since a value was out of range, give the same ids."""
    fields = [column.type.field(column.name, array.type) for column, array in zip(columns, arrays, strict=True)]
    rows = make_rows(namespace, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), keys, **more)
    odd = [n for n, column in enumerate(columns) if arrays[n].type != column.type.arrow and _in_id(column.name, keys)]
    if not odd:
        return rows
    shadow = [_ids(columns[n], array) if n in odd else array for n, array in enumerate(arrays)]
    made = pa.RecordBatch.from_arrays(shadow, names=[column.name for column in columns])
    return rows.set_column(2, rows.schema.field(2), row_keys(namespace, made, keys))


def _in_id(name: str, keys: Sequence[str]) -> bool:
    return not keys or name in keys


def _ids(column: Column, texts: pa.Array[Any]) -> pa.Array[Any]:
    """The id texts that values have in other batches, where all of them are in range."""

    def one(n: int) -> bytes | None:
        value = typed(column.type, texts.slice(n, 1))
        return id_text(value, alone=True)[0].as_py() if value[0].is_valid else None

    return pa.array([one(n) for n in range(len(texts))], pa.binary())
