"""The follower's buffer: the changes of transactions by table, until they become batches of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.adaptors.mysql import names
from tailrace.adaptors.mysql.gtid import Executed, Gtid
from tailrace.adaptors.mysql.source.events import DELETES, INSERTS, TableMap
from tailrace.adaptors.mysql.source.row_builder import build_rows
from tailrace.adaptors.mysql.source.row_decoder import ABSENT, Row, RowDecoder
from tailrace.adaptors.mysql.types import from_log
from tailrace.adaptors.rows.change_buffer import ChangeBuffer
from tailrace.log.record import Mode, Op

NOWHERE = Gtid("", 0)


class Referenced:
    """A table that is not followed: its changes matter only to followed tables that foreign keys change with it."""

    def __init__(self, collected: Collected, table: TableMap) -> None:
        self.namespace = names.namespace(table.schema, table.name)
        self._collected = collected

    def skips(self, kind: int) -> bool:
        """Take in a rows event of this kind, and return whether its rows are skipped."""
        if kind not in INSERTS:
            self._collected.cascaded(self.namespace)
        return True

    def feed(self, data: bytes) -> None:
        """Take in a rows event of a referenced table, for what foreign keys do with it."""
        self.skips(data[4])


class Nameless(Referenced):
    """A followed table whose changes the log has without the names of columns: nothing says what to change where, so
    the table must be emptied and copied again."""

    def skips(self, kind: int) -> bool:
        """Take in a rows event of this kind; its rows are always skipped."""
        super().skips(kind)
        if not self._collected.skips(self.namespace, keyed=True):
            self._collected.unsettled.add(self.namespace)
        return True


class Changed(Referenced):
    """The changes of one table in order, all under one description of its columns."""

    def __init__(self, collected: Collected, table: TableMap, decoder: RowDecoder) -> None:
        super().__init__(collected, table)
        self.columns, self._decoder = decoder.columns, decoder
        self.keys = table.keys
        self.key_names = tuple(self.columns[n].name for n in table.keys)
        self._clear()

    def _clear(self) -> None:
        self.rows: list[Row] = []
        self._ops = bytearray()
        self._stamps: list[int] = []

    def skips(self, kind: int) -> bool:
        """Take in a rows event of this kind; return whether a copy of the table has its rows or will have them."""
        super().skips(kind)  # first: a copy of this table does not copy the tables that refer to it
        return self._collected.skips(self.namespace, keyed=bool(self.keys))

    def feed(self, data: bytes) -> None:
        """Add the rows of a rows event, unless a copy of the table has them or will have them."""
        collected, kind = self._collected, data[4]
        if self.skips(kind):
            return
        for before, after in self._decoder.rows(data):
            if kind in INSERTS:
                self._add(Op.INSERT, before)
            elif kind in DELETES:
                self._add(Op.DELETE, before)
            else:
                self._update(before, after)
            if collected.count >= collected.max_rows:
                collected.seal()
        collected.size += len(data)
        if collected.size >= collected.max_bytes:
            collected.seal()

    def _update(self, before: Any, after: Any) -> None:
        if self.keys and [before[n] for n in self.keys] == [after[n] for n in self.keys]:
            self._add(Op.UPDATE, after)
        else:
            self._add(Op.DELETE, before)
            self._add(Op.INSERT, after)

    def _add(self, op: Op, row: Any) -> None:
        if self._decoder.partial and ABSENT in row:
            if op != Op.DELETE or any(row[n] is ABSENT for n in self.keys) or not self.keys:
                self._collected.incomplete.add(self.namespace)
                return
            row = [None if value is ABSENT else value for value in row]
        collected = self._collected
        if not self.rows:
            collected.order.append(self)
        self.rows.append(row)
        self._ops.append(op)
        self._stamps.append(collected.time)
        collected.count += 1

    def build(self) -> pa.RecordBatch | None:
        """Return the changes as a batch of rows and forget them; None if there are none."""
        if not self.rows:
            return None
        texts = list(zip(*self.rows, strict=True))
        arrays = [from_log(column.type, values) for column, values in zip(self.columns, texts, strict=True)]
        ops = pa.Array.from_buffers(pa.uint8(), len(self._ops), [None, pa.py_buffer(bytes(self._ops))])
        batch = build_rows(
            self.namespace,
            self.columns,
            arrays,
            self.key_names,
            zero_dates=self._collected.zero_dates,
            op=ops,
            mode=Mode.SYNC,
            timestamp=pa.array(self._stamps, pa.int64()),
        )
        self._clear()
        return batch


class Collected(ChangeBuffer[Changed]):
    """The changes that the follower has decoded and not yet yielded, and the tables that must be copied again."""

    def __init__(self, *, max_rows: int, max_bytes: int, zero_dates: bool, alive: Callable[[], None]) -> None:
        super().__init__(max_rows=max_rows, max_bytes=max_bytes, alive=alive)
        self.zero_dates = zero_dates
        self.gtid = NOWHERE
        """The current transaction."""
        self.copied: Executed | None = None
        """Transactions that the pipeline's copies may have seen; None if none are left to compare with."""
        self.cuts: dict[str, Executed] = {}
        """For each table that the follower copied: the transactions that its snapshot has seen."""
        self.unsettled: set[str] = set()
        """Tables that the follower must empty and copy again."""
        self.incomplete: set[str] = set()
        """Tables of which the log lacks fields: the pipeline must copy them again, over the rows that sinks have."""
        self.touched: set[str] = set()
        """Tables that the current transaction has changed."""
        self.cascades: dict[str, set[str]] = {}
        """For each table that others refer to: the followed tables that its changes may change by foreign keys."""
        self.undecided = False
        """Whether the current transaction is an XA transaction, of which only the names of its tables are kept."""

    def begin(self, gtid: Gtid, time: int) -> None:
        """Begin a transaction; `time` is the time of its rows, in milliseconds since 1970."""
        self.gtid, self.time, self.touched, self.undecided = gtid, time, set(), False

    def skips(self, namespace: str, *, keyed: bool) -> bool:
        """Return whether to skip changes of a table, because a copy has them or a later copy will.

        A table without a key whose first copy may have them becomes unsettled."""
        self.touched.add(namespace)
        if self.undecided or namespace in self.unsettled:
            return True
        cut = self.cuts.get(namespace)
        if cut is not None:
            return cut.has(self.gtid)
        if keyed or self.copied is None or not self.copied.has(self.gtid):
            return False
        self.unsettled.add(namespace)
        return True

    def cascaded(self, namespace: str) -> None:
        """Mark the tables that refer to this one as unsettled: foreign keys may have changed their rows.

        An undecided transaction changes them once it commits."""
        for name in self.cascades.get(namespace, ()):
            self.touched.add(name)
            cut = self.cuts.get(name)
            if not self.undecided and (cut is None or not cut.has(self.gtid)):
                self.unsettled.add(name)
