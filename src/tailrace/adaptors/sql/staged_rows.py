"""Staged rows: what a task stages, in a table of its own or, if they are few, within the task's result.

    <state>.stage_<when>_<unique>    n, op, unset, c0, c1, …        `when` by the server's clock

They are folded changes of one namespace: one row for each id, numbered by `n`.  Without rows they only say which
columns the namespace has.  The driver merges the staged rows of a namespace in the order in which they were staged.  A
table of very many columns has all of them in one, `rest`, where the dialect says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.fold import Folded
from tailrace.adaptors.sinks.folding import BATCH_BYTES, FoldedBatch, folded_batches
from tailrace.adaptors.sql.columns import StagedColumn
from tailrace.adaptors.sql.dialect import Dialect

MANY_ROWS = 1000
"""From this many rows on they are staged in the order of their id."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Some staged rows.  They are in `table`, in the schema of the state, or in `data`, as an Arrow stream."""

    namespace: str
    keys: tuple[str, ...]
    columns: tuple[StagedColumn, ...]
    rows: int
    deletes: int
    partial: int
    wide: bool = False
    copied: bool = False
    """Whether all rows come from a copy."""
    open: bool = False
    """Whether a whole document also sets the columns that these rows do not have back to their defaults."""
    table: str = ""
    data: bytes = b""

    @property
    def upserts(self) -> int:
        """The number of rows that are whole documents."""
        return self.rows - self.deletes - self.partial

    @property
    def id_columns(self) -> list[int]:
        """The numbers of the columns that make up the id; all columns if there is no key."""
        return [n for n, column in enumerate(self.columns) if not self.keys or column.name in self.keys]


def staged_rows(
    dialect: Dialect, batches: Iterable[pa.RecordBatch], size: int = BATCH_BYTES
) -> Iterator[tuple[StagedRows, pa.RecordBatch]]:
    """Fold rows, which come in the order of the commit log; yield what is to be staged, and the values."""
    for batch in folded_batches(batches, size):
        yield _formed(dialect, batch)


def _formed(dialect: Dialect, batch: FoldedBatch) -> tuple[StagedRows, pa.RecordBatch]:
    folded = _sorted(batch.folded, batch.keys)
    documents = folded.columns
    formed = [dialect.staged(field, documents.column(n)) for n, field in enumerate(documents.schema)]
    wide = len(formed) >= dialect.wide_columns
    columns = tuple(column for column, _ in formed)
    counts = folded.rows, batch.deletes, batch.partial
    rows = StagedRows(batch.namespace, batch.keys, columns, *counts, wide, batch.copied, batch.open)
    return rows, _staging(dialect, folded, [values for _, values in formed], wide)


def _sorted(folded: Folded, keys: Sequence[str]) -> Folded:
    """Sort many rows by the first field of their id, because an index is filled twice as fast in its own order."""
    if folded.rows < MANY_ROWS or not keys:
        return folded
    try:
        return folded.take(pc.sort_indices(folded.columns.column(keys[0])))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return folded  # Arrow cannot sort this type


def _staging(dialect: Dialect, folded: Folded, arrays: list[pa.Array[Any]], wide: bool) -> pa.RecordBatch:
    first = [pa.arange(0, folded.rows), folded.ops.cast(pa.int16()), folded.unset]
    if wide:
        return pa.RecordBatch.from_arrays([*first, _rest(dialect, arrays)], names=["n", "op", "unset", "rest"])
    names = ["n", "op", "unset", *(f"c{n}" for n in range(len(arrays)))]
    return pa.RecordBatch.from_arrays([*first, *arrays], names=names)


def _rest(dialect: Dialect, arrays: list[pa.Array[Any]]) -> pa.Array[Any]:
    """All columns as one column, which has a list of texts in each row."""
    rows, count = len(arrays[0]), len(arrays)
    texts = pa.concat_arrays([pa.array(dialect.as_texts(array), pa.string()) for array in arrays])
    order = pa.array([column * rows + row for row in range(rows) for column in range(count)], pa.int64())
    offsets = pa.array(range(0, rows * count + 1, count), pa.int32())
    return pa.ListArray.from_arrays(offsets, texts.take(order))


def new_table(when: int) -> str:
    """A new name for a staging table made at `when`, by the server's clock."""
    return f"stage_{when:x}_{uuid.uuid4().hex}"


def made_at(table: str) -> int:
    """When a staging table was made, read from its name."""
    return int(table.split("_")[1], 16)


def staged_id(rows: StagedRows, row: pa.RecordBatch) -> str:
    """The id of a staged row, for messages."""
    if rows.wide:
        values = row.column("rest").to_pylist()[0]
        return "\x1f".join(str(values[n]) for n in rows.id_columns)
    return "\x1f".join(str(row.column(f"c{n}")[0].as_py()) for n in rows.id_columns)
