"""Copying again: a table without a key, in one known snapshot, while it is being followed.

Changes of a table with a key may be applied twice, over a copy that has them already.  Those of a table without one may
not: two equal rows are two rows.  So if such a table changed between the beginning of its copy and the end, it is
emptied and copied once more, and of what the log says later, what this copy's snapshot had seen is skipped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tailrace.adaptors.postgres import catalog, copying, names
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.position import Cut, lsn_number
from tailrace.adaptors.postgres.publication import published
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.errors import NotThere


def read(
    database: Database, settings: PostgresSource, namespace: str, seen: set[int]
) -> Iterator[tuple[Cut, pa.RecordBatch | None]]:
    """A table's rows, and the snapshot they are of, in which all of `seen` had committed.  At least one pair."""
    doing = f"copying {namespace} again"
    with contextlib.closing(database.arrow()) as connection, database.guarded(doing):
        cut = _snapshot(connection, seen)
        yield cut, None
        try:
            with database.connect(doing) as aside:
                columns, condition = published(aside, settings.published, names.parts(namespace))
                table = catalog.table(aside, namespace, columns)
                leaves = catalog.leaves(aside, table)
        except NotThere:
            return
        for leaf in leaves:
            query = copying.select(table, (leaf.schema, leaf.name, 0, None), condition)
            for batch in copying.stream(connection, table, query, settings.batch_bytes):
                yield cut, batch


def _snapshot(connection: Any, seen: set[int]) -> Cut:
    """Begin to read.  The log may tell of a commit a moment before snapshots see it."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text")
            snapshot, lsn = cursor.fetchone()
        cut = Cut(snapshot, lsn_number(lsn))
        if all(cut.saw(xid) for xid in seen):
            return cut
        connection.rollback()
        time.sleep(0.01)
