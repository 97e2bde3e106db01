"""Snapshot: a table in SQLite as of one moment, however long it is read and whoever writes meanwhile.

The journal grows while a snapshot is held: what it shows cannot be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from tailrace.storage.database import Database

T = TypeVar("T")


class Snapshot:
    """Stands in for a `Database` of which one moment is read; for one thread at a time.  Close it."""

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._explain = database.explain
        self._connection = database.connect()
        self._cursor = self._connection.cursor()
        self._cursor.execute("BEGIN; SELECT 1 FROM sqlite_schema")

    def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Answer `work(cursor, *arguments)` as of the moment."""
        try:
            return work(self._cursor, *arguments)
        except apsw.Error as error:
            raise self._explain(error) from error

    write = read
    """Checks alone: what would change anything is not for a snapshot."""

    def close(self) -> None:
        """Let go of the moment."""
        self._connection.close()
