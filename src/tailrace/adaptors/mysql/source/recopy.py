"""Recopies: the follower copies a table once more, in one snapshot whose transactions it knows.

A change of a table with a key may be applied over a copy that has it already.  A change of a table without a key may
not, because two equal rows are two rows.  So if such a table changes while the pipeline copies it, the follower empties
it in the sinks and copies it once more.  Of the log that follows it skips the table's changes that this snapshot has
seen.  It does the same after a statement that changed the table's rows or their ids without logging how.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from tailrace.adaptors.mysql import catalog, names
from tailrace.adaptors.mysql.database import Database, ask, close
from tailrace.adaptors.mysql.errors import NOT_THERE, code_of
from tailrace.adaptors.mysql.gtid import Executed
from tailrace.adaptors.mysql.settings import MySQLSource
from tailrace.adaptors.mysql.source import copy, snapshot
from tailrace.errors import NotThere


class Recopy:
    """A new copy of a table, in a snapshot that has seen all transactions of `place`.

    Once `batches` has ended, `cut` has the transactions that the snapshot has seen, or None if the table is gone, and
    `keys` the table's key columns."""

    def __init__(self, database: Database, settings: MySQLSource, namespace: str, place: Executed) -> None:
        self._database, self._settings, self._place = database, settings, place
        self.namespace = namespace
        self.cut: Executed | None = None
        self.keys: tuple[str, ...] = ()

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield the table's rows; nothing if the table is gone."""
        connection = self._database.open()
        try:
            with self._database.guarded(f"copying {self.namespace} again", self.namespace):
                yield from self._read(connection)
        finally:
            close(connection)

    def _read(self, connection: object) -> Iterator[pa.RecordBatch]:
        quoted = names.quote(*names.parts(self.namespace, self._database.name))
        try:
            self.cut = snapshot.cut(self._database, connection, quoted, self._place, self._settings.patience)
            # A read within the transaction takes a metadata lock, which blocks ALTER TABLE until the transaction ends.
            ask(connection, f"SELECT 1 FROM {quoted} LIMIT 1")
            table = catalog.table(connection, self.namespace, self._database.name)
        except NotThere:
            self.cut = None
            return
        except Exception as error:
            if code_of(error) not in NOT_THERE:
                raise
            self.cut = None
            return
        self.keys = table.keys
        keep = self._settings.zero_dates == "keep"
        yield from copy.stream(connection, table, {}, self._settings.batch_bytes, zero_dates=keep)
