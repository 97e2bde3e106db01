"""The follower: the streams of all tables of a pipeline, as one log.

Order is kept for each item, whose changes are all in one table's stream.  Tables that come, go, or are made again are
found by looking, every few seconds: no stream tells of them.
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
"""How often tables are looked for that are new, gone, or made again."""
ROUND_SECONDS, QUIET_SECONDS = 0.2, 0.5
"""From one round of all shards to the next: DynamoDB lets each be asked five times a second."""
QUIET_ROUNDS = 3
"""So many rounds without a change mean that all there was is given: DynamoDB answers some with nothing in between."""
FULL_ROUND_CHANGES = 1000
"""A round that has brought so many changes of a table is followed by the next one at once."""
TABLES_AT_ONCE = 8
UNCOPIED = "uncopied"
"""In the position of a table: it must be copied from there before it is followed."""
MORE = ""
"""In a position, in place of a table: a number that tells it from the one before."""


class Follower:
    """Reads the streams of some tables.  A table that is not known is told as one that appeared: if its copy is planned
    then it is followed, else it is passed over until it is dropped."""

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
        """Changes, for ever."""
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
        """Changes of the tables that a position has, for ever; one that is gone or another by now is left as it is."""
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
        """What all streams have now.  Nothing is said of a first round without changes: a run that only catches up
        would take it for the end.  Nor is one quiet that read changes from before the position."""
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
        for name in gone:  # after the rows of others, with which the position has moved
            if ahead:
                self._close(name)
            else:
                yield from self._reconcile(name, self._described(name))
        pause = ROUND_SECONDS if self._quiet < QUIET_ROUNDS else QUIET_SECONDS
        if most < FULL_ROUND_CHANGES:
            time.sleep(max(0.0, pause - (time.monotonic() - began)))

    def _taken(self, table: str) -> tuple[str, list[Change] | None]:
        """The next changes of a table; None: its stream is at an end, or another one by now."""
        try:
            return table, self._streams[table].take(self._settings.batch_rows)
        except (NotThere, PositionLost):
            if self._is_same(table):
                raise
            return table, None

    def _is_same(self, table: str) -> bool:
        """Whether a table is there, and still the one that was copied."""
        found = self._described(table)
        return found is not None and found.id == self._position[table]["id"]

    def _rows(self, table: str, changes: Sequence[Change]) -> pa.RecordBatch:
        schema = self._streams[table].table.schema
        return rows(table, schema, self._settings.shape, [told(change) for change in changes], Mode.SYNC)

    # -- tables
    def _look(self, pool: ThreadPoolExecutor) -> Generator[Changes]:
        """Compare the tables there are with those that are followed."""
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
        """Follow a table, if it is there and the one that was copied."""
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
        """A table was dropped: what was delivered of it stays in the sinks."""
        _log.warning("the table %s was dropped; its rows stay in the sinks", name)
        self._close(name)
        del self._position[name]
        yield self._said(ended=[name])

    def _again(self, name: str, table: TableDescription, why: str) -> Generator[Changes]:
        """Nothing says what became of the rows that were delivered: they are removed, and the table copied again.  That
        it must be is stored with its place in the stream, before: a run that dies meanwhile does it again."""
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
        """Have tables copied that are new here.  Where their streams were is noted before, by `pieces`, and stored with
        what comes next: a run that dies before that finds no position, and begins such a table again."""
        yield self._said(appeared=names)
        for name in names:
            if (place := self._planned.get(name)) and (found := self._described(name)) is not None:
                self._known.add(name)
                yield from self._reconcile(name, found)
            elif place is None:
                self._passed_over.add(name)
        yield self._said()

    def _said(self, rows: Sequence[pa.RecordBatch] = (), *, caught_up: bool = False, **more: Any) -> Changes:
        """What there is.  As long as more may come at once no position is given twice: a run that only catches up would
        end there."""
        position: dict[str, Any] = dict(self._position)
        if not caught_up:
            self._signs += 1
            position[MORE] = self._signs
        return Changes(rows, position, caught_up=caught_up, **more)


def positions(service: DynamoService, tables: Sequence[TableDescription]) -> dict[str, StreamPosition]:
    """Where the streams of some tables end now."""
    with ThreadPoolExecutor(TABLES_AT_ONCE, "tailrace-dynamodb") as pool:
        return dict(pool.map(lambda table: (table.name, first_position(service, table)), tables))


def _is_of(table: TableDescription, position: StreamPosition) -> bool:
    """Whether a position is one of this very table's stream."""
    return table.view is not None and (table.id, table.stream) == (position["id"], position["stream"])
