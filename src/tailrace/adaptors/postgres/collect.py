"""Collecting: the changes of transactions, by table, until they are made into batches of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.adaptors.postgres.build import build_rows
from tailrace.adaptors.postgres.catalog import Column, shape
from tailrace.adaptors.postgres.overflow import Overflow
from tailrace.adaptors.postgres.pgoutput import UNSET, Relation, Row
from tailrace.adaptors.postgres.position import Cut
from tailrace.adaptors.postgres.types import from_texts
from tailrace.adaptors.rows import make_rows
from tailrace.log.record import Mode, Op

Described = tuple[tuple[Column, ...], tuple[str, ...]]
"""The columns of a table and the names of its keys."""
Fetch = Callable[["Changed", list[Row]], list[bool]]
"""Fills in what rows leave unset; says which were found."""


class Changed:
    """The changes of one table, in order.  Implements `decode.Target`."""

    def __init__(self, collected: Collected, relation: Relation, described: Described) -> None:
        self.relation, self.namespace = relation, relation.namespace
        self.columns, self.key_names = described
        at = {column.name: n for n, column in enumerate(self.columns)}
        self.keys = tuple(at[name] for name in self.key_names)
        self._collected = collected
        self._watched = collected.watches(self.namespace, shape(self.columns, self.key_names))
        """Whether some of its changes may have to be skipped."""
        self._clear()

    def _clear(self) -> None:
        self.rows: list[Row] = []
        self._ops = bytearray()
        self._stamps: list[int] = []
        self._partial: list[int] = []
        self._wanting: list[int] = []
        """Which rows must not stay partial."""

    def add(self, op: Op, row: Row, *, moved: bool = False) -> None:
        """One change."""
        collected = self._collected
        if self._watched and collected.skips(self.namespace, keyed=bool(self.keys)):
            return
        if not self.rows:
            collected.order.append(self)
        if op != Op.INSERT or moved:
            self._note(op, row, moved)
        self.rows.append(row)
        self._ops.append(op)
        self._stamps.append(collected.time)
        collected.count += 1
        if collected.count >= collected.max_rows or collected.size >= collected.max_bytes:
            collected.seal()

    def _note(self, op: Op, row: Row, moved: bool) -> None:
        if UNSET in row:
            self._partial.append(len(self.rows))
            if moved or (op == Op.UPDATE and self._collected.in_window):
                self._wanting.append(len(self.rows))

    def truncate(self) -> None:
        """The table was emptied."""
        if not (self._watched and self._collected.skips(self.namespace, keyed=bool(self.keys))):
            self._collected.command(self.namespace, "truncate")

    def build(self, fetch: Fetch) -> pa.RecordBatch | None:
        """All of them as rows, and begin anew."""
        if self._wanting:
            self._fill(fetch)
        batch = self._built() if self.rows else None
        self._clear()
        return batch

    def _fill(self, fetch: Fetch) -> None:
        found = fetch(self, [self.rows[n] for n in self._wanting])
        # A row that has moved on again, or is gone: the log says so later, and until then there is nothing to insert.
        gone = {n for n, there in zip(self._wanting, found, strict=True) if not there and self._ops[n] == Op.INSERT}
        keep = [n for n in range(len(self.rows)) if n not in gone]
        self.rows = [self.rows[n] for n in keep]
        self._ops = bytearray(self._ops[n] for n in keep)
        self._stamps = [self._stamps[n] for n in keep]
        self._partial = [n for n, row in enumerate(self.rows) if UNSET in row]

    def _built(self) -> pa.RecordBatch:
        unset = self._unset() if self._partial else None
        texts = list(zip(*self.rows, strict=True)) if self.columns else []
        arrays = [from_texts(column.type, values) for column, values in zip(self.columns, texts, strict=True)]
        ops = pa.Array.from_buffers(pa.uint8(), len(self._ops), [None, pa.py_buffer(bytes(self._ops))])
        stamps = pa.array(self._stamps, pa.int64())
        return build_rows(
            self.namespace, self.columns, arrays, self.key_names, op=ops, mode=Mode.SYNC, timestamp=stamps, unset=unset
        )

    def _unset(self) -> pa.Array[Any]:
        """The bitmap of each row; what is unset becomes null among the values."""
        bitmaps: list[bytes | None] = [None] * len(self.rows)
        for n in self._partial:
            bits, row = 0, self.rows[n]
            for column, value in enumerate(row):
                bits |= (value is UNSET) << column
            if bits:
                bitmaps[n] = bits.to_bytes((len(row) + 7) // 8, "little")
                self.rows[n] = [None if value is UNSET else value for value in row]
        return pa.array(bitmaps, pa.binary())


class Collected:
    """What has been decoded and not been given away.  Implements `decode.Collector`."""

    def __init__(
        self,
        describe: Callable[[Relation], Described | None],
        fetch: Fetch,
        *,
        max_rows: int,
        max_bytes: int,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self._describe, self._fetch, self._alive = describe, fetch, alive
        self.order: list[Changed] = []
        self.count = self.size = self.time = self.end = self.committed_at = 0
        self.copied: int | None = 0
        """Until where in the log changes may be of rows that no copy has seen whole."""
        self.cuts: dict[str, Cut] = {}
        self.shapes: dict[str, str] = {}
        """Of each table without a key, what its rows were when it was copied."""
        self.unsettled: dict[str, set[int]] = {}
        """Tables without a key that changed since they were copied, and so must be copied again; by whom."""
        self.in_window = False
        self._xid = 0
        self._sealed = Overflow()
        self._sealed_rows = 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.count + self._sealed_rows

    # -- what a decoder says
    def begin(self, lsn: int, time: int, xid: int) -> None:
        """A transaction, which commits there."""
        self.time, self._xid = time, xid
        self.in_window = self.copied is None or lsn < self.copied

    def relation(self, relation: Relation) -> Changed | None:
        """A table as it is from now on."""
        described = self._describe(relation)
        return None if described is None else Changed(self, relation, described)

    def commit(self, end: int, time: int) -> None:
        """The transaction is complete."""
        self.end, self.committed_at = end, time

    def watches(self, namespace: str, shape: str) -> bool:
        """Whether to ask `skips` about each change of a table.  If its rows are no longer what was copied, no change
        finds the row that it is about: it must be copied again."""
        cut = self.cuts.get(namespace)
        known = self.shapes.get(namespace, "")
        if shape != known and not (cut is not None and cut.saw(self._xid)):
            self.unsettled.setdefault(namespace, set()).add(self._xid)
        return bool(shape or known or cut)

    def skips(self, namespace: str, *, keyed: bool = False) -> bool:
        """Whether a change is in the copy of its table, or will be when it is made again; of one with a key that
        matters only where another table had its name before."""
        if namespace not in self.unsettled:
            cut = self.cuts.get(namespace)
            if cut is not None:
                return cut.saw(self._xid)
            if keyed or not self.in_window:
                return False
        self.unsettled.setdefault(namespace, set()).add(self._xid)
        return True

    # -- what is made of it
    def command(self, namespace: str, name: str) -> None:
        """Something about a whole namespace, after what was before it."""
        self.seal()
        columns = pa.RecordBatch.from_pydict({"command": pa.array([name], pa.string())})
        self._sealed.append(make_rows(namespace, columns, (), op=Op.COMMAND, mode=Mode.SYNC, timestamp=self.time))
        self._sealed_rows += 1

    def seal(self) -> None:
        """Make batches of what there is."""
        for changed in self.order:
            batch = changed.build(self._fetch)
            if batch is not None:
                self._sealed.append(batch)
        self._sealed_rows += self.count
        self.order, self.count, self.size = [], 0, 0
        self._alive()

    def take(self) -> list[pa.RecordBatch]:
        """All batches, and begin anew."""
        self.seal()
        self._sealed_rows = 0
        return self._sealed.take()

    def close(self) -> None:
        """Forget everything."""
        self._sealed.close()
