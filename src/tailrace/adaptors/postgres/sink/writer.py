"""The writer: keeps tables of a PostgreSQL database equal to the source, exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.database import Database, check_version
from tailrace.adaptors.postgres.settings import PostgresSink
from tailrace.adaptors.postgres.sink.dialect import PostgresDialect
from tailrace.adaptors.postgres.sink.loader import PostgresLoader
from tailrace.adaptors.sql import staging
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.writer import SqlWriter
from tailrace.errors import NotReady


class PostgresWriter(SqlWriter):
    """Writes the tables of one database.  A batch and its offsets are one transaction of the sink."""

    dialect: ClassVar[Dialect] = PostgresDialect()

    def __init__(self, settings: PostgresSink) -> None:
        super().__init__(settings)
        self._settings = settings

    def __repr__(self) -> str:
        return f"PostgresWriter({self._settings!r})"

    @cached_property
    def database(self) -> Database:
        """The database that the tables are in."""
        return Database(self._settings.uri)

    def check(self) -> None:
        """Check the server's version, and the right to create the state's tables."""
        schema = self._settings.state
        with self.database.connect("checking") as connection:
            check_version(connection, self.database.where)
            sql = """SELECT CASE WHEN to_regnamespace(%(name)s) IS NULL
                            THEN has_database_privilege(current_database(), 'CREATE')
                            ELSE has_schema_privilege(%(raw)s, 'CREATE') END, current_database()"""
            row = connection.execute(sql, {"name": names.quote(schema), "raw": schema}).fetchone()
            if row is not None and not row[0]:
                raise NotReady(
                    f"PostgreSQL at {self.database.where}: user {self.database.user!r} may not make tables in schema "
                    f"{schema!r}, where offsets are kept; GRANT CREATE ON DATABASE {names.quote(row[1])} TO "
                    f"{names.quote(self.database.user)};"
                )

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage rows in unlogged tables of the state or, if they are few, in the task's result."""
        return staging.stage(self.dialect, rows, partial(PostgresLoader, self.database, self.dialect, self._state))
