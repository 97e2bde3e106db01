"""The reader: tables of a PostgreSQL database, copied in pieces and then followed by logical replication."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Kept, Namespace, Piece, Position, Reader
from tailrace.adaptors.postgres import alter, catalog, copying, names, publication, slot
from tailrace.adaptors.postgres.catalog import Identity, Table
from tailrace.adaptors.postgres.copying import Plan
from tailrace.adaptors.postgres.database import Database, check_version
from tailrace.adaptors.postgres.follow import Follower
from tailrace.adaptors.postgres.position import Point
from tailrace.adaptors.postgres.recopy import shapes
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.errors import NotReady, NotThere, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

HELD = 5.0
"""Seconds that a slot may still be held by a process that was killed."""


class PostgresReader(Reader):
    """Reads the tables of one database.  Namespaces are schema.table; partitions are part of their table."""

    follows = True

    def __init__(self, settings: PostgresSource) -> None:
        self._settings = settings
        self._follower: Follower | None = None
        self._changes: Generator[Changes] | None = None

    def __repr__(self) -> str:
        return f"PostgresReader({self._settings!r})"

    @cached_property
    def _database(self) -> Database:
        return Database(self._settings.uri)

    def check(self) -> None:
        """Version, log level, rights, and the slot."""
        with self._database.connect("checking") as connection:
            _check_server(connection, self._database.where)
            self._database.log().finish()
            slot.free(connection, self._database.where, self._settings, HELD)

    def kept(self) -> Kept | None:
        """The slot: what one pipeline has read of it the server forgets, also for another."""
        with self._database.connect("looking for the slot") as connection:
            found = slot.find(connection, self._settings.slot)
        return None if found is None else Kept(f"slot {found.name!r}", ("uri", "slot"))

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Whether these tables' changes say which row they are about."""
        with self._database.connect("checking tables") as connection:
            publication.check_identities(connection, self._settings, _identities(connection, namespaces))

    def namespaces(self) -> list[Namespace]:
        """Every ordinary or partitioned table outside the system's schemas."""
        with self._database.connect("listing tables") as connection:
            return [Namespace(listed.namespace, listed.rows) for listed in catalog.tables(connection)]

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Publish the tables and make the slot, in that order; where its log begins."""
        with self._database.connect("beginning") as connection:
            _check_server(connection, self._database.where)
            identities = _identities(connection, namespaces)
            publication.publish(connection, self._settings, identities)
            found = slot.free(connection, self._database.where, self._settings, HELD)
            lsn = found.confirmed if found else slot.create(connection, self._database.where, self._settings)
            known = shapes(connection, self._settings.published, identities)
            forms, files = alter.forms(connection, namespaces), catalog.files(connection, namespaces)
            return Point(lsn, None, shapes=known, forms=forms, files=files).stored()

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Ranges of blocks.  A table that is to be followed too is published by now."""
        with self._database.connect(f"planning the copy of {namespace}") as connection:
            table, _ = self._described(connection, namespace)
            if slot.find(connection, self._settings.slot) is not None:
                (identity,) = _identities(connection, [namespace])
                publication.publish(connection, self._settings, [identity])
                publication.wait_for_writers(connection, self._settings.published, identity, self._settings.patience)
            return copying.pieces(connection, table, rows)

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of some blocks; none of a table that is gone."""
        plan = self._plan(piece.namespace)
        if plan is None:
            return
        try:
            yield from copying.read(self._database, plan, piece.bounds["parts"], self._settings.batch_bytes)
        except Exception:
            if self._plan(piece.namespace) == plan:
                raise
            raise Unavailable(f"{piece.namespace} was altered while it was copied; it is read once more") from None

    def _plan(self, namespace: str) -> Plan | None:
        with self._database.connect(f"copying {namespace}") as connection:
            try:
                table, condition = self._described(connection, namespace)
            except NotThere:
                return None
            leaves = {leaf.oid: (leaf.schema, leaf.name) for leaf in catalog.leaves(connection, table)}
            return Plan(table, condition, leaves)

    def _described(self, connection: Connection[Any], namespace: str) -> tuple[Table, str | None]:
        columns, condition = publication.published(connection, self._settings.published, names.parts(namespace))
        return catalog.table(connection, namespace, columns), condition

    def follow(self, position: Position, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        """The changes of these tables, and of tables that appear."""
        self._follower = Follower(self._database, self._settings, Point.read(position), namespaces)
        self._changes = self._follower.changes()
        return self._changes

    def acknowledge(self, position: Position) -> None:
        """The server may forget the log up to here; it is told within a second, or at the end."""
        if self._follower is not None:
            self._follower.acknowledge(Point.read(position))

    def close(self) -> None:
        """Stop following."""
        if self._changes is not None:
            self._changes.close()


def _identities(connection: Connection[Any], namespaces: Sequence[str]) -> list[Identity]:
    found = catalog.identities(connection, namespaces)
    gone = {*namespaces} - {identity.namespace for identity in found}
    if gone:
        raise catalog.absent(connection, *sorted(gone))
    return found


def _check_server(connection: Connection[Any], where: str) -> None:
    check_version(connection, where)
    sql = "SELECT current_setting('wal_level'), pg_is_in_recovery()"
    level, standby = connection.execute(sql).fetchone() or ("", False)
    if standby:
        raise NotReady(f"PostgreSQL at {where} is a standby; use the primary, where tables can be published")
    if level != "logical":
        raise NotReady(
            f"PostgreSQL at {where} has wal_level = {level}, so its changes cannot be followed; as a superuser: "
            "ALTER SYSTEM SET wal_level = 'logical'; and restart the server"
        )
