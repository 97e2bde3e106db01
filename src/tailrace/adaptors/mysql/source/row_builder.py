"""The row builder: makes rows of a table's columns, and on request replaces dates that no calendar has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.mysql.catalog import Column
from tailrace.adaptors.mysql.types import typed, without_impossible
from tailrace.adaptors.rows import typed_rows
from tailrace.adaptors.rows.typed_rows import in_id


def build_rows(
    namespace: str,
    columns: Sequence[Column],
    arrays: Sequence[pa.Array[Any]],
    keys: Sequence[str],
    *,
    zero_dates: bool = True,
    **more: Any,
) -> pa.RecordBatch:
    """Make rows as `typed_rows.build_rows` does; without `zero_dates` impossible dates become null, except in ids."""
    if not zero_dates:
        arrays = [
            array if in_id(column.name, keys) else without_impossible(column.type, array)
            for column, array in zip(columns, arrays, strict=True)
        ]
    return typed_rows.build_rows(namespace, columns, arrays, keys, typed, **more)
