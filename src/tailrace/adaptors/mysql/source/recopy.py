"""Copying again: a table in one known snapshot, by the follower.

Changes of a table with a key may be applied twice, over a copy that has them already.  Those of a table without one may
not: two equal rows are two rows.  So if such a table changed between the beginning of its copy and the end, it is
emptied and copied once more, and of what the log says later, what this copy's snapshot had seen is skipped.  So too if
a statement changed which rows there are, or their ids, and the log does not say how.
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
    """A new copy of a table, in a snapshot that has seen all of `place`.  `cut` and `keys` are known once `batches` has
    ended; no cut: the table is gone."""

    def __init__(self, database: Database, settings: MySQLSource, namespace: str, place: Executed) -> None:
        self._database, self._settings, self._place = database, settings, place
        self.namespace = namespace
        self.cut: Executed | None = None
        self.keys: tuple[str, ...] = ()

    def batches(self) -> Generator[pa.RecordBatch]:
        """The rows."""
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
            # Any look at the table within the transaction keeps it as it is until the end.
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
