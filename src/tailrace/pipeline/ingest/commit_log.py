"""The commit log: a pipeline's own topic, and the items that say how far its source has been read.

    topic <pipeline>-log          every message, partitioned by namespace + id
    $Reader-<pipeline>, 0         the source's position and the state of each namespace: see reader_state
    $Pieces-<pipeline>, n         pieces (JSON of [[namespace, bounds, rows]…]), done, records, id, page: unit n of a
                                  copy (earlier versions: namespace, bounds, rows of one piece)

The transaction that appends a unit's chunks also sets `done`, on condition that it was not set.  So a run that copies
the unit again, after a crash or beside a process that was thought dead, appends nothing.  A unit has one large piece or
many small ones: a task, a commit and an item for each piece would take minutes for a thousand small tables.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Piece, Position
from tailrace.adaptors.rows.json_text import to_json
from tailrace.adaptors.rows.rows import messages_of, namespace_of, ops_of
from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.errors import BadSetting, Fenced, UnknownTopic
from tailrace.home import Home
from tailrace.log.read.gaps import thinned
from tailrace.log.record import Op
from tailrace.log.topic import Topic
from tailrace.log.upkeep.retention_holds import hold
from tailrace.log.write.guarded_append import commit_guarded, read_guard
from tailrace.log.write.placement import Placed
from tailrace.log.write.source_append import SourceGuard, log_name, reader_key, take_in
from tailrace.log.write.staged_chunk import StagedChunks, place_staged, stage_steps
from tailrace.pipeline.define.definition import CompactBy
from tailrace.pipeline.ingest.coalesce import joined_rows
from tailrace.pipeline.ingest.reader_state import Changed, Entries, ReaderState, sets
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Equals, Item, Key, Put, Set, Update

PARTITIONS = 8
"""The partitions of a commit log, if its pipeline does not say how many."""
LAST_ID = 256
"""The most characters of the id of a namespace's last message that are stored."""
LAST_DATA = 16 * 1024
"""The most bytes of that message's data, as JSON, that are stored; larger data is left out."""
UNIT_PIECES = 100
"""The most pieces of a unit."""
NOTED_AT_ONCE = 20
"""How many units one write stores."""
NOT_DONE = {"done": False, "records": 0, "id": "", "page": 0}

_json = msgspec.json.encode


def piece_key(pipeline: str, number: int) -> Key:
    """The key of the item of a copy's unit."""
    return Key(f"$Pieces-{pipeline}", number)


@dataclass(slots=True)
class PieceDone:
    """The guard of one unit of a copy: its write is refused if the unit is done already."""

    pipeline: str
    number: int
    records: int

    @property
    def key(self) -> Key:
        """The key of the unit's item."""
        return piece_key(self.pipeline, self.number)

    def action(self, id: str, page: int) -> Update:
        """Mark the unit as done, with the id and the page of its chunk."""
        changes = (Set("done", True), Set("records", self.records), Set("id", id), Set("page", page))
        return Update(self.key, changes, (Equals("done", False),))

    def read(self) -> Steps[Item]:
        """The unit's item as stored now."""
        return (yield from read_guard(self.key))

    def moved(self, item: Item) -> bool:
        """Whether another run has copied the unit."""
        return bool(item["done"])


def _noted(put: Put, item: Item | None) -> tuple[Put, ...] | None:
    return None if item is not None else (put,)


class CopyUnit(NamedTuple):
    """The pieces that one task copies and one commit appends, with the unit's number and whether it is done."""

    number: int
    pieces: tuple[Piece, ...]
    done: bool = False


def packed(
    planned: Mapping[str, Sequence[Piece]], most_rows: int
) -> tuple[list[list[Piece]], dict[str, tuple[int, int]]]:
    """Pack the pieces of a copy into units of up to `most_rows` rows; returns the units, and by namespace its first and
    last unit."""
    units: list[list[Piece]] = []
    ranges: dict[str, tuple[int, int]] = {}
    rows = 0
    for name, pieces in planned.items():
        for n, piece in enumerate(pieces):
            size = most_rows if piece.rows is None else piece.rows
            if not units or rows + size > most_rows or len(units[-1]) == UNIT_PIECES:
                units.append([])
                rows = 0
            units[-1].append(piece)
            rows += size
            ranges[name] = (ranges[name][0] if n else len(units) - 1, len(units) - 1)
        if not pieces:
            ranges[name] = (0, -1)
    return units, ranges


