"""The writer: tables of a PostgreSQL database, kept equal to the source exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors import turn
from tailrace.adaptors.contract import Staged, Who, Writer
from tailrace.adaptors.postgres import culprit, merge, names, stage, state, target
from tailrace.adaptors.postgres.database import Database, check_version
from tailrace.adaptors.postgres.settings import PostgresSink
from tailrace.adaptors.postgres.state import Kept
from tailrace.adaptors.postgres.unit import Unit
from tailrace.errors import BadInput, NotReady, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

TIDY = 600.0
"""Seconds between two looks for staging tables that nobody needs."""


class PostgresWriter(Writer):
    """Writes the tables of one database.  A batch and its offsets are one transaction of the sink."""

    guarantee = "exactly once"

    def __init__(self, settings: PostgresSink) -> None:
        self._settings = settings
        self._connection: Connection[Any] | None = None
        self._tidied = 0.0
        self._known: set[str] = set()
        """Namespaces of which some ids were there already."""

    def __repr__(self) -> str:
        return f"PostgresWriter({self._settings!r})"

    @cached_property
    def _database(self) -> Database:
        return Database(self._settings.uri)

    def check(self) -> None:
        """Version, and the right to keep the state."""
        schema = self._settings.state
        with self._database.connect("checking") as connection:
            check_version(connection, self._database.where)
            sql = """SELECT CASE WHEN to_regnamespace(%(name)s) IS NULL
                            THEN has_database_privilege(current_database(), 'CREATE')
                            ELSE has_schema_privilege(%(raw)s, 'CREATE') END, current_database()"""
            row = connection.execute(sql, {"name": names.quote(schema), "raw": schema}).fetchone()
            if row is not None and not row[0]:
                raise NotReady(
                    f"PostgreSQL at {self._database.where}: user {self._database.user!r} may not make tables in schema "
                    f"{schema!r}, where offsets are kept; GRANT CREATE ON DATABASE {names.quote(row[1])} TO "
                    f"{names.quote(self._database.user)};"
                )

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Write them, in a transaction that is rolled back."""
        with self._database.connect("trying to write") as connection, connection.transaction(force_rollback=True):
            self._merge(connection, stage.inline([batch for batch in rows if batch.num_rows]))

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Epoch and offsets of the last batch that was finished."""
        with self._database.connect("reading offsets") as connection:
            self._tidy(connection)
            return _told(state.read(connection, self._settings.state, pipeline, writer))

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """As `restore`; and earlier epochs can finish nothing any more."""
        connection = self._ready()
        with self._database.guarded("claiming the sink"), connection.transaction():
            kept = state.lock(connection, self._settings.state, who)
            turn.is_repeat((kept.epoch, {}), who, {})
            if who.epoch > kept.epoch:
                state.store(connection, self._settings.state, who, Kept(who.epoch, kept.offsets, True))
            return _told(kept)

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Into unlogged tables of the state, or, if they are few, into the answer itself."""
        return stage.stage(self._database, self._settings.state, rows)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Merge and store the offsets, in one transaction.  Again, it changes nothing."""
        connection = self._ready()
        with self._database.guarded("finishing a batch"):
            with connection.transaction():
                kept = state.lock(connection, self._settings.state, who)
                if not kept.is_repeat(who, offsets):
                    self._merge(connection, _units(staged))
                    state.store(connection, self._settings.state, who, Kept(who.epoch, offsets, False))
            self._tidy(connection)

    def _merge(self, connection: Connection[Any], units: Sequence[Unit]) -> None:
        connection.execute("SET CONSTRAINTS ALL DEFERRED")
        for unit in units:
            self._one(connection, unit)
        tables = [unit.table for unit in units if unit.table]
        if tables:
            connection.execute(stage.drop(tables, self._settings.state))

    def _one(self, connection: Connection[Any], unit: Unit) -> None:
        import psycopg

        with self._database.guarded(f"writing {unit.namespace}", unit.namespace):
            self._there(connection, unit)
            to = target.prepare(connection, self._settings, unit)
            where = merge.origin(unit, self._settings.state)
            if self._inserted(connection, unit, merge.plain(unit, to, where)):
                return
            try:
                with connection.transaction():
                    for sql in merge.statements(unit, to, where):
                        connection.execute(*merge.bound(sql, where))
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise culprit.find(connection, error, unit, to, where) from None

    def _inserted(self, connection: Connection[Any], unit: Unit, sql: str | None) -> bool:
        """Whether a unit could be inserted as it is: in a copy nearly all can.  Else nothing of it is there."""
        import psycopg

        if sql is None or unit.namespace in self._known:
            return False
        try:
            with connection.transaction():
                connection.execute(sql)
        except (psycopg.DataError, psycopg.IntegrityError):
            self._known.add(unit.namespace)
            return False
        return True

    def _there(self, connection: Connection[Any], unit: Unit) -> None:
        """A crash of the server empties unlogged tables: what was staged must be all there."""
        if not unit.table:
            return
        table = names.quote(self._settings.state, unit.table)
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()
        if row and row[0]:
            row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            if row and row[0] == unit.rows:
                return
        raise Unavailable(f"rows of {unit.namespace} that were staged are gone; the batch must be staged again")

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove staging tables."""
        tables = [unit.table for unit in _units(staged) if unit.table]
        if tables:
            with self._database.connect("discarding") as connection:
                connection.execute(stage.drop(tables, self._settings.state))

    def command(self, namespace: str, name: str, who: Who) -> None:
        """Truncate: also where only deleting is possible."""
        if name != "truncate":
            raise BadInput(f"{namespace}: PostgreSQL has no command {name!r}; there is: truncate")
        import psycopg

        table = names.quote(*target.place(self._settings, namespace))
        connection = self._ready()
        with self._database.guarded(f"emptying {namespace}"), connection.transaction():
            kept = state.lock(connection, self._settings.state, who)
            turn.is_repeat((kept.epoch, {}), who, {})
            try:
                with connection.transaction():
                    connection.execute(f"TRUNCATE TABLE {table}")
            except psycopg.errors.UndefinedTable:
                return
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported):
                connection.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        """Give up the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ready(self) -> Connection[Any]:
        """A connection to a sink that has the state's table."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        connection = self._database.open()
        try:
            with self._database.guarded("making the state"):
                if state.missing(connection, self._settings.state):
                    state.create(connection, self._settings.state)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _tidy(self, connection: Connection[Any]) -> None:
        """Remove what runs that died have staged."""
        if time.monotonic() - self._tidied > TIDY or not self._tidied:
            self._tidied = time.monotonic()
            for table in state.orphans(connection, self._settings.state):
                connection.execute(stage.drop([table], self._settings.state))


def _told(kept: Kept | None) -> Mapping[str, Any] | None:
    return {"epoch": kept.epoch, "offsets": kept.offsets} if kept is not None and kept.offsets is not None else None


def _units(staged: Sequence[Staged]) -> list[Unit]:
    return [unit for share in staged for unit in share.detail or ()]
