"""Deferred ids: ids that rows took within a transaction, in tables where two rows may have one id until it commits.

With a deferrable key one statement may exchange ids: the log has row a move from 1 to 2, and then row b from 2 to 1.
That b left 2 must not delete what a has become.  So of each id that a row took in this transaction it is remembered
which row that was, and a row that leaves the id is compared with it:

    another row leaves                                the one that came stays: nothing is to be said
    the same leaves, or one like it, or not known     perhaps the row before is still there: the table says it
"""

from __future__ import annotations

from typing import Literal

from tailrace.adaptors.postgres.source.pgoutput import Row

MAX_IDS = 1_000_000
"""Of so many ids in one transaction it is remembered which rows took them; from then on the table is asked."""

Left = Literal["gone", "taken", "unknown"]


class DeferredIds:
    """The ids of one table that rows took, in the transaction that is being read."""

    def __init__(self) -> None:
        self._xid = -1
        self._rows: dict[tuple[bytes, ...], int | None] = {}
        """A mark of the row that took an id; None: more than one did, or it was changed since."""

    def _in(self, xid: int) -> dict[tuple[bytes, ...], int | None]:
        if xid != self._xid:
            self._xid, self._rows = xid, {}
        return self._rows

    def came(self, xid: int, id: tuple[bytes, ...], row: Row) -> None:
        """A row has this id from now on."""
        rows = self._in(xid)
        if id in rows:
            rows[id] = None
        elif len(rows) < MAX_IDS:
            rows[id] = hash(tuple(row))

    def changed(self, xid: int, id: tuple[bytes, ...]) -> None:
        """A row of this id, which keeps it, has other fields."""
        rows = self._in(xid)
        if id in rows:
            rows[id] = None

    def left(self, xid: int, id: tuple[bytes, ...], row: Row) -> Left:
        """A row had this id until now: is there none now, or the one that took it, or must the table be asked?"""
        rows = self._in(xid)
        if id not in rows:
            return "gone" if len(rows) < MAX_IDS else "unknown"
        if rows[id] not in (None, hash(tuple(row))):
            return "taken"
        rows[id] = None
        return "unknown"
