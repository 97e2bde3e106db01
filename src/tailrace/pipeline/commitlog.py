"""The commit log: a pipeline's own topic, and how far its source has been read.

    topic <pipeline>-log          every message, partitioned by namespace + id
    $Reader-<pipeline>, 0         seq, position, id, page (see log/intake), begun, next, phases{namespace: {phase, …}},
                                  fills{writer: {starts{partition: offset}, phases{…}}}
    $Pieces-<pipeline>, n         namespace, bounds, rows, done, records, id, page: a part of a copy

A piece is done when the same transaction that appends its chunks says so, under the condition that it was not: whoever
copies it again after a crash, or beside a process thought dead, appends nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Piece, Position
from tailrace.adaptors.rows import namespace_of, ops_of
from tailrace.coordination import guard
from tailrace.errors import Fenced, UnknownTopic
from tailrace.home import Home
from tailrace.log.append import Placed, commit_guarded
from tailrace.log.holds import hold
from tailrace.log.intake import Progress, log_name, open_reader, reader_key, take_in
from tailrace.log.parcel import Parcel, packed_up, unpack_parcels
from tailrace.log.record import Op
from tailrace.log.skimming import thinned
from tailrace.log.topic import Topic
from tailrace.pipeline.definition import CompactBy
from tailrace.pipeline.offsets import offsets_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Equals, Item, Key, Path, Put, Set, Update

PARTITIONS = 8
LAST_ID = 256
"""So many bytes of a message's id are kept with its namespace."""

_json = msgspec.json.encode


def piece_key(pipeline: str, number: int) -> Key:
    """Where a piece's progress is."""
    return Key(f"$Pieces-{pipeline}", number)


@dataclass(slots=True)
class PieceDone:
    """The guard of one piece of a copy: it was not done yet."""

    pipeline: str
    number: int
    records: int

    @property
    def key(self) -> Key:
        """Where it is."""
        return piece_key(self.pipeline, self.number)

    def action(self, id: str, page: int) -> Update:
        """Done now, by this chunk."""
        changes = (Set("done", True), Set("records", self.records), Set("id", id), Set("page", page))
        return Update(self.key, changes, (Equals("done", False),))

    def read(self) -> Steps[Item]:
        """The piece as stored."""
        item = yield from guard.read(self.key)
        assert item is not None, "a piece is never removed while its copy goes on"
        return item

    def moved(self, item: Item) -> bool:
        """Somebody else has copied it."""
        return bool(item["done"])


def _noted(key: Key, item: Item, old: Item | None) -> tuple[Put, ...] | None:
    return None if old is not None else (Put(key, item, (Absent(),)),)


def _opened(home: Home, name: str, partitions: int, settings: dict[str, Any]) -> Topic:
    """A pipeline's topic, made if it is not there; one that has been given more partitions since keeps them."""
    try:
        there = home.topic(name).partitions
    except UnknownTopic:
        there = partitions
    return home.topic(name, partitions=max(there, partitions), **settings)


