"""Folding a share: the rows that a task is to stage, by namespace, one row for each document.

A sink that keeps states need not apply changes one by one.  Rows of a namespace are gathered up to a size and while
their schema is the same, then folded (see rows.fold).  The folded batches of a namespace must be applied in the order
in which they come.
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
"""About so much is folded at a time."""


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """Changes of one namespace, one row for each id; none if the batch only says which columns the namespace has."""

    namespace: str
    keys: tuple[str, ...]
    folded: Folded
    copied: bool
    """All of it comes from a copy."""
    open: bool = False
    """The documents have no fixed set of fields: see rows."""

    @property
    def deletes(self) -> int:
        """How many documents are deleted."""
        return int(pc.sum(pc.equal(self.folded.ops, int(Op.DELETE))).as_py() or 0)

    @property
    def partial(self) -> int:
        """How many rows change a document that is there, and leave some of its fields as they are."""
        return self.folded.rows - int(self.folded.unset.null_count)


def folded_batches(batches: Iterable[pa.RecordBatch], size: int = BATCH_BYTES) -> Iterator[FoldedBatch]:
    """Rows in the order of the log → folded batches."""
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
    """The same batches, their rows counted by namespace."""
    for batch in batches:
        name = namespace_of(batch)
        counts[name] = counts.get(name, 0) + batch.num_rows
        yield batch


def _evened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Batches differ in whether they have the columns beside the document; that alone must not keep them apart."""
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
