"""The writer: keeps tables of a MySQL or MariaDB database equal to the source, exactly once."""

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
    """Writes the tables of one database, or of the databases that the namespaces name.  One transaction of the sink
    merges a batch and stores its offsets."""

    dialect: ClassVar[Dialect] = MySQLDialect()

    def __init__(self, settings: MySQLSink) -> None:
        self._settings = settings
        schema = settings.schema or self.database.name or None
        super().__init__(msgspec.structs.replace(settings, schema=schema))

    def __repr__(self) -> str:
        return f"MySQLWriter({self._settings!r})"

    @cached_property
    def database(self) -> SinkDatabase:
        """The sink's database."""
        return SinkDatabase(self._settings.uri)

    def check(self) -> None:
        """Check the server's version, and create the state's tables, which needs the right to do so."""
        with self.database.connect("checking") as connection:
            check_version(connection.raw, self.database.where)
            self._state.make(connection)

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage rows in staging tables in the state's database, or, if they are few, inside the returned `Staged`."""
        return staging.stage(self.dialect, rows, partial(MySQLLoader, self.database, self.dialect, self._state))
