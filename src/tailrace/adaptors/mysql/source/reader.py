"""The reader: copies tables of a MySQL or MariaDB database in pieces, then follows them through the row binlog."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.mysql import catalog
from tailrace.adaptors.mysql.database import Database, check_version, flavor_of
from tailrace.adaptors.mysql.settings import MySQLSource
from tailrace.adaptors.mysql.source import cascades, lineage, server, snapshot
from tailrace.adaptors.mysql.source import copy as copying
from tailrace.adaptors.mysql.source.follower import Follower
from tailrace.adaptors.mysql.source.log_stream import can_stream
from tailrace.adaptors.mysql.source.position import Point, mark
from tailrace.errors import BadSetting, NotThere, Unavailable

_log = logging.getLogger("tailrace")


class MySQLReader(Reader):
    """Reads the tables of one database, or of all databases of a server.  Namespaces are database.table."""

    follows = True

    def __init__(self, settings: MySQLSource) -> None:
        self._settings, self.follows = settings, settings.follow
        self._follower: Follower | None = None
        self._changes: Generator[Changes] | None = None
        self._rows: dict[str, int] | None = None
        """The server's estimate of each table's number of rows; None before the tables are listed."""
        self._planned: set[str] = set()
        """Tables for which pieces were planned: from then on the pipeline follows them, even if they are dropped."""

    def __repr__(self) -> str:
        return f"MySQLReader({self._settings!r})"

    @cached_property
    def _database(self) -> Database:
        return Database(self._settings.uri)

    def check(self) -> None:
        """Check the server's version and, for following, its binlog settings and the right to read the binlog."""
        with self._database.connect("checking") as connection:
            check_version(connection, self._database.where)
            if not self.follows:
                return
            server.check(connection, self._database.where)
            can_stream(self._database, snapshot.logged(connection))
            for warning in server.warnings(connection, self._database.where):
                _log.warning(warning)

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise `NotReady` if foreign keys change rows of these tables and `cascades` is "ask": no binlog has that."""
        if self.follows and self._settings.cascades == "ask":
            with self._database.connect("checking tables") as connection:
                cascades.check(connection, self._database.where, namespaces)

    def namespaces(self) -> list[Namespace]:
        """Return the tables of the database, or of all databases except the system's."""
        with self._database.connect("listing tables") as connection:
            found = catalog.tables(connection, self._database.name)
        self._rows = {listed.namespace: listed.rows for listed in found}
        return [Namespace(listed.namespace, listed.rows) for listed in found]

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Return the transactions visible now, which every later snapshot sees; None if nothing is followed."""
        if not self.follows:
            return None
        with self._database.connect("beginning") as connection:
            check_version(connection, self._database.where)
            server.check(connection, self._database.where)
            place = snapshot.visible(connection)
            keys = catalog.keys_of(connection, namespaces, self._database.name)
            return Point(
                flavor_of(connection),
                str(place),
                lineage.identify(connection),
                None,
                keys={name: tuple(columns) for name, columns in keys.items()},
                tables=mark(sorted(namespaces)),
            ).stored()

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a table into ranges of its primary key; without such a key, or without following, it is one piece."""
        with self._database.connect(f"planning the copy of {namespace}", namespace) as connection:
            table = catalog.table(connection, namespace, self._database.name)
            if self._rows is None or namespace not in self._rows:
                listed = catalog.tables(connection, self._database.name)
                self._rows = {one.namespace: one.rows for one in listed}
            estimate = self._rows.get(namespace, 0)
            self._planned.add(namespace)
            if not self.follows:
                return [copying.whole(table, estimate)]
            return copying.pieces(connection, table, estimate, rows)

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read the rows of a piece; yield nothing if the table is gone.

        `Unavailable`: the table was altered while it was copied, so the pipeline reads the piece once more."""
        with self._database.connect(f"copying {piece.namespace}", piece.namespace) as connection:
            try:
                table = catalog.table(connection, piece.namespace, self._database.name)
            except NotThere:
                return
            keep = self._settings.zero_dates == "keep"
            size = self._settings.batch_bytes
            try:
                yield from copying.stream(connection, table, piece.bounds, size, zero_dates=keep)
            except Exception:
                if self._same(piece.namespace, table):
                    raise
                raise Unavailable(f"{piece.namespace} was altered while it was copied; it is read once more") from None

    def _same(self, namespace: str, table: catalog.Table) -> bool:
        with self._database.connect(f"copying {namespace}", namespace) as connection:
            try:
                return catalog.table(connection, namespace, self._database.name) == table
            except NotThere:
                return False

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Return the changes of these tables, and of tables that appear and are then copied."""
        if position is None:
            raise BadSetting(
                "the tables were copied without following (follow = false), so what has changed since is not known; "
                "give the pipeline another name, and it is copied afresh and followed"
            )
        self._follower = Follower(self._database, self._settings, Point.read(position), namespaces, self._planned)
        self._changes = self._follower.changes()
        return self._changes

    def close(self) -> None:
        """Stop following and close its connections."""
        if self._changes is not None:
            self._changes.close()
