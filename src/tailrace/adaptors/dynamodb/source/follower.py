"""The follower: reads the streams of all tables of a pipeline as one log.

It keeps the order of each item's changes, which are all in one table's stream.  No stream tells of tables that are
created, dropped or created again, so the follower lists the tables every few seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Changes, Command
from tailrace.adaptors.dynamodb.service import DynamoService, TableDescription
from tailrace.adaptors.dynamodb.settings import DynamoSource
from tailrace.adaptors.dynamodb.source.items import rows, told
from tailrace.adaptors.dynamodb.source.position import StreamPosition
from tailrace.adaptors.dynamodb.source.progress import ShardProgress
from tailrace.adaptors.dynamodb.source.table_stream import TableStream, first_position, lost
from tailrace.adaptors.dynamodb.source.tables import lacking, listing
from tailrace.adaptors.rows.command import command_rows
from tailrace.errors import NotThere, PositionLost
from tailrace.log.record import Mode
from tailrace.storage.changes import Change

_log = logging.getLogger("tailrace")
LOOK_SECONDS = 15.0
"""Seconds between two lists of the tables, which show those that are new, gone, or created again."""
ROUND_SECONDS, QUIET_SECONDS = 0.2, 0.5
"""Seconds between two rounds over all shards: DynamoDB allows five reads a second of each."""
QUIET_ROUNDS = 3
"""Rounds without a change after which the follower has caught up: DynamoDB also gives empty pages before the end."""
FULL_ROUND_CHANGES = 1000
"""The number of changes of one table in a round after which the next round begins at once."""
TABLES_AT_ONCE = 8
UNCOPIED = "uncopied"
"""The mark in a table's position that the table must be copied before it is followed from there."""
MORE = ""
"""The entry of a position, in place of a table's name, with a number that makes it differ from the one before."""


