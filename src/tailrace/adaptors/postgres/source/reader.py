"""The reader: copies tables of a PostgreSQL database in pieces, then follows them by logical replication."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader, SourceResource
from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.catalog import Leaf, Table
from tailrace.adaptors.postgres.database import Database, check_version
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.source import alterations, publication, slot
from tailrace.adaptors.postgres.source import copy as copying
from tailrace.adaptors.postgres.source.copy import TablePlan
from tailrace.adaptors.postgres.source.follower import Follower
from tailrace.adaptors.postgres.source.log_stream import LogStream
from tailrace.adaptors.postgres.source.position import Point
from tailrace.adaptors.postgres.source.recopy import shapes
from tailrace.errors import BadSetting, NotReady, NotThere, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

_log = logging.getLogger("tailrace")
HELD_SECONDS = 5.0
"""Seconds that a killed process may still hold the slot."""


class PostgresReader(Reader):
    """Reads the tables of one database.  Namespaces are schema.table; partitions are part of their table."""

    follows = True

    def __init__(self, settings: PostgresSource) -> None:
        self._settings, self.follows = settings, settings.follow
        self._follower: Follower | None = None
        self._changes: Generator[Changes] | None = None
        self._listed: list[str] = []
        self._sizes: dict[str, list[Leaf]] | None = None
        """The leaves of listed tables that can be copied without preparation; None: not looked at yet."""
        self._bare: set[str] = set()
        """Tables without columns."""
        self._planned: set[str] = set()
        """Tables whose copy was planned.  From then on they are the pipeline's, even if they are dropped."""

    def __repr__(self) -> str:
        return f"PostgresReader({self._settings!r})"

    @cached_property
    def _database(self) -> Database:
        return Database(self._settings.uri)

    def check(self) -> None:
        """Check the server's version, its log level, the user's rights, and that the slot is free."""
        with self._database.connect("checking") as connection:
            if not self.follows:
                check_version(connection, self._database.where)
                return
            _check_server(connection, self._database.where)
            self._database.log().finish()
            try:
                slot.free(connection, self._database.where, self._settings, HELD_SECONDS)
            except Unavailable as used:
                # Another pipeline may hold the slot for ever, so the check fails instead of waiting.
                raise NotReady(str(used)) from used

    def kept(self) -> SourceResource | None:
        """The slot.  Two pipelines cannot share a slot: the server forgets for both what one of them has read."""
        if not self.follows:
            return None
        with self._database.connect("looking for the slot") as connection:
            found = slot.find(connection, self._settings.slot)
        return None if found is None else SourceResource(f"slot {found.name!r}", ("uri", "slot"))

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Check that the changes of these tables will say which row they are about."""
        if not self.follows:
            return
        with self._database.connect("checking tables") as connection:
            publication.check_identities(connection, self._settings, catalog.identities(connection, namespaces))

    def namespaces(self) -> list[Namespace]:
        """Every ordinary or partitioned table outside the system's schemas."""
        with self._database.connect("listing tables") as connection:
            found = [Namespace(listed.namespace, listed.rows) for listed in catalog.tables(connection)]
        self._listed, self._sizes = [listed.name for listed in found], None
        return found

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Publish the existing tables, then create the slot; return the position where its log begins."""
        if not self.follows:
            return None
        with self._database.connect("beginning") as connection:
            _check_server(connection, self._database.where)
            identities = catalog.identities(connection, namespaces)
            publication.publish(connection, self._settings, identities)
            found = slot.free(connection, self._database.where, self._settings, HELD_SECONDS)
            lsn = found.confirmed if found else slot.create(connection, self._database.where, self._settings)
            known = shapes(connection, self._settings.published, identities)
            forms, files = alterations.forms(connection, namespaces), catalog.files(connection, namespaces)
            with contextlib.closing(LogStream(self._database)) as stream:
                server = stream.identify()
            known_as = server.system, server.timeline
            return Point(lsn, None, shapes=known, forms=forms, files=files, server=known_as).stored()

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a table into ranges of blocks.  A table that will be followed is published first; without following, the
        whole table is one piece."""
        if not self.follows:
            with self._database.connect(f"planning the copy of {namespace}") as connection:
                table = catalog.identity(connection, namespace)
                return [copying.whole(namespace, catalog.leaves(connection, table))]
        if self._sizes is None:
            self._sizes = self._look_at(self._listed)
        leaves = self._sizes.pop(namespace, None) or self._prepared(namespace)
        if namespace in self._bare:
            _log.warning("%s has no columns: its rows, which say nothing, are neither copied nor followed", namespace)
        self._planned.add(namespace)
        return copying.pieces(namespace, leaves, rows)

    def _look_at(self, namespaces: Sequence[str]) -> dict[str, list[Leaf]]:
        """The leaves of those tables that can be copied without preparation: they are published, and no open
        transaction has written to them.  This takes a few queries for all tables, where preparing each by itself would
        take ten."""
        with self._database.connect("planning the copy") as connection:
            if slot.find(connection, self._settings.slot) is None:
                return {}
            known = catalog.identities(connection, namespaces)
            lacking = {one.namespace for one in publication.lacks(connection, self._settings.published, known)}
            busy = publication.written_now(connection)
            sizes = catalog.leaves_each(connection, [one.namespace for one in known if one.namespace not in lacking])
            self._bare |= catalog.without_columns(connection, namespaces)
        oids = {one.namespace: one.oid for one in known}
        return {
            name: leaves
            for name, leaves in sizes.items()
            if oids[name] not in busy and not busy & {leaf.oid for leaf in leaves}
        }

    def _prepared(self, namespace: str) -> list[Leaf]:
        """Publish a table if it is not published, wait for the transactions that have written to it, and return its
        leaves."""
        with self._database.connect(f"planning the copy of {namespace}") as connection:
            table = catalog.identity(connection, namespace)
            self._bare |= catalog.without_columns(connection, [namespace])
            if slot.find(connection, self._settings.slot) is not None:
                publication.publish(connection, self._settings, [table])
                publication.wait_for_writers(connection, self._settings.published, table, self._settings.patience)
            return catalog.leaves(connection, table)

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece; none if the table no longer exists."""
        plan = self._plan(piece.namespace)
        if plan is None:
            return
        try:
            at_once = piece.bounds.get("at_once", False)
            yield from copying.read(self._database, plan, piece.bounds["parts"], self._settings.batch_bytes, at_once)
        except Exception:
            if self._plan(piece.namespace) == plan:
                raise
            raise Unavailable(f"{piece.namespace} was altered while it was copied; it is read once more") from None

    def sample(self, namespace: str, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of the first piece of a table, which is not published for that."""
        with self._database.connect(f"reading {namespace}") as connection:
            leaves = catalog.leaves(connection, catalog.identity(connection, namespace))
        yield from self.copy(copying.pieces(namespace, leaves, rows)[0])

    def _plan(self, namespace: str) -> TablePlan | None:
        with self._database.asking(f"copying {namespace}") as connection:
            try:
                table, condition = self._described(connection, namespace)
            except NotThere:
                return None
            leaves = {leaf.oid: (leaf.schema, leaf.name) for leaf in catalog.leaves(connection, table)}
            return TablePlan(table, condition, leaves)

    def _described(self, connection: Connection[Any], namespace: str) -> tuple[Table, str | None]:
        if not self.follows:
            return catalog.table(connection, namespace, None), None
        columns, condition = publication.published(connection, self._settings.published, namespace)
        return catalog.table(connection, namespace, columns), condition

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Yield the changes of these tables, and of tables that appear."""
        if position is None:
            raise BadSetting(
                "the tables were copied without following (follow = false), so it is not known what has changed since; "
                "give the pipeline another name, and it is copied afresh and followed"
            )
        self._follower = Follower(self._database, self._settings, Point.read(position), namespaces, self._planned)
        self._changes = self._follower.changes()
        return self._changes

    def acknowledge(self, position: Position) -> None:
        """Let the server forget the log up to a position.  The session reports it within a second, or when it ends."""
        if self._follower is not None:
            self._follower.acknowledge(Point.read(position))

    def close(self) -> None:
        """Stop following."""
        if self._changes is not None:
            self._changes.close()


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
