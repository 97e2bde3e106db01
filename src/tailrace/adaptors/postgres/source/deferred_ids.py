"""Deferred ids: the ids that rows took within a transaction, in tables where two rows may have one id until the commit.

With a deferrable key one statement may exchange ids: in the log row a moves from 1 to 2, and then row b from 2 to 1.
When b leaves 2, the row that a has become must not be deleted.  So for each id that a row took in this transaction the
follower remembers the row, and compares a row that leaves the id with it:

    another row leaves                                the row that took the id stays; nothing is sent
    the same row, an equal one, or it is not known    the earlier row may still be there; the table is asked
"""

from __future__ import annotations

from typing import Literal

from tailrace.adaptors.postgres.source.pgoutput import Row

MAX_IDS = 1_000_000
"""The most ids in one transaction for which the rows that took them are remembered.  From then on the table is
asked."""

Left = Literal["gone", "taken", "unknown"]


class DeferredIds:
    """The ids of one table that rows took in the transaction that is being read."""

    def __init__(self) -> None:
        self._xid = -1
        self._rows: dict[tuple[bytes, ...], int | None] = {}
        """A mark of the row that took each id; None: several rows took it, or the row was changed since."""

    def _in(self, xid: int) -> dict[tuple[bytes, ...], int | None]:
        if xid != self._xid:
            self._xid, self._rows = xid, {}
        return self._rows

    def came(self, xid: int, id: tuple[bytes, ...], row: Row) -> None:
        """Note that a row has taken an id."""
        rows = self._in(xid)
        if id in rows:
            rows[id] = None
        elif len(rows) < MAX_IDS:
            rows[id] = hash(tuple(row))

    def changed(self, xid: int, id: tuple[bytes, ...]) -> None:
        """Note that a row has kept its id and has other fields."""
        rows = self._in(xid)
        if id in rows:
            rows[id] = None

    def left(self, xid: int, id: tuple[bytes, ...], row: Row) -> Left:
        """Note that a row has left an id.  Returns `gone` if no row has the id now, `taken` if the row that took it has
        it, and `unknown` if the table must be asked."""
        rows = self._in(xid)
        if id not in rows:
            return "gone" if len(rows) < MAX_IDS else "unknown"
        if rows[id] not in (None, hash(tuple(row))):
            return "taken"
        rows[id] = None
        return "unknown"
