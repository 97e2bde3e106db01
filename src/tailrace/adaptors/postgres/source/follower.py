"""Following: yields the changes of a slot's log, and the tables that must be copied, in the order of the log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.catalog import Column
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.source import publication, session, slot, timeline
from tailrace.adaptors.postgres.source.followed_tables import NEXT, FollowedTables
from tailrace.adaptors.postgres.source.log_stream import LogStream
from tailrace.adaptors.postgres.source.missing_fields import fetch
from tailrace.adaptors.postgres.source.pgoutput import Relation, Row
from tailrace.adaptors.postgres.source.position import Point
from tailrace.adaptors.postgres.source.recopier import Recopier
from tailrace.adaptors.postgres.source.session import LogSession
from tailrace.adaptors.postgres.source.transaction import Changed, DescribedTable
from tailrace.adaptors.postgres.types import Type

if TYPE_CHECKING:
    import pyarrow as pa

TAKEN_SECONDS = 10.0
"""Seconds to wait for a slot that an earlier process may still hold."""
GONE = Type("text", "text", output="pg_catalog.textout", plain="text")
"""The type of a column whose type the catalog no longer has."""


class Follower:
    """Reads the changes of one slot.  The thread that iterates over `changes` may call `acknowledge` between two of
    them."""

    def __init__(
        self,
        database: Database,
        settings: PostgresSource,
        point: Point,
        namespaces: Sequence[str],
        planned: Set[str] = frozenset(),
    ) -> None:
        self._database, self._settings, self._durable = database, settings, point
        self._tables = FollowedTables(settings, point, namespaces, planned)
        self._following: _Following | None = None

    def acknowledge(self, point: Point) -> None:
        """Note that everything up to a position, and the position itself, is durable.  The session reports it to the
        server."""
        self._durable = replace(point, lsn=max(self._durable.lsn, point.lsn))
        if self._following is not None:
            self._following.session.durable = self._durable.lsn

    def _is_noted(self, names: set[str]) -> bool:
        """Whether a durable position says that these tables must be copied again."""
        return set(self._durable.recopy) >= names

    def changes(self) -> Generator[Changes]:
        """Yield the changes until the caller closes the iterator."""
        import psycopg

        try:
            self._following = _Following(self._database, self._settings, self._tables, self._is_noted)
            with contextlib.closing(self._following.session):
                yield from self._following.changes()
        except psycopg.Error as error:
            with self._database.guarded("following"):
                raise slot.trouble(error, self._settings, self._database.where, self._durable.lsn) from None


class _Following:
    """A follower at work, on an open session."""

    def __init__(
        self, database: Database, settings: PostgresSource, tables: FollowedTables, is_noted: Callable[[set[str]], bool]
    ) -> None:
        self._database, self._settings, self._tables = database, settings, tables
        self._types: dict[tuple[int, int], Type] = {}
        self.session = LogSession(database, settings, self._describe, self._fetch, self._notice, tables.point.lsn)
        self._collected, self._decoder = self.session.collected, self.session.decoder
        self._recopier = Recopier(self.session, tables, self._sign, is_noted)
        self._spoke = time.monotonic()
        self._signs, self._until = tables.point.signs, 0
        self._arrived = False
        """Whether everything that there was when following began has been given."""

    def changes(self) -> Iterator[Changes]:
        """Yield the changes until the caller closes the iterator."""
        self._open()
        tables = self._tables
        yield from self._recopier.publish_and_copy([*tables.point.recopy, *tables.replaced(self.session.aside)])
        while True:
            self.session.read(self._due)
            self.session.alive()
            yield from self._emit()

    def _open(self) -> None:
        settings, where, aside, tables = self._settings, self._database.where, self.session.aside, self._tables
        self._identify()
        slot.kept(aside, where, settings, tables.point.lsn)
        known = catalog.identities(aside, sorted(tables.followed))
        lacking = publication.lacks(aside, settings.published, known)
        publication.publish(aside, settings, [one for one in known if one not in lacking])
        slot.free(aside, where, settings, TAKEN_SECONDS)
        self._know_copied(tables.begin())
        self._until = self.session.log_end("flush")
        self.session.start(tables.point.lsn)

    def _identify(self) -> None:
        """Raise `PositionLost` if the server's log does not have the position, before the session reports anything to
        the server."""
        with contextlib.closing(LogStream(self._database)) as stream:
            server = timeline.check(stream, self._database.where, self._settings.slot, self._tables.point)
        self._tables.point = replace(self._tables.point, server=(server.system, server.timeline))

    def _know_copied(self, point: Point) -> None:
        """Set the place in the log before which all copies ended: now, unless the position has it."""
        copied = self.session.log_end("insert") if point.copied is None else point.copied
        self._tables.know_copied(self.session.aside, point, copied)
        self._collected.copied = copied
        self._collected.remember(self._tables.point)

    def _due(self) -> float:
        """In how many seconds the next `Changes` must be given to the caller."""
        if not self._arrived and self._decoder.between and self._collected.end >= self._until:
            return 0.0
        ripe = self._collected.rows and self._decoder.between
        beat = session.REPORT_INTERVAL_SECONDS
        return min(self._spoke + (self._settings.linger if ripe else beat) - time.monotonic(), beat)

    # -- giving
    def _emit(self) -> Iterator[Changes]:
        """Yield what has been read, if it is whole transactions; if not, a sign of life."""
        tables, collected = self._tables, self._collected
        self._spoke = time.monotonic()
        if not self._decoder.between:
            yield self._sign()
            return
        tables.point = tables.point.at(collected.end)
        collected.remember(tables.point)
        if collected.unsettled:
            yield from self._recopier.copy(collected.unsettled)
            return
        appeared: list[str] = []
        if tables.is_time_to_look():
            if replaced := tables.replaced(self.session.aside):
                yield from self._recopier.publish_and_copy(replaced)
                return
            appeared = tables.appeared(self.session.aside)
        given = yield from self._give(appeared)
        if given and (ended := tables.endings.ripe(tables.point.lsn)):
            yield replace(self._sign(), ended=ended)

    def _give(self, appeared: Sequence[str]) -> Generator[Changes, None, bool]:
        """Yield the rows, and what must be copied after them.  Returns False if more is known to come before anything
        else."""
        tables, collected = self._tables, self._collected
        rows, altered = collected.take(), tables.altered.ripe(tables.point.lsn)
        committed_at = collected.committed_at if rows else 0
        if rows and altered:  # give the changes before the copy first
            yield Changes(rows, tables.point.stored(), committed_at)
            rows = []
        if appeared or altered:
            tables.note(self.session.aside, appeared, altered)
        if not (rows or appeared or altered) and (tables.altered or tables.point.lsn < self._until):
            yield self._sign()
            return False
        self._arrived = not (appeared or altered or tables.altered) and tables.point.lsn >= self._until
        yield Changes(rows, tables.point.stored(), committed_at, appeared, list(altered), self._arrived)
        if appeared or altered:
            self._know_copied(tables.take_up(self.session.aside, appeared))
            tables.looked = NEXT if tables.moved else tables.looked
            self._until = self.session.log_end("flush")  # the copies are complete once the log is read to here
            self._decoder.renew()
        return True

    def _sign(self, rows: Sequence[pa.RecordBatch] = ()) -> Changes:
        """`Changes` whose position says that more is known to come.  Each such position is different, so that the
        pipeline does not believe that it has caught up."""
        self._signs += 1
        committed_at = self._collected.committed_at if rows else 0
        return Changes(rows, {**self._tables.point.stored(), "more": self._signs}, committed_at)

    # -- looking things up
    def _describe(self, relation: Relation) -> DescribedTable | None:
        aside = self.session.aside
        if not self._tables.described(aside, relation):
            return None
        asked = {(column.type, column.modifier) for column in relation.columns} - self._types.keys()
        if asked:
            self._types |= catalog.types(aside, asked)
        columns = tuple(Column(c.name, self._types.get((c.type, c.modifier), GONE)) for c in relation.columns)
        if relation.identity in "di":
            return DescribedTable(columns, tuple(column.name for column in relation.columns if column.key))
        keys = catalog.keys(aside, relation.oid, "d")
        if not {column.name for column in relation.columns} >= set(keys):
            return DescribedTable(columns, ())
        return DescribedTable(columns, keys, catalog.is_deferrable(aside, relation.oid))

    def _notice(self, relation: Relation, lsn: int) -> None:
        doubtful = self._collected.doubtful
        if doubtful.get(relation.namespace, -1) < lsn and self._tables.has_partitions(self.session.aside, relation):
            doubtful[relation.namespace] = self.session.log_end("insert")  # taken after the look

    def _fetch(self, changed: Changed, rows: list[Row]) -> list[bool] | None:
        table = changed.relation.schema, changed.relation.name
        return fetch(self.session.aside, table, changed.columns, changed.keys, rows)
