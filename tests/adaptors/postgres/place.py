"""A database of a test: SQL by hand, and readers and writers of it."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import psycopg

from tailrace.adaptors.postgres.settings import PostgresSink, PostgresSource
from tailrace.adaptors.postgres.sink.writer import PostgresWriter
from tailrace.adaptors.postgres.source.reader import PostgresReader
from tests.servers.postgres import Postgres

_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"


class Place:
    """One database, with a connection of the superuser for the test's own SQL."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name, self.uri = server, name, server.uri(name)
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        """Give up the test's own connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The test's own connection, anew if the server was gone."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.uri, autocommit=True)
        return self._connection

    def run(self, sql: str, *values: Any) -> None:
        """Execute something."""
        self.connection.execute(sql, values or None)

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.connection.execute(sql, values or None).fetchall()

    def texts(self, table: str, columns: str = "*") -> list[str]:
        """The rows of a table as texts, sorted: what two tables are compared by."""
        return [text for (text,) in self.ask(f"SELECT t::text FROM (SELECT {columns} FROM {table}) t ORDER BY 1")]

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns."""
        return [name for (name,) in self.ask(_COLUMNS, table)]

    def reader(self, **settings: Any) -> PostgresReader:
        """A new reader of it."""
        return PostgresReader(PostgresSource(**{"uri": self.uri, "slot": self.name, **settings}))

    def drop_slots(self, admin: psycopg.Connection[Any]) -> None:
        """Remove this database's slots, once their readers are gone."""
        sql = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
        for (slot,) in admin.execute(sql, [self.name]).fetchall():
            admin.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [slot]
            )
            deadline = time.monotonic() + 10
            while True:
                try:
                    admin.execute("SELECT pg_drop_replication_slot(%s)", [slot])
                    break
                except psycopg.errors.ObjectInUse:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)

    def writer(self, **settings: Any) -> PostgresWriter:
        """A new writer to it."""
        return PostgresWriter(PostgresSink(**{"uri": self.uri, **settings}))


def assert_same(source: Place, sink: Place, table: str) -> None:
    """A table is the same in both.  The sink gets a column with the first row that has a value in it."""
    there, here = source.columns(table), set(sink.columns(table))
    for column in there:
        if column not in here:
            assert source.ask(f"SELECT count({column}) FROM {table}") == [(0,)], f"the sink lacks {table}.{column}"
    both = ", ".join(column for column in there if column in here)
    assert sink.texts(table, both) == source.texts(table, both), table
