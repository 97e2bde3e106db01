"""Transactions while they are read: their changes by table, until batches of rows are made of them."""

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


class Changed:
    """The changes of one table under one description, in order."""

    def __init__(self, collected: Collected, table: TableMap, decoder: RowDecoder) -> None:
        self.namespace = names.namespace(table.schema, table.name)
        self.columns, self._decoder, self._collected = decoder.columns, decoder, collected
        self.keys = table.keys
        self.key_names = tuple(self.columns[n].name for n in table.keys)
        self._clear()

    def _clear(self) -> None:
        self.rows: list[Row] = []
        self._ops = bytearray()
        self._stamps: list[int] = []

    def feed(self, data: bytes) -> None:
        """A rows event of this table."""
        collected = self._collected
        if collected.skips(self.namespace, keyed=bool(self.keys)):
            return
        kind = data[4]
        if kind not in INSERTS and self.namespace in collected.cascades:
            collected.cascaded(self.namespace)
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
        """All of them as rows, and begin again."""
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
    """What has been decoded and not been given away."""

    def __init__(self, *, max_rows: int, max_bytes: int, zero_dates: bool, alive: Callable[[], None]) -> None:
        super().__init__(max_rows=max_rows, max_bytes=max_bytes, alive=alive)
        self.zero_dates = zero_dates
        self.gtid = NOWHERE
        """The transaction that is being read."""
        self.copied: Executed | None = None
        """Transactions that copies may have seen."""
        self.cuts: dict[str, Executed] = {}
        self.unsettled: set[str] = set()
        """Tables that must be emptied and copied again, by the follower."""
        self.incomplete: set[str] = set()
        """Tables of which the log lacks fields: they must be copied again, over what is there."""
        self.touched: set[str] = set()
        """Tables that this transaction has changed."""
        self.cascades: dict[str, set[str]] = {}
        """Of tables whose changes may change others by a foreign key, those that are followed."""
        self.undecided = False
        """Whether it is an XA transaction, of which only the tables are kept."""

    def begin(self, gtid: Gtid, time: int) -> None:
        """A transaction."""
        self.gtid, self.time, self.touched, self.undecided = gtid, time, set(), False

    def skips(self, namespace: str, *, keyed: bool) -> bool:
        """Whether changes of a table are in its copy, or will be when it is made again."""
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
        """Rows of a table were changed or deleted that others refer to."""
        for name in self.cascades[namespace]:
            cut = self.cuts.get(name)
            if cut is None or not cut.has(self.gtid):
                self.unsettled.add(name)