def _going_on(phase: Mapping[str, Any]) -> str:
    """The phase of a namespace after a change: sync again if it was complete."""
    return "sync" if phase["phase"] == "complete" else str(phase["phase"])


def _pieces(item: Item) -> tuple[Piece, ...]:
    if "pieces" in item:
        return tuple(Piece(*given) for given in msgspec.json.decode(item["pieces"]))
    return (Piece(item["namespace"], msgspec.json.decode(item["bounds"]), item["rows"]),)


def _joined_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges, with those that overlap or touch joined and empty ones left out."""
    out: list[tuple[int, int]] = []
    for low, high in ranges:
        if high < low:
            continue
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def last_message(batch: pa.RecordBatch) -> dict[str, Any]:
    """The last message of a batch as the reader's item stores it: without its data if that is large."""
    (message,) = messages_of(batch.slice(batch.num_rows - 1, 1))
    # An id of bytes need not be valid text, but JSON needs text.
    id = message.id.encode(errors="surrogateescape").decode(errors="backslashreplace")
    kept = {"id": id[:LAST_ID], "op": message.op.name.lower(), "timestamp": message.timestamp}
    data = to_json(message.data)
    return {**kept, "data": data.decode() if len(data) <= LAST_DATA else None}


def _check_unused(home: Home, pipeline: str) -> None:
    """Refuse to begin a pipeline if another program has written to the topic that would be its commit log."""
    name = log_name(pipeline)
    if home.store.run(guard.read(reader_key(pipeline))) is not None:
        return
    with suppress(UnknownTopic):
        if any(end for _, end in home.topic(name).ends().values()):
            raise BadSetting(
                f"the pipeline {pipeline!r} would keep its commit log in the topic {name!r}, which has records "
                "of another program; give the pipeline another name"
            )


def _opened(home: Home, name: str, partitions: int, settings: dict[str, Any]) -> Topic:
    """Open a pipeline's topic, and create it if it is missing.  A topic that has grown since keeps its partitions."""
    try:
        there = home.topic(name).partitions
    except UnknownTopic:
        there = partitions
    return home.topic(name, partitions=max(there, partitions), **settings)


