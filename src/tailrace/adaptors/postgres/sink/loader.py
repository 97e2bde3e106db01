"""The bulk load: ADBC fills the staging tables, and sends Arrow batches as COPY."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.adaptors.postgres import errors
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.staged_rows import StagedRows, new_table, staged_id
from tailrace.adaptors.sql.state import SinkState
from tailrace.errors import Rejected

_AT = re.compile(r"line (\d+), column (c\d+|rest)")


class PostgresLoader:
    """Makes and fills staging tables on one ADBC connection, which goes back to the pool when the stack closes."""

    def __init__(self, database: Database, dialect: Dialect, state: SinkState, stack: ExitStack) -> None:
        self._database, self._dialect, self._schema = database, dialect, state.schema
        self._connection = stack.enter_context(database.lent())
        with database.guarded("staging"), self._connection.cursor() as cursor:
            # Staged rows need not survive a crash of the server: the batch is then staged again.
            cursor.execute("SET synchronous_commit = off")
            cursor.execute("SELECT extract(epoch FROM now())::bigint")
            (self._now,) = cursor.fetchone()
        with database.asking("staging") as connection:
            state.make(connection)

    def load(self, rows: StagedRows, data: pa.RecordBatch) -> StagedRows:
        """Stage rows in a table of their own; return them with its name."""
        table = new_table(self._now)
        with self._connection.cursor() as cursor:
            with self._database.guarded(f"staging {rows.namespace}", rows.namespace):
                cursor.execute(self._dialect.create_staging(self._schema, table, rows.columns, wide=rows.wide))
            self._ingest(cursor, table, rows, data)
        return replace(rows, table=table)

    def _ingest(self, cursor: Any, table: str, rows: StagedRows, data: pa.RecordBatch) -> None:
        import adbc_driver_manager

        try:
            cursor.adbc_ingest(table, data, mode="append", db_schema_name=self._schema)
        except adbc_driver_manager.Error as error:
            found = errors.failed(error, self._database.where, f"staging {rows.namespace}", rows.namespace)
            at = _AT.search(str(error))
            raise _named(found, rows, data, at) if isinstance(found, Rejected) and at else found from None

    def commit(self) -> None:
        """Commit what was staged."""
        with self._database.guarded("staging"):
            self._connection.commit()


def _named(error: Rejected, rows: StagedRows, data: pa.RecordBatch, at: re.Match[str]) -> Rejected:
    """The same error, with the column and the id of the value that it is about."""
    row, column = int(at[1]) - 1, at[2]
    name = rows.columns[int(column[1:])].name if column != "rest" else "one of its columns"
    id = staged_id(rows, data.slice(row, 1))
    return Rejected(f"{error}: column {name}, id {id}", namespace=rows.namespace, id=id)
