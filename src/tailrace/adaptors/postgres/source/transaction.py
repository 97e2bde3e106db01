"""Collecting: keeps the changes of transactions, by table, until batches of rows are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.adaptors.postgres.catalog import Column, shape
from tailrace.adaptors.postgres.source.deferred_ids import DeferredIds, Left
from tailrace.adaptors.postgres.source.pgoutput import UNSET, Relation, Row
from tailrace.adaptors.postgres.source.position import Cut, Point
from tailrace.adaptors.postgres.types import from_texts, typed
from tailrace.adaptors.rows.change_buffer import ChangeBuffer
from tailrace.adaptors.rows.command import TRUNCATE, Command
from tailrace.adaptors.rows.typed_rows import build_rows
from tailrace.adaptors.rows.unset import from_number
from tailrace.log.record import Mode, Op


class DescribedTable(NamedTuple):
    """The columns of a table, the names of its keys, and whether two rows may have one id until the transaction
    commits."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    deferrable: bool = False


Fetch = Callable[["Changed", list[Row]], list[bool] | None]
"""Fills in the unset fields of rows, and returns for each row whether it was found; None if the table can no longer be
asked."""
Notice = Callable[[Relation, int], None]
"""Called each time that the log describes a table, with the place in the log where the transaction commits."""


class Changed:
    """The changes of one table, in order.  Implements `decoder.FollowedTable`."""

    def __init__(self, collected: Collected, relation: Relation, described: DescribedTable) -> None:
        self.relation, self.namespace = relation, relation.namespace
        self.columns, self.key_names, deferrable = described
        self._arrivals = DeferredIds() if deferrable and self.key_names else None
        at = {column.name: n for n, column in enumerate(self.columns)}
        self.keys = tuple(at[name] for name in self.key_names)
        self._collected = collected
        self._watched = collected.watches(self.namespace, shape(self.columns, self.key_names))
        """Whether some of the changes may have to be skipped."""
        self._clear()

    def _clear(self) -> None:
        self.rows: list[Row] = []
        self._ops = bytearray()
        self._stamps: list[int] = []
        self._transactions: list[int] = []
        self._positions: list[int] = []
        self._partial: list[int] = []
        self._wanting: list[int] = []
        """The numbers of the rows whose unset fields must be read from the table."""

    def add(self, op: Op, row: Row, *, moved: bool = False) -> None:
        """Add one change."""
        collected = self._collected
        position = collected.next_position()
        if self._watched and collected.skips(self.namespace, keyed=bool(self.keys)):
            return
        if self._arrivals is not None:
            left = self._compare(self._arrivals, op, row)
            if left == "taken":
                return
            if left == "unknown":
                row, moved = [value if n in self.keys else UNSET for n, value in enumerate(row)], True
        if not self.rows:
            collected.order.append(self)
        if op != Op.INSERT or moved:
            self._note(op, row, moved)
        self.rows.append(row)
        self._ops.append(op)
        self._stamps.append(collected.time)
        self._transactions.append(collected.transaction)
        self._positions.append(position)
        collected.count += 1
        if collected.count >= collected.max_rows or collected.size >= collected.max_bytes:
            collected.seal()

    def _compare(self, arrivals: DeferredIds, op: Op, row: Row) -> Left:
        """What is left of an id, in a table whose rows may exchange ids."""
        xid, id = self._collected.xid, tuple(row[n] for n in self.keys)
        if op == Op.DELETE:
            return arrivals.left(xid, id, row)
        if op == Op.INSERT:
            arrivals.came(xid, id, row)
        else:
            arrivals.changed(xid, id)
        return "gone"

    def _note(self, op: Op, row: Row, moved: bool) -> None:
        if UNSET in row:
            self._partial.append(len(self.rows))
            if moved or (op == Op.UPDATE and self._collected.in_window):
                self._wanting.append(len(self.rows))

    def truncate(self) -> None:
        """Add a truncate of the table."""
        self._collected.next_position()
        if not (self._watched and self._collected.skips(self.namespace, keyed=bool(self.keys))):
            self._collected.command(self.namespace, Command(TRUNCATE))

    def build(self) -> pa.RecordBatch | None:
        """Return the changes as rows, None if there are no changes, and start an empty list of changes."""
        if self._wanting:
            self._fill(self._collected.fetch)
        if self.rows and self.keys and self._collected.doubts(self.namespace, self._transactions[0]):
            self._leave(self._collected.fetch)
        batch = self._built() if self.rows else None
        self._clear()
        return batch

    def _fill(self, fetch: Fetch) -> None:
        found = fetch(self, [self.rows[n] for n in self._wanting]) or [False] * len(self._wanting)
        for n, there in zip(self._wanting, found, strict=True):
            if there and self._ops[n] == Op.DELETE:  # another row has the id now
                self._ops[n] = Op.INSERT
        # A row that was not found has another id by now, or is gone.  The log says so later: insert nothing.
        gone = {n for n, there in zip(self._wanting, found, strict=True) if not there and self._ops[n] == Op.INSERT}
        keep = [n for n in range(len(self.rows)) if n not in gone]
        self.rows = [self.rows[n] for n in keep]
        self._ops = bytearray(self._ops[n] for n in keep)
        self._stamps = [self._stamps[n] for n in keep]
        self._transactions = [self._transactions[n] for n in keep]
        self._positions = [self._positions[n] for n in keep]
        self._partial = [n for n, row in enumerate(self.rows) if UNSET in row]

    def _leave(self, fetch: Fetch) -> None:
        """Turn changes of rows that no longer exist into deletes.

        The rows may have left with a partition, which the log does not show.  If a delete removed them instead, the log
        has it, too."""
        until = self._collected.doubtful[self.namespace]
        came = [n for n, op in enumerate(self._ops) if op != Op.DELETE and self._transactions[n] <= until]
        ids = [[value if n in self.keys else None for n, value in enumerate(self.rows[row])] for row in came]
        for n, there in zip(came, fetch(self, ids) or [True] * len(came), strict=True):
            if not there:
                self._ops[n] = Op.DELETE
                self.rows[n] = [value if at in self.keys else UNSET for at, value in enumerate(self.rows[n])]
        self._partial = [n for n, row in enumerate(self.rows) if UNSET in row]

    def _built(self) -> pa.RecordBatch:
        unset = self._unset() if self._partial else None
        texts = list(zip(*self.rows, strict=True)) if self.columns else []
        arrays = [from_texts(column.type, values) for column, values in zip(self.columns, texts, strict=True)]
        ops = pa.Array.from_buffers(pa.uint8(), len(self._ops), [None, pa.py_buffer(bytes(self._ops))])
        order = {"transaction": self._transactions, "position": self._positions, "timestamp": self._stamps}
        numbers = {name: pa.array(values, pa.int64()) for name, values in order.items()}
        return build_rows(
            self.namespace, self.columns, arrays, self.key_names, typed, op=ops, mode=Mode.SYNC, unset=unset, **numbers
        )

    def _unset(self) -> pa.Array[Any]:
        """The bitmap of each row.  Sets the unset values themselves to null."""
        bitmaps: list[bytes | None] = [None] * len(self.rows)
        for n in self._partial:
            bits, row = 0, self.rows[n]
            for column, value in enumerate(row):
                bits |= (value is UNSET) << column
            if bits:
                bitmaps[n] = from_number(bits, len(row))
                self.rows[n] = [None if value is UNSET else value for value in row]
        return pa.array(bitmaps, pa.binary())


