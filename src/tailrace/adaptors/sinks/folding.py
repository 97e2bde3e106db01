"""Folding a share: the rows that a task has to stage, one row for each document, by namespace.

A sink that keeps states need not apply changes one by one.  The rows of a namespace are gathered while their schema is
the same, up to a size, and then folded (see rows.fold).  A sink must apply the folded batches of a namespace in the
order in which they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.fold import Folded, fold
from tailrace.adaptors.rows.provenance import PLACE, TYPES
from tailrace.adaptors.rows.rows import is_open, keys_of, namespace_of
from tailrace.adaptors.rows.unset import unset_of
from tailrace.log.record import Mode, Op

BATCH_BYTES = 32 * 1024 * 1024
"""About how many bytes of rows are folded at a time."""


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """Folded changes of one namespace, one row for each id.  A batch without rows only says which columns the namespace
    has."""

    namespace: str
    keys: tuple[str, ...]
    folded: Folded
    copied: bool
    """Whether all rows come from a copy."""
    open: bool = False
    """Whether the documents have no fixed set of fields: see rows."""

    @property
    def deletes(self) -> int:
        """The number of deleted documents."""
        return int(pc.sum(pc.equal(self.folded.ops, int(Op.DELETE))).as_py() or 0)

    @property
    def partial(self) -> int:
        """The number of rows that change a document which the sink has, and leave some of its fields as they are."""
        return self.folded.rows - int(self.folded.unset.null_count)


def folded_batches(batches: Iterable[pa.RecordBatch], size: int = BATCH_BYTES) -> Iterator[FoldedBatch]:
    """Fold rows, which come in the order of the commit log, into batches."""
    held: dict[str, list[pa.RecordBatch]] = {}
    sizes: dict[str, int] = {}
    for given in batches:
        batch = _evened(given)
        if not batch.num_rows:
            yield from _folded([batch])
            continue
        name = namespace_of(batch)
        before = held.setdefault(name, [])
        if before and (sizes[name] >= size or not _is_alike(before[-1], batch)):
            yield from _folded(before)
            held[name] = before = []
        sizes[name] = (sizes[name] if before else 0) + batch.nbytes
        before.append(batch)
    for before in held.values():
        yield from _folded(before)


def counted(batches: Iterable[pa.RecordBatch], counts: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged, and add the number of their rows to `counts` by namespace."""
    for batch in batches:
        name = namespace_of(batch)
        counts[name] = counts.get(name, 0) + batch.num_rows
        yield batch


def _evened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns `unset`, `partition` and `offset` if the batch lacks them, and drop the source's order.  Batches
    are only folded together if their schemas are equal."""
    beside: dict[str, pa.Array[object]] = {"unset": unset_of(batch)}
    for name in ("partition", "offset"):
        there = name in batch.schema.names
        beside[name] = batch.column(name) if there else pa.nulls(batch.num_rows, TYPES[name])
    if "whole" in batch.schema.names:
        beside["whole"] = batch.column("whole")
    if "removed" in batch.schema.names:
        beside["removed"] = batch.column("removed")
    first = batch.drop_columns([name for name in {*beside, *PLACE} if name in batch.schema.names])
    for name, column in beside.items():
        first = first.append_column(pa.field(name, column.type), column)
    return first


def _is_alike(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    return bool(one.schema.equals(other.schema, check_metadata=True))


def _folded(batches: list[pa.RecordBatch]) -> Iterator[FoldedBatch]:
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    folded = fold(rows)
    if not folded.rows and rows.num_rows:
        return
    modes = pc.bit_wise_and(rows.column("attributes"), 3)
    copied = bool(pc.all(pc.equal(modes, int(Mode.COPY))).as_py())
    yield FoldedBatch(namespace_of(rows), keys_of(rows), folded, copied, is_open(rows.schema))
