"""Snapshot: a table in SQLite as of one moment, however long the reader takes, and whatever other processes write.

The journal grows while a snapshot is open: the part that it shows cannot be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from tailrace.errors import BadInput
from tailrace.storage.sqlite.committer import Statement
from tailrace.storage.sqlite.database import SqliteDatabase

T = TypeVar("T")


class Snapshot:
    """Stands in for a `SqliteDatabase` as of one moment; for one thread at a time. Close it."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.path = database.path
        self._explain = database.explain
        self._connection = database.connect()
        self._cursor = self._connection.cursor()
        self._cursor.execute("PRAGMA query_only = 1; BEGIN; SELECT 1 FROM sqlite_schema")

    def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Answer `work(cursor, *arguments)` as of that moment."""
        try:
            return work(self._cursor, *arguments)
        except apsw.Error as error:
            raise self._explain(error) from error

    def change(self, judge: Callable[..., tuple[T, list[Statement]]], *arguments: Any) -> T:
        """Judge conditions as of that moment; anything that would change an item is refused."""
        answer, statements = self.read(judge, *arguments)
        if statements:
            raise BadInput(f"a snapshot of {self.path} can only be read")
        return answer

    def close(self) -> None:
        """End the snapshot, so that the journal can be overwritten."""
        self._connection.close()