class Collected(ChangeBuffer[Changed]):
    """The changes that were decoded and not handed out yet.  Implements `decoder.Collector`."""

    def __init__(
        self,
        describe: Callable[[Relation], DescribedTable | None],
        fetch: Fetch,
        *,
        max_rows: int,
        max_bytes: int,
        alive: Callable[[], None] = lambda: None,
        notice: Notice = lambda relation, lsn: None,
    ) -> None:
        super().__init__(max_rows=max_rows, max_bytes=max_bytes, alive=alive)
        self._describe, self.fetch, self._notice = describe, fetch, notice
        self.doubtful: dict[str, int] = {}
        """Tables with a key that may have had partitions which are gone, each with the place in the log up to which
        this is so."""
        self.end = 0
        self.copied: int | None = 0
        """The place in the log up to which changes may be of rows that no copy has seen whole."""
        self.cuts: dict[str, Cut] = {}
        self.shapes: dict[str, str] = {}
        """Of each table without a key, the shape that it had when it was copied."""
        self.unsettled: dict[str, set[int]] = {}
        """Tables without a key that changed since they were copied, and so must be copied again; each with the
        transactions that changed it."""
        self.in_window = False
        self.xid = self.transaction = self._position = 0
        """Of the transaction that is being read: its number, the place in the log where it commits, and how many
        changes it had."""

    # -- what a decoder says
    def begin(self, lsn: int, time: int, xid: int) -> None:
        """Begin a transaction, whose commit is at `lsn`."""
        self.time, self.xid, self.transaction, self._position = time, xid, lsn, 0
        self.in_window = self.copied is None or lsn < self.copied

    def next_position(self) -> int:
        """Return the number of one more change in its transaction.  Changes that are skipped are counted, too, so that
        after a restart, when others are skipped, each change gets the same number."""
        self._position += 1
        return self._position - 1

    def relation(self, relation: Relation) -> Changed | None:
        """Return the changes of a table as it is from now on; None if they are not wanted."""
        described = self._describe(relation)
        self._notice(relation, self.transaction)
        return None if described is None else Changed(self, relation, described)

    def relation_again(self, relation: Relation) -> None:
        """Call `notice` for a table that the log describes again, unchanged."""
        self._notice(relation, self.transaction)

    def doubts(self, namespace: str, lsn: int) -> bool:
        """Whether changes of a table that were committed at `lsn` may be of a partition that is gone."""
        return lsn <= self.doubtful.get(namespace, -1)

    def commit(self, end: int, time: int) -> None:
        """End the transaction."""
        self.end, self.committed_at = end, time

    def watches(self, namespace: str, shape: str) -> bool:
        """Whether `skips` must be asked about each change of a table.

        If the table's shape is no longer that of its copy, no change would find the row that it is about, so the table
        is noted as one that must be copied again."""
        cut = self.cuts.get(namespace)
        known = self.shapes.get(namespace, "")
        if shape != known and not (cut is not None and cut.saw(self.xid)):
            self.unsettled.setdefault(namespace, set()).add(self.xid)
        return bool(shape or known or cut)

    def skips(self, namespace: str, *, keyed: bool = False) -> bool:
        """Whether a change is in the copy of its table, or will be when the table is copied again.  For a table with a
        key this matters only if another table had its name before."""
        if namespace not in self.unsettled:
            cut = self.cuts.get(namespace)
            if cut is not None:
                return cut.saw(self.xid)
            if keyed or not self.in_window:
                return False
        self.unsettled.setdefault(namespace, set()).add(self.xid)
        return True

    def remember(self, point: Point) -> None:
        """Take over the cuts and shapes of a position."""
        self.cuts, self.shapes = dict(point.cuts), dict(point.shapes)
