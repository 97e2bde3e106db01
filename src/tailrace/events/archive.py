"""The archive: a second table, to which calves are copied before they are pruned from the first, and from which they
are read afterwards.

$Archive, 0    marks a home as an archive: its streams have calves and no Tips, and a scrub expects that
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.errors import BadInput, Conflict
from tailrace.events.tip import TIP
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Absent, Action, Delete, Item, Key, Put, Slice, Table

ARCHIVE = Key("$Archive")


def mark_archive() -> Steps[None]:
    """Note in a home that it is an archive."""
    yield from guard.settle(ARCHIVE, lambda item: None if item else (Put(ARCHIVE, {"archive": True}, (Absent(),)),))


class WithArchive:
    """A `Table` that writes to the first table and reads calves that are no longer there from the archive.  Only a read
    that goes beyond the first table's items asks the archive, so other reads cost nothing more."""

    def __init__(self, table: Table, archive: Table) -> None:
        self._table, self._archive = table, archive
        self.inline_bytes, self.joins_inline = table.inline_bytes, table.joins_inline
        self.handy_bytes = table.handy_bytes

    def get(self, key: Key) -> Item | None:
        """The item, from the first table."""
        return self._table.get(key)

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Write to the first table."""
        return self._table.write(*actions)

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of the first table only."""
        return self._table.scan(after)

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash: in ascending order the archive's first, in descending order the archive's last."""
        items, more = self._table.query(p, low, high, descending=descending, limit=limit)
        if descending and items:
            below = items[-1]["i"]
            return Slice(items, below if more is None and below > low else more)
        if items and items[0]["i"] <= low:
            return Slice(items, more)
        older = self._archive.query(
            p, low, min(items[0]["i"] - 1 if items else high, TIP - 1), descending=descending, limit=limit
        ).items
        if not older:
            return Slice(items, more)
        return Slice(older, older[-1]["i"])

    def close(self) -> None:
        """Close the store's own table. The caller that opened the archive's table closes that one."""
        self._table.close()

    @property
    def filling(self) -> ArchivingTable:
        """The table that pruning writes to."""
        return ArchivingTable(self._table, self._archive)


class ArchivingTable(WithArchive):
    """A `Table` that reads and writes the first table, and copies each item to the archive before it is deleted."""

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of the first table."""
        return self._table.query(p, low, high, descending=descending, limit=limit)

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Write to the first table; a deleted item goes to the archive first.  If the archive does not answer, the
        write counts as unanswered."""
        for action in actions:
            if isinstance(action, Delete) and (item := self._table.get(action.key)) is not None:
                self._keep(action.key, item)
        return self._table.write(*actions)

    def _keep(self, key: Key, item: Item) -> None:
        try:
            self._archive.write(Put(key, item, (Absent(),)))
        except Conflict as conflict:
            if conflict.item != item:
                raise BadInput(
                    f"the archive has another {key.p!r}/{key.i} than is here: nothing was deleted; is it the archive "
                    "of another event store?"
                ) from None