class CommitLog:
    """A pipeline's commit log, on the driver.  One run at a time writes it; a second one changes nothing twice."""

    def __init__(self, home: Home, pipeline: str, *, partitions: int = PARTITIONS, **settings: Any) -> None:
        self.home, self.pipeline, self._store = home, pipeline, home.store
        self.topic: Topic = _opened(home, log_name(pipeline), partitions, settings)
        self.refresh()

    def hold(self, writers: Iterable[str]) -> None:
        """Keep what these writers have not acknowledged from being removed by upkeep."""
        by = [offsets_key(self.pipeline, writer, 0).p for writer in writers]
        self._store.run(hold(self.topic.id, by))

    def compact(self, by: CompactBy | None) -> None:
        """Have upkeep compact the log; None: as the topic's settings say."""
        wanted = {"compact": True, "compact_by": "namespace" if by == "namespace" else "key"}
        if by is not None and any(getattr(self.topic.settings, name) != value for name, value in wanted.items()):
            self.topic.configure(**wanted)

    @property
    def complete(self) -> bool:
        """Whether it still has the last state of every document, and so can fill a new writer."""
        if any(floor for floor, _ in self.topic.ends().values()):
            return False
        if all(s.compact_by == "key" for _, _, s in self.topic.history() if s.compact):
            return True
        return not self._store.run(thinned(self.topic.log))

    def refresh(self) -> None:
        """Know what is stored: at the start, and after an error that left it open."""
        self.item = self._store.run(open_reader(self.pipeline, None))

    # -- phases
    @property
    def begun(self) -> bool:
        """Whether the position to follow from has been fixed."""
        return bool(self.item.get("begun"))

    @property
    def position(self) -> Position:
        """How far the source has been read."""
        return msgspec.json.decode(self.item["position"]) if self.item["position"] is not None else None

    @property
    def phases(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known of each namespace: its phase ("copy" or "sync"), which pieces are its, the last message."""
        phases: Mapping[str, Mapping[str, Any]] = self.item.get("phases", {})
        return phases

    def phases_for(self, writer: str | None) -> Mapping[str, Mapping[str, Any]]:
        """The same of a fresh copy for one writer."""
        return self.phases if writer is None else self.item["fills"][writer]["phases"]

    def begin(self, position: Position) -> None:
        """Fix the position to follow from, before anything is copied."""
        fixed = (Set("position", _json(position).decode()), Set("begun", True))
        self._change(*fixed, Set("phases", {}), Set("fills", {}), Set("next", 0))

    def starts(self, writer: str) -> dict[int, int] | None:
        """Where in the log a fresh copy for a writer began, while it is not complete; None if there is none."""
        fill = self.item["fills"].get(writer)
        if fill is None or (fill["phases"] and all(p["phase"] == "sync" for p in fill["phases"].values())):
            return None
        return {int(q): at for q, at in fill["starts"].items()}

    def fill(self, writer: str) -> None:
        """Begin a fresh copy for a writer, after everything that is in the log now."""
        starts = {str(q): end for q, (_, end) in self.topic.ends().items()}
        self._change(Set(("fills", writer), {"starts": starts, "phases": {}}))

    def plan(self, namespace: str, pieces: Sequence[Piece], writer: str | None = None) -> None:
        """Note the pieces of a namespace.  If this is cut off the next call notes them anew, and these are nobody's."""
        first = self._reserve(len(pieces))
        for n, piece in enumerate(pieces, first):
            item = {
                "namespace": namespace, "bounds": _json(piece.bounds).decode(), "rows": piece.rows, "done": False,
                "records": 0, "id": "", "page": 0,
            }  # fmt: skip
            self._store.run(
                guard.settle(piece_key(self.pipeline, n), partial(_noted, piece_key(self.pipeline, n), item))
            )
        self.set_phase(namespace, {"phase": "copy", "first": first, "count": len(pieces)}, writer)

    def set_phase(self, namespace: str, phase: Mapping[str, Any], writer: str | None = None) -> None:
        """A namespace's phase from now on."""
        path = ("phases", namespace) if writer is None else ("fills", writer, "phases", namespace)
        self._change(Set(path, dict(phase)))

    def pieces(self, namespace: str, writer: str | None = None) -> list[tuple[int, Piece, bool]]:
        """The pieces of a namespace: (number, piece, whether it is done)."""
        phase = self.phases_for(writer)[namespace]
        low, high = phase["first"], phase["first"] + phase["count"] - 1
        items = self._store.run(guard.read_all(piece_key(self.pipeline, 0).p, low, high))
        return [(i["i"], Piece(namespace, msgspec.json.decode(i["bounds"]), i["rows"]), i["done"]) for i in items]

    def _reserve(self, count: int) -> int:
        first: int = self.item["next"]
        self._change(Add("next", count))
        return first

    def _change(self, *changes: Set | Add) -> None:
        """Change the reader's item; `Fenced` if another run has since it was read.  Mine is what has my id."""
        key, before, mine = reader_key(self.pipeline), self.item["seq"], secrets.token_hex(8)
        action = Update(key, (*changes, Add("seq", 1), Set("id", mine)), (Equals("seq", before),))
        item = self._store.run(guard.settle(key, lambda item: (action,) if item and item["seq"] == before else None))
        if item is None or item["id"] != mine:
            raise Fenced(f"another run of {self.pipeline!r} has begun; this one must stop")
        self.item = item

    # -- data
    def commit_piece(self, number: int, parcels: Iterable[Parcel]) -> bool:
        """Append what tasks put for a piece, and that it is done; False if it was done before."""
        some = list(parcels)
        records = sum(parcel.records for parcel in some)
        placed = unpack_parcels(self.topic.log, some)
        done = PieceDone(self.pipeline, number, records)
        if placed is not None:
            won, _ = self._store.run(commit_guarded([placed], done))
            return won
        action = done.action("", 0)
        self._store.run(guard.settle(done.key, lambda item: None if item and item["done"] else (action,)))
        return True

    def take_in(self, rows: Sequence[pa.RecordBatch], position: Position) -> bool:
        """Append changes and the position after them; False or `Fenced` if another run has, and this one must stop."""
        placed = self._store.run(self._packed(rows))
        text = _json(position).decode()
        if placed is None:
            self._change(Set("position", text))
            return True
        won, self.item = self._store.run(take_in([placed], Progress(self.pipeline, self.item, text, self._last(rows))))
        return won

    def _packed(self, rows: Sequence[pa.RecordBatch]) -> Steps[Placed | None]:
        """Rows, stored.  If the log grows before they are committed they are packed anew: a command goes everywhere."""
        log = self.topic.log
        parcel = yield from packed_up(log, self.topic.described, rows, self._where)
        placed = unpack_parcels(log, [parcel])
        if placed is not None:
            placed.again = cast("Callable[[], Steps[Placed]]", partial(self._packed, rows))
        return placed

    def _last(self, rows: Sequence[pa.RecordBatch]) -> dict[Path, Any]:
        """The last message of each namespace, for a source that goes on from there; without its data."""
        last: dict[Path, Any] = {}
        for batch in rows:
            if batch.num_rows and (namespace := namespace_of(batch)) in self.phases:
                key, mark, stamp = (batch.column(name)[-1] for name in ("key", "attributes", "timestamp"))
                id = (key.as_py() or b"")[len(namespace.encode()) + 1 :][:LAST_ID].decode(errors="replace")
                op = Op(mark.as_py() >> 2).name.lower()
                last["phases", namespace, "last"] = {"id": id, "op": op, "timestamp": stamp.value}
        return last

    def _where(self, batch: pa.RecordBatch) -> Iterable[int | None]:
        """A command concerns all documents of its namespace, so it goes to every partition, after what is there."""
        is_command = batch.num_rows and ops_of(batch)[0].as_py() == Op.COMMAND
        return range(self.topic.partitions) if is_command else (None,)