class CommitLog:
    """A pipeline's commit log, on the driver.  One run at a time writes it; writes of an earlier run are refused."""

    def __init__(self, home: Home, pipeline: str, *, partitions: int = PARTITIONS, **settings: Any) -> None:
        self.home, self.pipeline, self._store = home, pipeline, home.store
        _check_unused(home, pipeline)
        self.topic: Topic = _opened(home, log_name(pipeline), partitions, settings)
        self._state = ReaderState(home.store, pipeline)

    def hold(self, offsets: Iterable[Key]) -> None:
        """Have upkeep keep the records above the offsets of these writers."""
        self._store.run(hold(self.topic.id, [key.p for key in offsets]))

    def compact(self, by: CompactBy | None) -> None:
        """Have upkeep compact the log by document or namespace; None leaves the topic's settings unchanged."""
        wanted = {"compact": True, "compact_by": "namespace" if by == "namespace" else "key"}
        if by is not None and any(getattr(self.topic.settings, name) != value for name, value in wanted.items()):
            self.topic.configure(**wanted)

    @property
    def complete(self) -> bool:
        """Whether the log still has the last state of every document, so that a new writer can be filled from it."""
        if any(floor for floor, _ in self.topic.ends().values()):
            return False
        if all(s.compact_by == "key" for _, _, s in self.topic.history() if s.compact):
            return True
        return not self._store.run(thinned(self.topic.log))

    def has_all_since(self, offsets: Mapping[int, int]) -> bool:
        """Whether the log still has every message from these offsets on."""
        if any(floor > offsets.get(q, 0) for q, (floor, _) in self.topic.ends().items()):
            return False
        return not self._store.run(thinned(self.topic.log, offsets))

    def refresh(self) -> None:
        """Read the stored state again, after an error that left the outcome of a write open."""
        self._state.load()

    # -- phases
    @property
    def item(self) -> Item:
        """The reader's item as last read or written."""
        return self._state.item

    @property
    def begun(self) -> bool:
        """Whether `begin` has fixed the position to follow from."""
        return bool(self.item.get("begun"))

    @property
    def position(self) -> Position:
        """The position up to which the source has been read."""
        return self._state.position

    @property
    def phases(self) -> Mapping[str, Mapping[str, Any]]:
        """The state of each namespace: its phase, the numbers of its units, its last message."""
        return self._state.phases

    def phases_for(self, writer: str | None) -> Mapping[str, Mapping[str, Any]]:
        """The state of each namespace, or in the fresh copy for a writer."""
        return self.phases if writer is None else self._state.fills[writer]["phases"]

    def begin(self, position: Position) -> None:
        """Fix the position to follow from; the runner calls this before anything is copied."""
        self._change({}, position, {"phases": {}, "fills": {}, "begun": True, "next": 0})

    def starts(self, writer: str) -> dict[int, int] | None:
        """The offsets where the fresh copy for a writer began; None if there is none or it is complete."""
        fill = self._state.fills.get(writer)
        if fill is None or (fill["phases"] and all(p["phase"] != "copy" for p in fill["phases"].values())):
            return None
        return {int(q): at for q, at in fill["starts"].items()}

    def fill(self, writer: str) -> None:
        """Begin a fresh copy for a writer, at the current ends of the log."""
        starts = {str(q): end for q, (_, end) in self.topic.ends().items()}
        self._change({("fills", writer): {"starts": starts, "phases": {}}}, self.position)

    def plan(self, namespace: str, pieces: Sequence[Piece], writer: str | None = None) -> None:
        """Store the pieces of one namespace as units; see `plan_all`."""
        self.plan_all({namespace: pieces}, writer)

    def plan_all(
        self, planned: Mapping[str, Sequence[Piece]], writer: str | None = None, most_rows: int = 100_000
    ) -> None:
        """Store the pieces of these namespaces as units of up to `most_rows` rows, and set their phase to copy.  After
        an interruption the next call uses new numbers, and the old units are never used."""
        units, ranges = packed(planned, most_rows)
        first = self._reserve(len(units))
        for at in range(0, len(units), NOTED_AT_ONCE):
            some = {first + at + n: unit for n, unit in enumerate(units[at : at + NOTED_AT_ONCE])}
            self._store.run(self._note(some))
        self.set_phases(
            {
                name: {"phase": "copy", "first": first + low, "count": high - low + 1}
                for name, (low, high) in ranges.items()
            },
            writer,
        )

    def _note(self, units: Mapping[int, Sequence[Piece]]) -> Steps[None]:
        puts = [
            Put(
                piece_key(self.pipeline, n),
                {"pieces": _json([[p.namespace, p.bounds, p.rows] for p in unit]).decode(), **NOT_DONE},
                (Absent(),),
            )
            for n, unit in units.items()
        ]
        outcome = yield from guard.attempt(*puts)
        if not isinstance(outcome, Written):  # it may have happened; no other run uses these numbers
            for put in puts:
                yield from guard.settle(put.key, partial(_noted, put))

    def set_phases(self, phases: Mapping[str, Mapping[str, Any]], writer: str | None = None) -> None:
        """Store the state of these namespaces, or in the fresh copy for a writer."""
        above = ("phases",) if writer is None else ("fills", writer, "phases")
        self._change({(*above, name): dict(phase) for name, phase in phases.items()}, self.position)

    def complete_phases(self, namespaces: Iterable[str]) -> list[str]:
        """Set the phase of those namespaces that are in sync to complete, and return their names: files that were read
        to their end, copies that nothing follows, dropped tables."""
        ended = {name: self.phases[name] for name in namespaces if name in self.phases}
        ended = {name: phase for name, phase in ended.items() if phase["phase"] == "sync"}
        if ended:
            self.set_phases({name: {**phase, "phase": "complete"} for name, phase in ended.items()})
        return list(ended)

    def units(self, namespaces: Iterable[str], writer: str | None = None) -> list[CopyUnit]:
        """The units that have pieces of these namespaces, in order."""
        phases = self.phases_for(writer)
        ranges = sorted(
            (phases[name]["first"], phases[name]["first"] + phases[name]["count"] - 1) for name in namespaces
        )
        found: list[CopyUnit] = []
        for low, high in _joined_ranges(ranges):
            items = self._store.run(guard.read_all(piece_key(self.pipeline, 0).p, low, high))
            found += [CopyUnit(item["i"], _pieces(item), item["done"]) for item in items]
        return found

    def _reserve(self, count: int) -> int:
        first: int = self.item["next"]
        self._change({}, self.position, {"next": first + count})
        return first

    def _change(self, entries: Entries, position: Position, others: Changed | None = None) -> None:
        """Change the reader's item; `Fenced` if another run has changed it.  Its `id` names its last write."""
        planned = self._state.plan(entries, position)
        self._store.run(self._state.put(planned))
        key, before, mine = reader_key(self.pipeline), self.item["seq"], secrets.token_hex(8)
        changes = sets({**(others or {}), **planned.changes, "id": mine})
        action = Update(key, (*changes, Add("seq", 1)), (Equals("seq", before),))
        item = self._store.run(guard.settle(key, lambda item: (action,) if item and item["seq"] == before else None))
        if item is None or item["id"] != mine:
            raise Fenced(f"another run of {self.pipeline!r} has begun; this one must stop")
        self._state.adopt(planned, item)

    # -- data
    def commit_piece(self, number: int, parcels: Iterable[StagedChunks]) -> bool:
        """Append the chunks that tasks have stored for a unit, and mark it as done; False if it was done before."""
        some = list(parcels)
        records = sum(parcel.records for parcel in some)
        placed = self._store.run(place_staged(self.topic.log, some))
        done = PieceDone(self.pipeline, number, records)
        if placed is not None:
            won, _ = self._store.run(commit_guarded([placed], done))
            return won
        action = done.action("", 0)
        self._store.run(guard.settle(done.key, lambda item: None if item and item["done"] else (action,)))
        return True

    def note(self, noted: Changed) -> None:
        """Store other attributes in the reader's item, beside the position."""
        self._change({}, self.position, noted)

    def take_in(
        self,
        rows: Sequence[pa.RecordBatch],
        position: Position,
        *,
        keep_last: bool = False,
        noted: Changed | None = None,
    ) -> bool:
        """Append changes and store the position behind them, all or none, however many there are.

        False or `Fenced` if another run has written since: then this one must stop.  `rows` may be larger than memory:
        its batches are read one at a time.  `keep_last` stores the last message of each namespace, for a reader that
        wants it; `noted` has other attributes to store."""
        placed = self._store.run(self._packed(rows))
        if placed is None:
            self._change({}, position, noted)
            return True
        planned = self._state.plan(self._followed(rows, keep_last=keep_last), position)
        self._store.run(self._state.put(planned))
        others = {path: value for path, value in planned.changes.items() if path != "position"} | (noted or {})
        progress = SourceGuard(reader_key(self.pipeline), self.item, planned.changes["position"], others)
        won, item = self._store.run(take_in([placed], progress))
        if won:
            self._state.adopt(planned, item)
        return won

    def _packed(self, rows: Sequence[pa.RecordBatch]) -> Steps[Placed | None]:
        """Store rows as chunks.  If the log grows before they are appended, they are packed again: see `_where`."""
        log = self.topic.log
        parcel = yield from stage_steps(log, self.topic.described, joined_rows(rows), self._where)
        placed = yield from place_staged(log, [parcel])
        if placed is not None:
            placed.again = cast("Callable[[], Steps[Placed]]", partial(self._packed, rows))
        return placed

    def _followed(self, rows: Sequence[pa.RecordBatch], *, keep_last: bool) -> dict[tuple[str, ...], Any]:
        """The new states of the namespaces that these changes affect, where they differ from the current ones."""
        last = {namespace_of(batch): n for n, batch in enumerate(rows) if batch.num_rows}
        after = {}
        for name, n in last.items():
            if name in self.phases:
                message = {"last": last_message(rows[n])} if keep_last else {}
                after[name] = {**self.phases[name], "phase": _going_on(self.phases[name]), **message}
        return {("phases", name): phase for name, phase in after.items() if phase != self.phases[name]}

    def _where(self, batch: pa.RecordBatch) -> Iterable[int | None]:
        """All partitions for a command, which concerns all documents of its namespace; None means by key."""
        is_command = batch.num_rows and ops_of(batch)[0].as_py() == Op.COMMAND
        return range(self.topic.partitions) if is_command else (None,)
