"""The bulk loader: fills staging tables by LOAD DATA LOCAL where the server allows it, else by INSERT of many rows."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.mysql import names
from tailrace.adaptors.mysql.sink.connection import SinkDatabase
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.staged_rows import StagedRows, new_table
from tailrace.adaptors.sql.state import SinkState

INSERT_BYTES = 4 * 1024 * 1024
"""About the most that the loader sends in one INSERT; it sends less if max_allowed_packet is below twice as much."""


class MySQLLoader:
    """Creates and fills staging tables over one connection, which the caller's exit stack closes."""

    def __init__(self, database: SinkDatabase, dialect: Dialect, state: SinkState, stack: ExitStack) -> None:
        self._database, self._dialect, self._schema = database, dialect, state.schema
        self._connection = database.open(local_infile=True)
        stack.callback(self._connection.close)
        with database.guarded("staging"):
            sql = "SELECT UNIX_TIMESTAMP(), @@global.local_infile, @@max_allowed_packet"
            now, local, packet = self._connection.execute(sql).fetchone()
            state.make(self._connection)
        self._now, self._local, self._packet = int(now), bool(local), min(INSERT_BYTES, int(packet) // 2)

    def load(self, rows: StagedRows, data: pa.RecordBatch) -> StagedRows:
        """Load rows into a new staging table, and return `rows` with that table's name."""
        table = new_table(self._now)
        with self._database.guarded(f"staging {rows.namespace}", rows.namespace):
            self._connection.execute(self._dialect.create_staging(self._schema, table, rows.columns, wide=rows.wide))
            fill = self._send_file if self._local else self._insert
            with self._connection.transaction():
                fill(names.quote(self._schema, table), data)
        return replace(rows, table=table)

    def _send_file(self, table: str, data: pa.RecordBatch) -> None:
        with tempfile.NamedTemporaryFile(prefix="tailrace-") as file:
            for line in lines(data):
                file.write(line.encode())
            file.flush()
            self._connection.execute(
                f"LOAD DATA LOCAL INFILE {names.literal(file.name)} INTO TABLE {table} CHARACTER SET utf8mb4 "
                f"FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({', '.join(data.schema.names)})"
            )

    def _insert(self, table: str, data: pa.RecordBatch) -> None:
        into = f"INSERT INTO {table} ({', '.join(data.schema.names)}) VALUES "
        held: list[str] = []
        size = begin = len(into.encode())
        for row in tuples(data):
            bytes = len(row.encode()) + 1
            if held and size + bytes > self._packet:
                self._connection.execute(into + ",".join(held))
                held, size = [], begin
            held.append(row)
            size += bytes
        if held:
            self._connection.execute(into + ",".join(held))

    def commit(self) -> None:
        """Do nothing: `load` commits each table once it is filled."""


def _texts(array: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_binary(array.type):
        return pa.array([None if value is None else value.hex() for value in array.to_pylist()], pa.string())
    return array.cast(pa.string())


def lines(data: pa.RecordBatch) -> list[str]:
    """Return rows as the lines of a file for LOAD DATA."""
    columns = []
    for array in data.columns:
        text = _texts(array)
        if pa.types.is_string(array.type):
            for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\0", "\\0")):
                text = pc.replace_substring(text, plain, escaped)
        columns.append(pc.fill_null(text, "\\N"))
    joined = pc.binary_join_element_wise(*columns, "\t")
    out: list[str] = pc.binary_join_element_wise(joined, "", "\n").to_pylist()
    return out


def tuples(data: pa.RecordBatch) -> list[str]:
    """Return rows as the VALUES of an INSERT, for a session with NO_BACKSLASH_ESCAPES."""
    columns = []
    for array in data.columns:
        text = _texts(array)
        if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            doubled = pc.replace_substring(text, "'", "''")
            text = pc.binary_join_element_wise(pa.scalar("'"), doubled, pa.scalar("'"), "")
        columns.append(pc.fill_null(text, "NULL"))
    joined = pc.binary_join_element_wise(*columns, ",")
    out: list[str] = pc.binary_join_element_wise(pa.scalar("("), joined, pa.scalar(")"), "").to_pylist()
    return out
