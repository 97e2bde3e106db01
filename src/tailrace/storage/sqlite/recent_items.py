"""Recent items: those that a database's writer wrote last.  It need not read them again while no other process
writes."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from tailrace.storage.limits import Rare
from tailrace.storage.tables import Item, Key

MAX_RECENT_ITEMS = 512
MAX_RECENT_ITEM_BYTES = 16_384
"""Larger items are not kept."""


class RecentItem(NamedTuple):
    """An item: its row's number, its bytes as stored, and the names of its rare attributes."""

    number: int
    body: bytes
    item: Item
    rare: Rare


class RecentItems:
    """The items written last. Used only inside the writer's transactions, so by one thread at a time."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._version = connection.data_version
        self._seen = -1
        self._tables: dict[str, dict[Key, RecentItem]] = {}

    def of(self, table: str) -> dict[Key, RecentItem]:
        """The recent items of one table, the longest unchanged first."""
        return self._tables.setdefault(table, {})

    def begin(self) -> None:
        """Called when a transaction has begun: forgets everything if another process has committed since the last
        one."""
        if self._version() != self._seen:
            self.forget()

    def commit(self) -> None:
        """The transaction is committed."""
        self._seen = self._version()

    def forget(self) -> None:
        """Forget everything: a write may have been undone, or did not go through here."""
        for items in self._tables.values():
            items.clear()


def keep(items: dict[Key, RecentItem], key: Key, known: RecentItem | None) -> None:
    """Remember an item as it is now; None: it was removed, or its row is not known."""
    items.pop(key, None)
    if known is not None and len(known.body) <= MAX_RECENT_ITEM_BYTES:
        items[key] = known
        if len(items) > MAX_RECENT_ITEMS:
            del items[next(iter(items))]
