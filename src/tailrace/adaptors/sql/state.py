"""The state that a SQL sink keeps for its pipelines, in a schema of its own.

    <state>.offsets       pipeline, writer (key), epoch, offsets (JSON; null: none yet), claimed, changed_at
    <state>.tables        see written_tables
    <state>.stage_…       what tasks have staged; see staged_rows

While a run finishes a batch it holds a lock on its writer's row, and writes the row in the same transaction as the
batch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.adaptors.contract import Who
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.staged_rows import made_at

ORPHANED_SECONDS = 3600
"""The age at which a staging table is dropped.  A batch that takes longer finds that its table is gone, and is staged
again."""


class SinkState:
    """The state in one schema.  The caller passes the connection."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        self._dialect, self.schema = dialect, schema
        self._table = dialect.quote(schema, "offsets")

    def make(self, connection: SqlConnection) -> None:
        """Make the schema and its tables unless all are there."""
        if self._dialect.missing(connection, [(self.schema, "offsets"), (self.schema, "tables")]):
            self._dialect.create_state(connection, self.schema)

    def read(self, connection: SqlConnection, pipeline: str, writer: str) -> Fence | None:
        """Return what the sink keeps for a writer; None if it keeps nothing."""
        if self._dialect.missing(connection, [(self.schema, "offsets")]):
            return None
        sql = f"SELECT epoch, offsets, claimed FROM {self._table} WHERE pipeline = %s AND writer = %s"
        found = connection.execute(sql, [pipeline, writer]).fetchone()
        return _fence(*found) if found else None

    def lock(self, connection: SqlConnection, who: Who) -> Fence:
        """Return what the sink keeps for a writer, and lock it: no other run can change it before this transaction
        ends."""
        mine = [who.pipeline, who.writer]
        columns = f"{self._table} (pipeline, writer, epoch, offsets, claimed)"
        connection.execute(self._dialect.insert_absent(columns, 5), [*mine, -1, None, False])
        sql = f"SELECT epoch, offsets, claimed FROM {self._table} WHERE pipeline = %s AND writer = %s"
        sql += self._dialect.for_update
        return _fence(*connection.execute(sql, mine).fetchone())

    def store(self, connection: SqlConnection, who: Who, fence: Fence) -> None:
        """Store the fence of a writer."""
        sql = f"""UPDATE {self._table} SET epoch = %s, offsets = %s, claimed = %s, changed_at = CURRENT_TIMESTAMP
                  WHERE pipeline = %s AND writer = %s"""
        offsets = None if fence.offsets is None else msgspec.json.encode(fence.offsets).decode()
        connection.execute(sql, [fence.epoch, offsets, fence.claimed, who.pipeline, who.writer])

    def orphans(self, connection: SqlConnection) -> list[str]:
        """The staging tables that no batch needs any more."""
        found = self._dialect.staging_tables(connection, self.schema)
        return [table for table, now in found if now - made_at(table) > ORPHANED_SECONDS]


def _fence(epoch: int, offsets: Any, claimed: Any) -> Fence:
    plain = msgspec.json.decode(offsets) if isinstance(offsets, str | bytes) else offsets
    return Fence(epoch, plain, bool(claimed))
