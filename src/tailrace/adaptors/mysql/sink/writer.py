"""The writer: tables of a MySQL or MariaDB database, kept equal to the source exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.mysql.database import check_version
from tailrace.adaptors.mysql.settings import MySQLSink
from tailrace.adaptors.mysql.sink.connection import SinkDatabase
from tailrace.adaptors.mysql.sink.dialect import MySQLDialect
from tailrace.adaptors.mysql.sink.loader import MySQLLoader
from tailrace.adaptors.sql import staging
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.writer import SqlWriter


class MySQLWriter(SqlWriter):
    """Writes the tables of one database, or of those that namespaces name.  A batch and its offsets are one
    transaction of the sink."""

    dialect: ClassVar[Dialect] = MySQLDialect()

    def __init__(self, settings: MySQLSink) -> None:
        self._settings = settings
        schema = settings.schema or self.database.name or None
        super().__init__(msgspec.structs.replace(settings, schema=schema))

    def __repr__(self) -> str:
        return f"MySQLWriter({self._settings!r})"

    @cached_property
    def database(self) -> SinkDatabase:
        """Where the tables are."""
        return SinkDatabase(self._settings.uri)

    def check(self) -> None:
        """Version, and the right to keep the state, whose tables are made here."""
        with self.database.connect("checking") as connection:
            check_version(connection.raw, self.database.where)
            self._state.make(connection)

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Into tables of the state, or, if they are few, into the answer itself."""
        return staging.stage(self.dialect, rows, partial(MySQLLoader, self.database, self.dialect, self._state))
