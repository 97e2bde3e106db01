"""Rows from the typed columns of a table of a SQL source, for the copy and for the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tailrace.adaptors.rows.record_key import id_text, row_keys
from tailrace.adaptors.rows.rows import make_rows


class ColumnType(Protocol):
    """A column type of the source."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that carries it, unless a value is out of its range."""

    def field(self, name: str, type: pa.DataType | None = None) -> pa.Field[Any]:
        """Return an Arrow field for a column of this type, whose metadata names the type."""


T_co = TypeVar("T_co", bound=ColumnType, covariant=True)


class TypedColumn(Protocol[T_co]):
    """A column of the source."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def type(self) -> T_co:
        """The column's type."""


T = TypeVar("T", bound=ColumnType)
Typed = Callable[[T, "pa.Array[Any]"], "pa.Array[Any]"]
"""A function that makes values of a type from their texts."""


def build_rows(
    namespace: str,
    columns: Sequence[TypedColumn[T]],
    arrays: Sequence[pa.Array[Any]],
    keys: Sequence[str],
    typed: Typed[T],
    **more: Any,
) -> pa.RecordBatch:
    """Make rows of a table, as `make_rows` does.

    An array may hold texts because one of its values is out of the Arrow type's range.  Its rows get the same ids as in
    batches where all values are in range."""
    fields = [column.type.field(column.name, array.type) for column, array in zip(columns, arrays, strict=True)]
    rows = make_rows(namespace, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), keys, **more)
    odd = [n for n, column in enumerate(columns) if arrays[n].type != column.type.arrow and in_id(column.name, keys)]
    if not odd:
        return rows
    shadow = [_ids(columns[n].type, array, typed) if n in odd else array for n, array in enumerate(arrays)]
    made = pa.RecordBatch.from_arrays(shadow, names=[column.name for column in columns])
    return rows.set_column(2, rows.schema.field(2), row_keys(namespace, made, keys))


def in_id(name: str, keys: Sequence[str]) -> bool:
    """Whether a column is part of a row's id.  Without keys the id is the whole row."""
    return not keys or name in keys


def _ids(type: T, texts: pa.Array[Any], typed: Typed[T]) -> pa.Array[Any]:
    """The id texts that these values have in batches where all values are in range."""

    def one(n: int) -> bytes | None:
        return id_text(typed(type, texts.slice(n, 1)))[0].as_py()  # type: ignore[no-any-return]

    return pa.array([one(n) for n in range(len(texts))], pa.binary())
