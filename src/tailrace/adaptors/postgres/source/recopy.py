"""Copying again: copies a table from the beginning, in one known snapshot, while the table is followed.

Two kinds of tables need this: one that is no longer the table that was copied, and one without a key that has changed.

Changes of a table with a key may be applied twice, over a copy that has them already.  Changes of a table without a key
may not: two equal rows are two rows.  So if such a table changed while it was copied, the sinks are emptied and the
table is copied once more.  Later changes in the log that the snapshot of this copy has seen are skipped.

The same happens if the table's columns are no longer those of the copy.  All columns are a row's id: a change would
have another id than the row had when it came, and could overtake it.  Besides, the log never has a new column's
default.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors.postgres import catalog, names
from tailrace.adaptors.postgres.catalog import Identity, Table
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.errors import sqlstate
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.source import copy
from tailrace.adaptors.postgres.source.position import Cut, lsn_number
from tailrace.adaptors.postgres.source.publication import published_each, published_sql
from tailrace.errors import NotThere

if TYPE_CHECKING:
    from psycopg import Connection

_SNAPSHOT = "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
_LEAVES = """
    SELECT n.nspname, c.relname FROM pg_partition_tree({}::regclass) t JOIN pg_class c ON c.oid = t.relid
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE t.isleaf AND c.relkind = 'r' ORDER BY 1, 2
"""
ABSENT, LOCKED = ("42P01", "3F000"), "55P03"
"""SQLSTATEs of a table or schema that does not exist, and of a lock that another transaction holds."""


def shapes(connection: Connection[Any], publication: str | None, tables: Sequence[Identity]) -> dict[str, str]:
    """The shapes of those tables to copy again that have no key, read before they are copied.  `publication`: the
    publication that has the tables already, if any."""
    found, keyless = {}, [one.namespace for one in tables if not one.keyed]
    known = published_each(connection, publication, keyless) if publication else {}
    for name in keyless:
        with contextlib.suppress(NotThere):
            table = catalog.table(connection, name, known.get(name, (None, None))[0])
            found[name] = catalog.shape(table.columns, table.keys)
    return {name: shape for name, shape in found.items() if shape}


class Recopy:
    """A new copy of a table, in a snapshot that has seen the given transactions.  `cut` and `shape` are known once
    `batches` has ended."""

    def __init__(self, database: Database, settings: PostgresSource, namespace: str, seen: set[int]) -> None:
        self._database, self._settings, self._seen = database, settings, seen
        self.namespace, self.shape = namespace, ""
        self.cut = Cut("0:0:", 0)
        self._published: tuple[list[str] | None, str | None] = None, None

    def batches(self) -> Iterator[pa.RecordBatch | None]:
        """Yield the rows, and None as a sign of life while it waits."""
        doing = f"copying {self.namespace} again"
        with contextlib.closing(self._database.arrow()) as connection, self._database.guarded(doing):
            deadline = time.monotonic() + self._settings.patience
            while (there := self._lock(connection, deadline)) is None or not self._snapshot(connection):
                connection.rollback()
                yield None
            if there:
                yield from self._rows(connection)

    def _lock(self, connection: Any, deadline: float) -> bool | None:
        """Lock the table so that it stays as it is, and return whether it exists.  None: a transaction is altering the
        table, or another table of the publication."""
        import adbc_driver_manager

        try:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SET LOCAL lock_timeout = '1s'")
                cursor.execute(f"LOCK TABLE {self._table} IN ACCESS SHARE MODE")
            # On this connection: a second one might wait for a transaction that waits for this one's lock.
            _, *found = _one(connection, published_sql(self._settings.published, self.namespace)) or (0, None, None)
            self._published = found[0], found[1]
        except adbc_driver_manager.Error as error:
            connection.rollback()
            if sqlstate(error) in ABSENT:
                return False
            if sqlstate(error) == LOCKED and time.monotonic() < deadline:
                return None
            raise
        return True

    def _snapshot(self, connection: Any) -> bool:
        """Take the snapshot, after the lock, so that it has the table as it is.  The log may have a commit a moment
        before snapshots see it: then return False, and the snapshot must be taken again."""
        snapshot, lsn = _one(connection, _SNAPSHOT)
        self.cut = Cut(snapshot, lsn_number(lsn))
        if all(self.cut.saw(xid) for xid in self._seen):
            return True
        time.sleep(0.01)
        return False

    @property
    def _table(self) -> str:
        return names.quote(*names.parts(self.namespace))

    def _rows(self, connection: Any) -> Iterator[pa.RecordBatch]:
        table, condition = self._described()
        self.shape = catalog.shape(table.columns, table.keys)
        leaves = _all(connection, _LEAVES.format(names.literal(self._table))) if table.partitioned else None
        for schema, name in [(table.schema, table.name)] if leaves is None else leaves:
            query = copy.select(table, (schema, name), condition)
            yield from copy.stream(connection, table, query, self._settings.batch_bytes)

    def _described(self) -> tuple[Table, str | None]:
        columns, condition = self._published
        with self._database.connect(f"copying {self.namespace} again") as aside:
            return catalog.table(aside, self.namespace, columns), condition


def _all(connection: Any, sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _one(connection: Any, sql: str) -> Any:
    found = _all(connection, sql)
    return found[0] if found else None
