"""Written tables: the list of tables that a writer has written, by which it notices when another program drops or
empties one.

    <state>.tables    pipeline, writer, namespace (key), schema, name, filled

The writer adds a row in the transaction that first writes the table.  `filled` is true if the last batch left rows in
the table.  It is false if the last batch only deleted: the table may then be empty without another program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.adaptors.contract import Who
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect

TABLES_PER_QUERY = 200
"""The most tables that one statement checks, and the most rows that one statement stores."""


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table that a namespace is written to.  `filled`: it certainly has rows."""

    schema: str
    name: str
    filled: bool

    @property
    def place(self) -> tuple[str, str]:
        """The schema and the name of the table."""
        return self.schema, self.name


class WrittenTables:
    """The list of written tables in one sink.  The caller passes the connection."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        self._dialect, self._table = dialect, dialect.quote(schema, "tables")

    def load(self, connection: SqlConnection, who: Who) -> dict[str, WrittenTable]:
        """Return the tables that a writer has written, by namespace."""
        columns = ", ".join(map(self._dialect.quote, ("namespace", "schema", "name", "filled")))
        sql = f"SELECT {columns} FROM {self._table} WHERE pipeline = %s AND writer = %s"
        found = connection.execute(sql, [who.pipeline, who.writer]).fetchall()
        return {row[0]: WrittenTable(row[1], row[2], bool(row[3])) for row in found}

    def store(self, connection: SqlConnection, who: Who, written: Mapping[str, WrittenTable]) -> None:
        """Add these tables to a writer's list, or replace their entries."""
        rows = [(who.pipeline, who.writer, name, t.schema, t.name, t.filled) for name, t in written.items()]
        keys, others = ("pipeline", "writer", "namespace"), ("schema", "name", "filled")
        for at in range(0, len(rows), TABLES_PER_QUERY):
            some = rows[at : at + TABLES_PER_QUERY]
            sql = self._dialect.replace_values(self._table, keys, others, len(some))
            connection.execute(sql, [value for row in some for value in row])

    def forget(self, connection: SqlConnection, who: Who) -> None:
        """Delete the whole list of a writer."""
        sql = f"DELETE FROM {self._table} WHERE pipeline = %s AND writer = %s"
        connection.execute(sql, [who.pipeline, who.writer])

    def lost(self, connection: SqlConnection, written: Iterable[WrittenTable]) -> list[WrittenTable]:
        """Return the tables that no longer exist, and those that are empty though they were left filled."""
        some = sorted(written, key=lambda table: table.place)
        missing = self._dialect.missing(connection, [table.place for table in some])
        there = [table for table in some if table.filled and table.place not in missing]
        empty: set[tuple[str, str]] = set()
        for at in range(0, len(there), TABLES_PER_QUERY):
            asked = there[at : at + TABLES_PER_QUERY]
            checks = (
                f"SELECT {n} AS n, EXISTS (SELECT 1 FROM {self._dialect.quote(*table.place)}) AS filled"
                for n, table in enumerate(asked)
            )
            found = connection.execute(" UNION ALL ".join(checks)).fetchall()
            empty |= {asked[n].place for n, filled in found if not filled}
        return [table for table in some if table.place in missing | empty]
