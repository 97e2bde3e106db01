"""The follower: streams the binlog over one connection, queries the catalog over a second one, and yields changes."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Changes, Command
from tailrace.adaptors.mysql import catalog, names
from tailrace.adaptors.mysql.database import Database, ask, close, driver
from tailrace.adaptors.mysql.errors import LOST_LOG, code_of, text_of
from tailrace.adaptors.mysql.gtid import Executed, executed
from tailrace.adaptors.mysql.settings import MySQLSource
from tailrace.adaptors.mysql.source import cascades, lineage, side_effects, snapshot
from tailrace.adaptors.mysql.source.alterations import Alterations
from tailrace.adaptors.mysql.source.charsets import Charsets
from tailrace.adaptors.mysql.source.decoder import Decoder
from tailrace.adaptors.mysql.source.events import Begun, TableMap
from tailrace.adaptors.mysql.source.log_stream import LogStream
from tailrace.adaptors.mysql.source.position import Point, mark
from tailrace.adaptors.mysql.source.recopy import Recopy
from tailrace.adaptors.mysql.source.row_decoder import RowDecoder
from tailrace.adaptors.mysql.source.server import check
from tailrace.adaptors.mysql.source.statements import Statement
from tailrace.adaptors.mysql.source.transaction import Changed, Collected, Nameless, Referenced
from tailrace.errors import Unavailable

_log = logging.getLogger("tailrace")
BEAT = 1.0
"""Seconds after which the follower yields changes, empty ones if nothing happened."""
SILENCE = 60.0
"""Seconds without any message of the server after which the follower raises `Unavailable`."""
_HINTS = """
    SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND DATA_TYPE IN ('uuid', 'inet4', 'inet6')
