"""A database of a test: SQL by hand, and readers of it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pymysql

from tailrace.adaptors.mysql.settings import MySQLSink, MySQLSource
from tailrace.adaptors.mysql.sink.writer import MySQLWriter
from tailrace.adaptors.mysql.source.reader import MySQLReader
from tests.servers.mysql import PASSWORD, MySQL
from tests.servers.process import HOST


class Place:
    """One database, with a connection of root for the test's own SQL."""

    def __init__(self, server: MySQL, name: str) -> None:
        self.server, self.name, self.uri = server, name, server.uri(name)
        self._connection: Any = None

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        """Give up the test's own connection."""
        if self._connection is not None:
            self._connection._force_close()
            self._connection = None

    def connect(self) -> Any:
        """One more connection of root, which the test closes."""
        return pymysql.connect(
            host=HOST, port=self.server.port, user="root", password=PASSWORD, database=self.name, autocommit=True,
            charset="utf8mb4", init_command="SET time_zone = '+00:00', sql_mode = ''",
        )  # fmt: skip

    @property
    def connection(self) -> Any:
        """The test's own connection."""
        if self._connection is None or not self._connection.open:
            self._connection = self.connect()
        return self._connection

    def run(self, *statements: str) -> None:
        """Execute each."""
        for sql in statements:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)

    def many(self, sql: str, values: list[Any]) -> None:
        """One statement for each of some values, in one transaction."""
        self.connection.begin()
        with self.connection.cursor() as cursor:
            cursor.executemany(sql, values)
        self.connection.commit()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def executed(self) -> str:
        """The last of the log."""
        name = "gtid_executed" if self.server.flavor == "mysql" else "gtid_binlog_pos"
        return str(self.ask(f"SELECT @@global.{name}")[0][0])

    def reader(self, **settings: Any) -> MySQLReader:
        """A new reader of it."""
        return MySQLReader(MySQLSource(**{"uri": self.uri, **settings}))

    def writer(self, **settings: Any) -> MySQLWriter:
        """A new writer to it, whose state is this database's own."""
        return MySQLWriter(MySQLSink(**{"uri": self.uri, "state": f"{self.name}_state", **settings}))
