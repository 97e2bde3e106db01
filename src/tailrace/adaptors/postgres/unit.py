"""Units: what a task stages, in a table of its own or, if it is little, within the unit itself.

    tailrace.stage_<when>_<unique>    n, op, unset, c0, c1, …      unlogged; `when` by the server's clock

A unit has changes of one namespace, folded: one row for each id, numbered by `n`.  The units of a namespace are applied
in the order in which they were staged.  Tables of many columns have them all in one array, `rest`, since a row of a
table must fit into a block.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.postgres import columns, names
from tailrace.adaptors.postgres.columns import Staged
from tailrace.adaptors.postgres.fold import fold
from tailrace.adaptors.rows import keys_of, namespace_of
from tailrace.log.record import Op

UNIT_BYTES = 32 * 1024 * 1024
INLINE_BYTES = 16 * 1024
"""A unit this small travels within itself: no task needs a connection for it."""
SHARE_BYTES = 64 * 1024
"""How much of a task's share may travel that way."""
MANY = 1000
"""From so many rows on their order counts."""
WIDE = 400
"""From so many columns on they are staged as one."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Some staged rows.  `table` has them, in the schema of the state, or `data`, as an Arrow stream."""

    namespace: str
    keys: tuple[str, ...]
    columns: tuple[Staged, ...]
    rows: int
    deletes: int
    partial: int
    wide: bool = False
    table: str = ""
    data: bytes = b""

    @property
    def upserts(self) -> int:
        """How many rows are whole documents."""
        return self.rows - self.deletes - self.partial


def units(batches: Iterable[pa.RecordBatch], size: int = UNIT_BYTES) -> Iterator[tuple[Unit, pa.RecordBatch]]:
    """Rows in log order → units, with what is to be staged for each."""
    held: dict[str, list[pa.RecordBatch]] = {}
    sizes: dict[str, int] = {}
    for given in batches:
        batch = _with_unset(given)
        name = namespace_of(batch)
        before = held.setdefault(name, [])
        if before and (sizes[name] >= size or not _alike(before[-1], batch)):
            yield from _unit(before)
            held[name] = before = []
        sizes[name] = (sizes[name] if before else 0) + batch.nbytes
        before.append(batch)
    for before in held.values():
        yield from _unit(before)


def _with_unset(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Batches differ in whether they have this column; that must not make them different units."""
    if "unset" in batch.schema.names:
        return batch
    return batch.append_column(pa.field("unset", pa.binary()), pa.nulls(batch.num_rows, pa.binary()))


def _alike(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    return bool(one.schema.equals(other.schema, check_metadata=True))


def _unit(batches: list[pa.RecordBatch]) -> Iterator[tuple[Unit, pa.RecordBatch]]:
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    folded = _sorted(fold(rows), keys_of(rows))
    if not folded.num_rows:
        return
    formed = [columns.staged(folded.schema.field(n), folded.column(n)) for n in range(2, folded.num_columns)]
    wide = len(formed) >= WIDE
    deletes = pc.sum(pc.equal(folded.column("op"), int(Op.DELETE))).as_py()
    partial = folded.num_rows - folded.column("unset").null_count
    unit = Unit(
        namespace_of(rows),
        keys_of(rows),
        tuple(column for column, _ in formed),
        folded.num_rows,
        deletes,
        partial,
        wide,
    )
    yield unit, _staging(folded, [values for _, values in formed], wide)


def _sorted(folded: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Many rows by the first field of their id: an index is filled twice as fast in its own order."""
    if folded.num_rows < MANY or not keys:
        return folded
    try:
        return folded.take(pc.sort_indices(folded.column(keys[0])))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return folded  # a type that has no order here


def _staging(folded: pa.RecordBatch, arrays: list[pa.Array[Any]], wide: bool) -> pa.RecordBatch:
    ops = folded.column("op").cast(pa.int16())
    first = [pa.arange(0, folded.num_rows), ops, folded.column("unset")]
    if wide:
        return pa.RecordBatch.from_arrays([*first, _rest(arrays)], names=["n", "op", "unset", "rest"])
    return pa.RecordBatch.from_arrays(
        [*first, *arrays], names=["n", "op", "unset", *(f"c{n}" for n in range(len(arrays)))]
    )


def _rest(arrays: list[pa.Array[Any]]) -> pa.Array[Any]:
    """All columns as one of lists of their texts."""
    rows, count = len(arrays[0]), len(arrays)
    texts = pa.concat_arrays([pa.array(columns.as_texts(array), pa.string()) for array in arrays])
    order = pa.array([column * rows + row for row in range(rows) for column in range(count)], pa.int64())
    offsets = pa.array(range(0, rows * count + 1, count), pa.int32())
    return pa.ListArray.from_arrays(offsets, texts.take(order))


def new_table(when: int) -> str:
    """A name for a staging table that is made now, by the server's clock."""
    return f"stage_{when:x}_{uuid.uuid4().hex}"


def made_at(table: str) -> int:
    """When a staging table was made, by its name."""
    return int(table.split("_")[1], 16)


def create(state: str, table: str, unit: Unit) -> str:
    """The statement that makes a staging table."""
    kinds = [f"c{n} {'text' if column.kind == 'json' else column.kind}" for n, column in enumerate(unit.columns)]
    inner = ", ".join(["n int8", "op int2", "unset bytea", *(["rest text[]"] if unit.wide else kinds)])
    return f"CREATE UNLOGGED TABLE {names.quote(state, table)} ({inner}) WITH (autovacuum_enabled = false)"