class Follower:
    """Reads the streams of some tables.  The follower reports an unknown table in `appeared`.  If the pipeline then
    plans its copy, the follower follows it, else it skips the table until that is dropped."""

    def __init__(
        self,
        service: DynamoService,
        settings: DynamoSource,
        position: Mapping[str, StreamPosition],
        namespaces: Sequence[str],
        planned: Mapping[str, StreamPosition],
        progress: ShardProgress,
    ) -> None:
        self._service, self._settings, self._planned, self._progress = service, settings, planned, progress
        self._position: dict[str, StreamPosition] = {name: one for name, one in position.items() if name != MORE}
        self._known = set(namespaces)
        self._passed_over: set[str] = set()
        self._streams: dict[str, TableStream] = {}
        self._looked = 0.0
        self._quiet = self._signs = 0

    def changes(self) -> Generator[Changes]:
        """Yield the changes, for ever."""
        with ThreadPoolExecutor(TABLES_AT_ONCE, "tailrace-dynamodb") as pool:
            try:
                yield from self._look(pool)
                while True:
                    yield from self._round(pool)
                    if time.monotonic() - self._looked > LOOK_SECONDS:
                        yield from self._look(pool)
            finally:
                for stream in self._streams.values():
                    stream.close()

    def ahead(self) -> Generator[Changes]:
        """Yield the changes of the tables in the position, for ever, while a copy runs.

        It leaves out a table that is gone or was created again, and keeps that table's position."""
        for name, position in self._position.items():
            found = self._described(name)
            if found is not None and _is_of(found, position) and UNCOPIED not in position:
                self._open(found, position)
        with ThreadPoolExecutor(TABLES_AT_ONCE, "tailrace-dynamodb") as pool:
            try:
                while True:
                    yield from self._round(pool, ahead=True)
            finally:
                for stream in self._streams.values():
                    stream.close()

    # -- changes
    def _round(self, pool: ThreadPoolExecutor, *, ahead: bool = False) -> Generator[Changes]:
        """Yield what all streams have now.

        For the first rounds without changes yield nothing, because a run that only catches up would take that for the
        end.  A round that read only changes from before the position is not quiet: for that yield empty changes."""
        began = time.monotonic()
        batches: list[pa.RecordBatch] = []
        newest, most = 0.0, 0
        gone = []
        passing = False
        for name, found in pool.map(self._taken, list(self._streams)):
            if found is None:
                gone.append(name)
                continue
            self._position[name] = self._streams[name].position
            passing = passing or self._streams[name].read_some
            if found:
                batches.append(self._rows(name, found))
                newest, most = max(newest, found[-1].created_at.timestamp()), max(most, len(found))
        self._quiet = 0 if batches or passing else self._quiet + 1
        if batches or passing or self._quiet >= QUIET_ROUNDS:
            yield self._said(batches, committed_at=int(newest * 1000), caught_up=not (batches or passing))
        for name in gone:  # after the other tables' rows, because the position has moved past these
            if ahead:
                self._close(name)
            else:
                yield from self._reconcile(name, self._described(name))
        pause = ROUND_SECONDS if self._quiet < QUIET_ROUNDS else QUIET_SECONDS
        if most < FULL_ROUND_CHANGES:
            time.sleep(max(0.0, pause - (time.monotonic() - began)))

    def _taken(self, table: str) -> tuple[str, list[Change] | None]:
        """Return a table's name and next changes; None for the changes if the table is gone or was created again."""
        try:
            return table, self._streams[table].take(self._settings.batch_rows)
        except (NotThere, PositionLost):
            if self._is_same(table):
                raise
            return table, None

    def _is_same(self, table: str) -> bool:
        """Return whether a table exists and is still the one that was copied."""
        found = self._described(table)
        return found is not None and found.id == self._position[table]["id"]

    def _rows(self, table: str, changes: Sequence[Change]) -> pa.RecordBatch:
        schema = self._streams[table].table.schema
        return rows(table, schema, self._settings.shape, [told(change) for change in changes], Mode.SYNC)

    # -- tables
    def _look(self, pool: ThreadPoolExecutor) -> Generator[Changes]:
        """Compare the existing tables with the followed ones, and yield what that means."""
        self._looked = time.monotonic()
        there = {namespace.name for namespace in listing(self._service)}
        self._passed_over &= there
        names = sorted(self._known | self._position.keys())
        for name, found in zip(names, pool.map(self._described, names), strict=True):
            yield from self._reconcile(name, found)
        if new := sorted(there - self._known - self._passed_over):
            yield from self._appear(new)

    def _described(self, table: str) -> TableDescription | None:
        try:
            return self._service.describe(table)
        except NotThere:
            return None

    def _reconcile(self, name: str, found: TableDescription | None) -> Generator[Changes]:
        """Open a table's stream if the table is still the one that was copied; else end it or have it copied again.

        Raise `PositionLost` if its stream was switched off since."""
        position = self._position.get(name) or self._planned.get(name)
        if found is None:
            if name in self._position:
                yield from self._end(name)
        elif not position:
            yield from self._again(name, found, "the position of its stream is not known")
        elif position["id"] != found.id:
            yield from self._again(name, found, "it was dropped and made again")
        else:
            if position["stream"] != found.stream or found.view is None:
                raise lost(name, f"its stream was switched off{' and on again' if found.view else ''} since")
            if UNCOPIED in position:
                yield from self._copy(found, position)
            elif name not in self._streams:
                self._open(found, position)

    def _open(self, table: TableDescription, position: StreamPosition) -> None:
        self._position[table.name] = position
        self._streams[table.name] = TableStream(self._service, table, position, self._progress)

    def _close(self, name: str) -> None:
        if (stream := self._streams.pop(name, None)) is not None:
            stream.close()

    def _end(self, name: str) -> Generator[Changes]:
        """Report a dropped table as ended; its delivered rows stay in the sinks."""
        _log.warning("the table %s was dropped; its rows stay in the sinks", name)
        self._close(name)
        del self._position[name]
        yield self._said(ended=[name])

    def _again(self, name: str, table: TableDescription, why: str) -> Generator[Changes]:
        """Truncate a table in the sinks and have it copied again, because no stream says what became of its rows.

        The position marks the table as uncopied before that, so a run after a crash does it again."""
        if told := lacking(table):
            raise PositionLost(f"table {name}: {why}; {told}")
        _log.warning("the table %s is emptied in the sinks and copied again: %s", name, why)
        self._close(name)
        self._known.add(name)
        position = self._position[name] = {**first_position(self._service, table), UNCOPIED: 1}
        yield self._said([command_rows(name, Command(TRUNCATE), time.time_ns() // 1_000_000)])
        yield from self._copy(table, position)

    def _copy(self, table: TableDescription, position: StreamPosition) -> Generator[Changes]:
        yield self._said(altered=[table.name])
        self._open(table, {name: value for name, value in position.items() if name != UNCOPIED})
        yield self._said()

    def _appear(self, names: Sequence[str]) -> Generator[Changes]:
        """Report new tables, which the pipeline copies; then follow those whose copy was planned.

        `pieces` notes the ends of their streams before the copy; the follower stores them with the changes that come
        next.  A run that crashes before that finds no position of such a table, and has it copied again."""
        yield self._said(appeared=names)
        for name in names:
            if (place := self._planned.get(name)) and (found := self._described(name)) is not None:
                self._known.add(name)
                yield from self._reconcile(name, found)
            elif place is None:
                self._passed_over.add(name)
        yield self._said()

    def _said(self, rows: Sequence[pa.RecordBatch] = (), *, caught_up: bool = False, **more: Any) -> Changes:
        """Return rows with the current position.

        Until the follower has caught up, each position differs from the one before: a run that only catches up would
        take an unchanged position for the end."""
        position: dict[str, Any] = dict(self._position)
        if not caught_up:
            self._signs += 1
            position[MORE] = self._signs
        return Changes(rows, position, caught_up=caught_up, **more)


def positions(service: DynamoService, tables: Sequence[TableDescription]) -> dict[str, StreamPosition]:
    """Return the positions at which the streams of some tables end now."""
    with ThreadPoolExecutor(TABLES_AT_ONCE, "tailrace-dynamodb") as pool:
        return dict(pool.map(lambda table: (table.name, first_position(service, table)), tables))


def _is_of(table: TableDescription, position: StreamPosition) -> bool:
    """Return whether a position belongs to the present stream of this table."""
    return table.view is not None and (table.id, table.stream) == (position["id"], position["stream"])
