"""Recent: the items that a database's one writer wrote last; while nobody else writes they need not be read again."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from tailrace.storage.limits import Rare
from tailrace.storage.tables import Item, Key

ITEMS = 512
BYTES = 16_384
"""Larger ones are not kept."""


class Known(NamedTuple):
    """An item, its row's number and its bytes, as they are stored, and which of its attributes are rare."""

    number: int
    body: bytes
    item: Item
    rare: Rare


class Recent:
    """Used inside the writer's transactions only, so by one thread at a time."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._version = connection.data_version
        self._seen = -1
        self._tables: dict[str, dict[Key, Known]] = {}

    def of(self, table: str) -> dict[Key, Known]:
        """The items of one table, the longest unchanged first."""
        return self._tables.setdefault(table, {})

    def begin(self) -> None:
        """A transaction has begun: if anybody else committed since the last one, nothing is known any more."""
        if self._version() != self._seen:
            self.forget()

    def commit(self) -> None:
        """The transaction is committed."""
        self._seen = self._version()

    def forget(self) -> None:
        """Know nothing: what was written may be undone, or somebody wrote in another way."""
        for items in self._tables.values():
            items.clear()


def keep(items: dict[Key, Known], key: Key, known: Known | None) -> None:
    """Remember an item as it now is; None: it is gone, or its row is not known."""
    items.pop(key, None)
    if known is not None and len(known.body) <= BYTES:
        items[key] = known
        if len(items) > ITEMS:
            del items[next(iter(items))]