"""


class Follower:
    """Reads the changes of some tables.  Implements `decoder.Target`."""

    def __init__(
        self,
        database: Database,
        settings: MySQLSource,
        point: Point,
        namespaces: Sequence[str],
        planned: Set[str] = frozenset(),
    ) -> None:
        self._database, self._settings, self._point, self._planned = database, settings, point, planned
        self._place: Executed = executed(point.flavor, point.gtids)
        self._alterations = Alterations(set(namespaces), point, database.name, leave=settings.altered == "leave")
        self._collected = Collected(
            max_rows=settings.batch_rows,
            max_bytes=settings.batch_bytes,
            zero_dates=settings.zero_dates == "keep",
            alive=lambda: None,
        )
        self._decoder = Decoder(self, self._collected, point.flavor)
        self._stream: LogStream | None = None
        self._aside: Any = None
        self._charsets: Charsets | None = None
        self._far_reaching: frozenset[str] | None = None
        self._lowered = False
        """Whether the server keeps the names of tables in lower case, however statements write them."""
        self._heard = self._spoke = time.monotonic()
        self._signs = point.signs
        self._last, self._incident = point.last, point.incident
        self._until: Executed = self._place
        self._arrived = False
        """Whether the follower has yielded everything that the log had when following began (`caught_up`)."""

    def changes(self) -> Generator[Changes]:
        """Yield the changes, for ever; close both connections when the generator is closed."""
        pymysql = driver()
        try:
            with self._database.guarded("following"):
                try:
                    self._open()
                    if self._point.recopy:
                        yield from self._recopy(self._point.recopy)
                    while True:
                        self._read()
                        yield from self._emit()
                except pymysql.Error as error:
                    raise self._trouble(error) from None
        finally:
            self._close()

    # -- beginning and end
    def _open(self) -> None:
        self._aside = aside = self._database.open()
        server = lineage.check(aside, self._database.where, self._point)
        lineage.compare(self._database, self._point)
        self._charsets = Charsets(aside)
        ((names_in_lower_case,),) = ask(aside, "SELECT @@lower_case_table_names = 1")
        self._lowered = bool(names_in_lower_case)
        tables = mark(sorted(self._alterations.followed))
        copied = self._point.copied if tables == self._point.tables else None
        self._know_copied(replace(self._point, tables=tables, copied=copied, server=server))
        self._find_cascades()
        self._until = snapshot.logged(aside)
        self._stream = LogStream(self._database)
        self._stream.start(self._place)
        first = self._stream.read(SILENCE)
        if first is not None:
            self._decoder.feed(first)
        self._heard = time.monotonic()

    def _find_cascades(self) -> None:
        if self._settings.cascades == "copy":
            followed = self._alterations.followed
            found = {parent: tables & followed for parent, tables in cascades.cascades(self._aside).items()}
            self._collected.cascades = {parent: tables for parent, tables in found.items() if tables}

    def _trouble(self, error: BaseException) -> BaseException:
        if code_of(error) == LOST_LOG and "max_allowed_packet" not in text_of(error):
            return lineage.purged_error(self._database.where, text_of(error))
        return error

    def _know_copied(self, point: Point) -> None:
        """Fix which transactions the copies may have seen, unless the point knows: all that have begun by now."""
        if point.copied is None:
            point = replace(point, copied=str(snapshot.begun(self._aside)))
        self._point = point
        self._remember()

    def _remember(self) -> None:
        flavor, copied = self._point.flavor, self._point.copied
        self._collected.copied = executed(flavor, copied) if copied else None
        self._collected.cuts = {name: executed(flavor, cut) for name, cut in self._point.cuts.items()}

    def _close(self) -> None:
        self._collected.close()
        if self._stream is not None:
            self._stream.close()
        if self._aside is not None:
            close(self._aside)

    # -- reading
    def _read(self) -> None:
        """Decode events until a batch is full, something is due, or the time for a sign of life has come."""
        stream, decoder, most = self._stream, self._decoder, self._settings.batch_rows
        assert stream is not None
        read, feed = stream.read, decoder.feed
        budget = 5000
        while True:
            seconds = self._due() if decoder.between or budget % 100 == 0 else BEAT
            event = read(max(seconds, 0.0005))
            if event is None:
                if seconds <= 0.0005 or self._due() <= 0:
                    return
                continue
            self._heard = time.monotonic()
            feed(event)
            budget -= 1
            if decoder.between and (budget <= 0 or self._collected.rows >= most or self._pressing()):
                return
            if budget <= 0 and self._heard - self._spoke >= BEAT:
                return

    def _pressing(self) -> bool:
        """Whether tables must be copied or reported before the follower reads on."""
        return bool(self._collected.unsettled or self._collected.incomplete or self._alterations.pressing)

    def _due(self) -> float:
        """Return in how many seconds the follower must yield; raise `Unavailable` if the server has been silent."""
        now = time.monotonic()
        if now - self._heard > SILENCE:
            raise Unavailable(f"MySQL at {self._database.where} has been silent for {SILENCE:.0f} s")
        if not self._arrived and self._decoder.between and self._place.covers(self._until):
            return 0.0
        ripe = self._collected.rows and self._decoder.between
        return self._spoke + (self._settings.linger if ripe else BEAT) - now

    # -- what the decoder says
    def describe(self, table: TableMap) -> Referenced | None:
        """Return what collects the changes of a table in the binlog, or None if they do not matter; see `Target`."""
        namespace = names.namespace(table.schema, table.name)
        if namespace not in self._alterations.followed:
            return Referenced(self._collected, table) if namespace in self._collected.cascades else None
        if not table.is_named:
            return self._nameless(table)
        assert self._charsets is not None
        hints = dict(ask(self._aside, _HINTS, table.schema, table.name)) if self._point.flavor == "mariadb" else {}
        changed = Changed(self._collected, table, RowDecoder(table, self._charsets, hints))
        self._alterations.keys[namespace] = changed.key_names
        return changed

    def _nameless(self, table: TableMap) -> Nameless:
        """Return the collector of changes without the names of columns, which a server logs that has another
        binlog_row_metadata than FULL: after a restart, or a fail-over to a replica.

        Raise `NotReady` if it still has.  Otherwise these changes are the last such ones, and a copy makes up for
        them."""
        check(self._aside, self._database.where)
        _log.warning(
            "%s: the binlog has changes of it without the names of columns, from when binlog_row_metadata was not "
            "FULL; it is emptied in the sinks and copied again",
            names.namespace(table.schema, table.name),
        )
        return Nameless(self._collected, table)

    def statement(self, statement: Statement) -> None:
        """Take in a statement: collect its commands, and the tables that it makes necessary to copy again."""
        self._collected.seal()
        if statement.does != "write":
            self._far_reaching = None
        elif self._reaches_far(statement):
            statement = Statement("lost")
        for name, command in self._alterations.take(statement.lowered() if self._lowered else statement):
            if name not in self._collected.unsettled and self._seen_by_no_cut({name}):
                self._collected.command(name, command)
        self._collected.unsettled |= self._seen_by_no_cut(self._alterations.take_unsettled())
        self._find_cascades()
        self._decoder.renew()

    def _reaches_far(self, statement: Statement) -> bool:
        """Return whether a statement that was logged in place of rows may have changed tables that it does not name."""
        if self._far_reaching is None:
            self._far_reaching = side_effects.far_reaching(self._aside)
        return any(name.lower() in self._far_reaching for name in statement.tables)

    def _seen_by_no_cut(self, tables: Set[str]) -> set[str]:
        """Return the tables without those whose later copy has already seen the current transaction."""
        cuts, gtid = self._collected.cuts, self._collected.gtid
        return {name for name in tables if name not in cuts or not cuts[name].has(gtid)}

    def prepared(self, xid: str, *, one_phase: bool) -> None:
        """Remember the tables of an XA transaction, whose rows the log has before anyone decides to commit it."""
        if one_phase:
            self._collected.unsettled |= self._seen_by_no_cut(self._collected.touched)
        else:
            self._alterations.prepared[xid] = tuple(sorted(self._collected.touched))

    def undone(self) -> None:
        """Have the transaction's tables copied again: a rollback undid only a part of its changes."""
        self._collected.unsettled |= self._seen_by_no_cut(self._collected.touched)

    def incident(self, end: int) -> None:
        """Have all tables copied again: the server could not log a change; see `Target`."""
        if self._point.flavor == "mysql":
            self.statement(Statement("lost"))
            return
        assert self._stream is not None
        incident = f"{self._stream.file}:{end}"
        if incident != self._incident and not self._is_passed(self._stream.file, end):
            self._incident = incident
            self._collected.seal()
            self._collected.unsettled |= self._alterations.followed

    def _is_passed(self, file: str, end: int) -> bool:
        """Return whether the place in the log is behind this point of a file.

        MariaDB sends a file from its beginning and leaves out the transactions that were read; what has no GTID, it
        sends again with every connection."""
        ((gtids,),) = ask(self._aside, "SELECT BINLOG_GTID_POS(%s, %s)", file, end)
        if gtids is None:  # the server no longer has the file
            return False
        there = executed("mariadb", gtids)
        return self._place.covers(there) and not there.covers(self._place)

    def committed(self, begun: Begun) -> None:
        """Move the place in the log past a transaction."""
        self._place.add(begun.gtid)
        self._last = (begun.gtid.source, begun.gtid.number, begun.stamp)
        self._collected.committed_at = self._collected.time

    # -- yielding changes
    def _emit(self) -> Iterator[Changes]:
        """Yield what was read.  Within a transaction yield only a sign of life."""
        self._spoke = time.monotonic()
        if not self._decoder.between:
            yield self._sign()
            return
        self._move()
        if self._collected.unsettled:
            yield from self._recopy(sorted(self._collected.unsettled))
            return
        rows = self._collected.take()
        committed_at = self._collected.committed_at if rows else 0
        appeared = self._alterations.take_appeared(self._aside)
        altered = sorted(self._alterations.take_altered())
        ended = self._alterations.take_ended()
        if appeared or altered:
            yield from self._copied(rows, committed_at, appeared, altered)
            rows = []
        elif rows and ended:  # the rows were changed before these tables ended
            yield self._sign(rows)
            rows = []
        if rows or ended or not (appeared or altered):
            self._arrived = self._place.covers(self._until)
            yield Changes(rows, self._point.stored(), committed_at, caught_up=self._arrived, ended=ended)

    def _move(self) -> None:
        """Move the position to the place in the log up to which all changes are collected."""
        found = self._alterations
        found.alter(self._collected.incomplete)
        self._collected.incomplete = set()
        appeared, altered = found.waiting
        self._point = replace(
            self._point.at(self._place),
            last=self._last,
            incident=self._incident,
            appeared=appeared,
            altered=altered,
            keys={name: keys for name, keys in found.keys.items() if keys and name in found.followed},
            dropped=tuple(sorted(found.dropped)),
            lost=dict(found.lost),
            prepared=dict(found.prepared),
        )
        self._remember()

    def _copied(
        self, rows: Sequence[pa.RecordBatch], committed_at: int, appeared: Sequence[str], altered: Sequence[str]
    ) -> Iterator[Changes]:
        """Yield the collected rows, then have the pipeline copy tables.

        Until it has, the stored position lists these tables, so that a restarted follower asks for the copies again."""
        if rows:
            yield self._sign(rows)
        yield from self._settle()
        self._point = replace(self._point, copied=None, appeared=(), altered=())
        yield Changes((), self._point.stored(), committed_at, appeared=appeared, altered=altered)
        self._alterations.followed |= {name for name in appeared if name in self._planned}
        self._alterations.keys |= {
            name: tuple(keys)
            for name, keys in catalog.keys_of(self._aside, [*appeared, *altered], self._database.name).items()
        }
        tables = mark(sorted(self._alterations.followed))
        self._know_copied(replace(self._point, tables=tables))
        self._until = snapshot.logged(self._aside)  # a copy is consistent only once the log is read up to here
        self._arrived = False
        self._find_cascades()
        self._decoder.renew()

    def _settle(self) -> Iterator[Changes]:
        """Wait until the tables show every transaction that was read: a copy must not have older rows.

        Yield signs of life meanwhile; raise `Unavailable` after the setting `patience`."""
        deadline = time.monotonic() + self._settings.patience
        while not snapshot.visible(self._aside).covers(self._place):
            if time.monotonic() > deadline:
                raise Unavailable(f"MySQL at {self._database.where} does not show what its binlog has")
            yield self._sign()
            time.sleep(0.01)

    def _sign(self, rows: Sequence[pa.RecordBatch] = ()) -> Changes:
        """Return changes whose position differs from every earlier one.

        So a run that only catches up does not take the unchanged place in the log for its end."""
        self._signs += 1
        committed_at = self._collected.committed_at if rows else 0
        return Changes(rows, {**self._point.stored(), "more": self._signs}, committed_at)

    def _recopy(self, tables: Sequence[str]) -> Iterator[Changes]:
        """Truncate tables, and copy each in one known snapshot: see `recopy`."""
        for name in tables:
            self._collected.command(name, Command(TRUNCATE))
        self._point = replace(self._point, recopy=tuple(tables))
        yield self._sign(self._collected.take())
        cuts, keys = dict(self._point.cuts), dict(self._point.keys)
        for name in tables:
            made = Recopy(self._database, self._settings, name, self._place)
            with contextlib.closing(made.batches()) as batches:
                for batch in batches:
                    yield self._sign([batch])
            cuts.pop(name, None)
            if made.cut is not None and not self._place.covers(made.cut):
                cuts[name] = str(made.cut)
            keys[name] = self._alterations.keys[name] = made.keys
        self._point = replace(
            self._point, cuts=cuts, recopy=(), keys={name: columns for name, columns in keys.items() if columns}
        )
        self._collected.unsettled = set()
        self._alterations.settled(tables)
        self._remember()
        self._heard = self._spoke = time.monotonic()
        yield self._sign()
