"""The writer of a SQL sink: keeps tables equal to the source, exactly once.

A batch and its offsets are one transaction.  The `Dialect` has what differs between systems.  A subclass adds the
dialect, the database, `check`, and `stage` with the system's bulk load.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.sinks import missing_targets
from tailrace.adaptors.sql import refused_row, staging
from tailrace.adaptors.sql.connection import SqlConnection, SqlDatabase
from tailrace.adaptors.sql.ddl import Tables, table_of
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.merge import Merge
from tailrace.adaptors.sql.staged_rows import StagedRows
from tailrace.adaptors.sql.state import SinkState
from tailrace.adaptors.sql.target import SqlSettings, Target
from tailrace.adaptors.sql.written_tables import WrittenTable, WrittenTables
from tailrace.errors import BadInput, Unavailable

_log = logging.getLogger("tailrace")
TIDY_SECONDS = 600.0
"""Seconds between two searches for staging tables that no batch needs any more."""
_Prepared = list[tuple[StagedRows, Target]]


class SqlWriter(Writer):
    """Writes the tables of one database."""

    guarantee: ClassVar[Guarantee] = "exactly once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE})
    dialect: ClassVar[Dialect]

    def __init__(self, settings: SqlSettings) -> None:
        self._sink = settings
        self._connection: SqlConnection | None = None
        self._tidied = 0.0
        self._state = SinkState(self.dialect, settings.state)
        self._list = WrittenTables(self.dialect, settings.state)
        self._tables = Tables(self.dialect, settings)
        self._known: set[str] = set()
        """Namespaces whose table had some of the copied ids already, so that a plain insert is not tried."""
        self._fresh: set[str] = set()
        """Namespaces whose table had none of the copied ids when the copy began."""
        self._written: dict[str, WrittenTable] | None = None
        """The tables that this writer has written, as the sink lists them; None: they must be read."""
        self._confused: set[str] = set()
        """Namespaces for which a warning was logged that the table takes different ids for equal."""
        self._warned: set[tuple[str, str]] = set()
        """The columns for which a warning was logged that they round values."""
        self._files: dict[str, Any] = {}
        """What identified the table of each namespace when it was last seen."""
        self._owners: dict[Any, str] = {}
        """The namespace of each table that was seen, by what identified the table."""

    @property
    @abstractmethod
    def database(self) -> SqlDatabase:
        """The database that the tables are in."""

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Write the rows in a transaction that is rolled back.  Does nothing where CREATE TABLE cannot be rolled
        back."""
        if self.dialect.transactional_ddl:
            with self.database.connect("trying to write") as connection, connection.transaction(force_rollback=True):
                staged = staging.inline(self.dialect, [batch for batch in rows if batch.num_rows])
                self._merge(connection, self._prepare(connection, staged, None), None)

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Return epoch and offsets of the last batch that was finished; None if there is none."""
        with self.database.connect("reading offsets") as connection:
            self._tidy(connection)
            fence = self._state.read(connection, pipeline, writer)
            return None if fence is None else fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """Return what `restore` returns, and fence earlier epochs: they can finish nothing any more."""
        connection = self._ready()
        with self.database.guarded("claiming the sink"), connection.transaction():
            fence = self._state.lock(connection, who)
            claimed = fence.claim(who)
            self._written = None
            if claimed is not None:
                self._state.store(connection, who, claimed)
            return fence.restored()

    def lost(self, who: Who) -> list[str]:
        """The tables that this writer has written and another program has dropped or emptied."""
        connection = self._ready()
        with self.database.guarded("looking for its tables"):
            gone = self._list.lost(connection, self._list.load(connection, who).values())
        return [f"the table {self.dialect.quote(*table.place)}" for table in gone]

    def forget(self, who: Who) -> None:
        """Forget which tables this writer has written."""
        connection, self._written = self._ready(), None
        self._files.clear()
        with self.database.guarded("forgetting its tables"):
            self._list.forget(connection, who)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Merge the staged rows and store the offsets, in one transaction.  For a batch that is finished already it
        changes nothing.  Raises `Fenced` if a newer run has claimed the sink."""
        connection, rows, prepared, written = self._ready(), _staged_rows(staged), None, None
        with self.database.guarded("finishing a batch"):
            if not self.dialect.transactional_ddl:
                prepared = self._prepare_ahead(connection, rows, who, offsets)
            with connection.transaction():
                fence = self._state.lock(connection, who)
                if not fence.is_repeat(who, offsets):
                    if prepared is None:
                        prepared = self._prepare(connection, rows, who)
                    written = self._merge(connection, prepared, who)
                    self._state.store(connection, who, fence.finish(who, offsets))
                if self.dialect.transactional_ddl:
                    self._drop(connection, rows)
            self._written = written or self._written
            if not self.dialect.transactional_ddl:
                self._drop(connection, rows)
            self._tidy(connection)

    def _prepare_ahead(
        self, connection: SqlConnection, rows: Sequence[StagedRows], who: Who, offsets: Mapping[str, Any]
    ) -> _Prepared | None:
        """Prepare the tables before the transaction; return None for a batch that is finished already."""
        fence = self._state.read(connection, who.pipeline, who.writer)
        return None if fence is not None and fence.is_repeat(who, offsets) else self._prepare(connection, rows, who)

    def _prepare(self, connection: SqlConnection, rows: Sequence[StagedRows], who: Who | None) -> _Prepared:
        """Return the tables of staged rows, created or altered where that is needed and allowed."""
        known, prepared = self._known_tables(connection, who), []
        for one in rows:
            before = known.get(one.namespace)
            with self.database.guarded(f"writing {one.namespace}", one.namespace):
                if one.rows or self._makes(connection, one, before):
                    self._check_staged(connection, one)
                    prepared.append((one, self._prepared(connection, one, before, who)))
        return prepared

    def _merge(self, connection: SqlConnection, prepared: _Prepared, who: Who | None) -> dict[str, WrittenTable]:
        """Merge the staged rows.  Returns the tables that the writer has written once the transaction is committed; the
        commit may fail, too."""
        self.dialect.begin_merge(connection)
        known, self._written = self._known_tables(connection, who), None
        now, taken = dict(known), {table.place: name for name, table in known.items()}
        for rows, to in prepared:
            before = now.get(rows.namespace)
            filled = _is_filled(rows, before is not None and before.filled)
            now[rows.namespace] = made = WrittenTable(to.schema, to.name, filled)
            if (other := taken.setdefault(made.place, rows.namespace)) != rows.namespace:
                raise missing_targets.shared(rows.namespace, other, to.sql)
            if rows.rows:
                with self.database.guarded(f"writing {rows.namespace}", rows.namespace):
                    self._one(connection, Merge(self.dialect, rows, to, self._sink.state))
        if who is not None and now != known:
            changed = {name: table for name, table in now.items() if known.get(name) != table}
            self._list.store(connection, who, changed)
        return now

    def _makes(self, connection: SqlConnection, rows: StagedRows, before: WrittenTable | None) -> bool:
        """Whether the sink should learn the columns of a namespace without rows: because its table is missing, or may
        lack some columns.  Without `create` and `alter`, only the first row raises what is missing."""
        if self.dialect.find(connection, *table_of(self.dialect, self._sink, rows.namespace)) is not None:
            return self._sink.alter
        return self._sink.create and before is None

    def _known_tables(self, connection: SqlConnection, who: Who | None) -> dict[str, WrittenTable]:
        if who is None:
            return {}
        if self._written is None:
            self._written = self._list.load(connection, who)
        return self._written

    def _prepared(
        self, connection: SqlConnection, rows: StagedRows, before: WrittenTable | None, who: Who | None
    ) -> Target:
        """Prepare the table of staged rows.  Raises `NotReady` if the writer has written it before and it is gone or
        was emptied since."""
        file = self.dialect.find(connection, *table_of(self.dialect, self._sink, rows.namespace))
        changed = file is None or file != self._files.get(rows.namespace)
        if who is not None and before is not None and changed and self._list.lost(connection, [before]):
            raise missing_targets.gone(who, rows.namespace, self.dialect.quote(*before.place), "table")
        made = self._tables.prepare(connection, rows)
        other = self._owners.get(made.file, rows.namespace)
        if other != rows.namespace and self._files.get(other) == made.file:  # some servers ignore the case of names
            raise missing_targets.shared(rows.namespace, other, made.sql)
        self._files[rows.namespace], self._owners[made.file] = made.file, rows.namespace
        for column, warning in self._tables.narrower(made, rows).items():
            if (rows.namespace, column) not in self._warned:
                self._warned.add((rows.namespace, column))
                _log.warning(warning)
        return made

    def _one(self, connection: SqlConnection, merge: Merge) -> None:
        if self._inserted(connection, merge):
            return
        try:
            with connection.transaction():
                if not merge.rows.deletes:  # else the other row may be one that is deleted now
                    self._tell_confused(connection, merge)
                for sql in merge.statements():
                    connection.execute(*merge.bound(sql))
                self._tell_confused(connection, merge)
        except self.dialect.refusals as error:
            raise refused_row.find(connection, error, merge) from None

    def _tell_confused(self, connection: SqlConnection, merge: Merge) -> None:
        """Log a warning, once for each namespace, if a row takes the place of one with another id."""
        namespace, sql = merge.rows.namespace, merge.confused()
        if not sql or namespace in self._confused:
            return
        if (found := connection.execute(*merge.bound(sql)).fetchone()) is None:
            return
        self._confused.add(namespace)
        half = len(found) // 2
        ids = ["\x1f".join(map(str, some)) for some in (found[:half], found[half:])]
        _log.warning(
            "%s: the ids %r and %r are one row of %s, because its key takes them for equal; unless the source has "
            "renamed one of them, a row is missing here: give the key a collation that compares bytes, and have the "
            "table delivered again",
            namespace,
            *ids,
            merge.target.sql,
        )

    def _inserted(self, connection: SqlConnection, merge: Merge) -> bool:
        """Try to insert the rows of a copy as they are, which succeeds for nearly all.  Returns False, with nothing
        inserted, if they must be merged.

        With the first rows of a copy a query tells whether the table has some of the ids.  An attempt would tell that,
        too, but leave an error in the server's log."""
        namespace, sql = merge.rows.namespace, merge.plain()
        if sql is not None and namespace not in self._known | self._fresh:
            row = connection.execute(merge.overlap()).fetchone()
            (self._known if row and row[0] else self._fresh).add(namespace)
        if sql is None or namespace in self._known:
            return False
        try:
            with connection.transaction():
                connection.execute(sql)
        except self.dialect.refusals:
            self._known.add(namespace)
            return False
        return True

    def _check_staged(self, connection: SqlConnection, rows: StagedRows) -> None:
        """Raise `Unavailable` unless all staged rows are there: a crash of the server may empty staging tables."""
        if not rows.table or not rows.rows:
            return
        if self.dialect.find(connection, self._sink.state, rows.table) is not None:
            table = self.dialect.quote(self._sink.state, rows.table)
            row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            if row and row[0] == rows.rows:
                return
        raise Unavailable(f"rows of {rows.namespace} that were staged are gone; the batch must be staged again")

    def discard(self, staged: Sequence[Staged]) -> None:
        """Drop the staging tables of a batch that failed."""
        rows = _staged_rows(staged)
        if any(one.table for one in rows):
            with self.database.connect("discarding") as connection:
                self._drop(connection, rows)

    def _drop(self, connection: SqlConnection, rows: Sequence[StagedRows]) -> None:
        if tables := [self.dialect.quote(self._sink.state, one.table) for one in rows if one.table]:
            connection.execute(self.dialect.drop_tables(tables))

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Empty the table of a namespace, by DELETE where TRUNCATE is not possible."""
        if command.name not in self.commands:
            raise BadInput(f"{namespace}: {self.dialect.system} has no command {command.name!r}; there is: truncate")
        table = self.dialect.quote(*table_of(self.dialect, self._sink, namespace))
        connection = self._ready()
        with self.database.guarded(f"emptying {namespace}"), connection.transaction():
            self._state.lock(connection, who).admit(who)
            self._emptied(connection, namespace, who)
            self.dialect.empty(connection, table)

    def _emptied(self, connection: SqlConnection, namespace: str, who: Who) -> None:
        """Note that the table of a namespace may be empty from now on, so that `lost` does not report it."""
        known, self._written = self._known_tables(connection, who), None
        self._files.pop(namespace, None)
        if namespace in known:
            self._list.store(connection, who, {namespace: replace(known[namespace], filled=False)})

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ready(self) -> SqlConnection:
        """Return the writer's connection.  The first call opens it and makes the state's tables."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        connection: SqlConnection = self.database.open()
        try:
            with self.database.guarded("making the state"):
                self._state.make(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _tidy(self, connection: SqlConnection) -> None:
        """Drop the staging tables of runs that died; looks for them at most every `TIDY_SECONDS`."""
        if time.monotonic() - self._tidied > TIDY_SECONDS or not self._tidied:
            self._tidied = time.monotonic()
            for table in self._state.orphans(connection):
                connection.execute(self.dialect.drop_tables([self.dialect.quote(self._sink.state, table)]))


def _is_filled(rows: StagedRows, before: bool) -> bool:
    """Whether the table certainly has rows after a merge.  A merge deletes first and inserts afterwards."""
    return rows.upserts > 0 or (before and not rows.deletes)


def _staged_rows(staged: Sequence[Staged]) -> list[StagedRows]:
    return [rows for share in staged for rows in share.detail or ()]
