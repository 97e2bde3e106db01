"""Whole upkeeps as actors of the log's scenarios: retention, merging and cleaning, beside everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tailrace.coordination import guard
from tailrace.errors import OutcomeUnknown
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk, decode
from tailrace.log.format.head import ChunkEntry, Head
from tailrace.log.read.reader import Reader
from tailrace.log.record import Op, attributes
from tailrace.log.settings import TopicSettings
from tailrace.log.upkeep.retention_holds import held, hold
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, tend
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import place
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Key, Put, Set, Update
from tailrace.testing import Life, Scenario, Simulation
from tests.log.actors import Factory
from tests.log.ghost import PARTITIONS, Ghost, ghost_of, log_of, must
from tests.log.scenarios import Spawn, a, made, names, reads, rolls

MERGES = TopicSettings(merge_bytes=2500)
"""Three chunks of one record are worth being merged, six make an object."""
KEEPS = TopicSettings(merge_bytes=2500, retention_bytes=1500)


def tender(sim: Simulation, settings: TopicSettings, times: int) -> Factory:
    def run(life: Life) -> Steps[None]:
        for _ in range(times):
            yield from tend(log_of(sim, life.rng), settings, UpkeepResult("t"), 10_000)

    return run


def tends(settings: TopicSettings = MERGES, name: str = "tender", times: int = 2, restarts: int = 1) -> Spawn:
    return lambda sim: sim.spawn(name, tender(sim, settings, times), restarts)


SCENARIOS: dict[str, Scenario] = {
    "tend": made(a((0,), (0, 1), (0,)), rolls(), tends(), reads(), reads(1), pages=4),
    "tend2": made(a((0,), (0,)), rolls(), tends(), tends(KEEPS, "tender2"), reads(), pages=4),
    "keep": made(a((0,), (0, 1)), a((1, 0), name="b"), names(1), rolls(), tends(KEEPS), reads(), pages=3),
    "forget": made(a((0,), (0,)), rolls(times=4), tends(times=4), pages=3),
}


# --- with keys, and compaction ----------------------------------------------------------------------------------------
Keyed = tuple[int, bytes, bytes | None]
"""A partition, a key, and a value or a tombstone."""


class States(Ghost):
    """The ghost of a compacted topic: what is stored says of each key what the log has said last."""

    def _check(self, sim: Simulation, head: Head) -> None:
        super()._check(sim, head)
        for q in range(head.partitions):
            there = self._there.get(q, {}).keys() | {n for met in self._pages.values() for n in met.there.get(q, ())}
            of_key: dict[bytes, list[int]] = {}
            for n, record in enumerate(self.log[q]):
                of_key.setdefault(_key(record), []).append(n)
            for own in of_key.values():
                if own[-1] >= head.floor[q] and own[-1] not in there:
                    kept = [n for n in own if n in there]
                    must(_is_tombstone(self.log[q][own[-1]]), "the last record of a key removed", q, own[-1])
                    must(not kept, "what was deleted is back", q, kept)

    def _decoded(self, entry: ChunkEntry, data: memoryview) -> Iterator[tuple[int, Any]]:
        for run in entry.runs:
            piece = data[run.position : run.position + run.length]
            batches = decode(entry.kind, run, piece, "a chunk") if run.length else []
            rows = [(row.get("offset"), (row["key"], row["value"])) for b in batches for row in b.to_pylist()]
            yield run.partition, rows

    def _meet(self, sim: Simulation, head: Head, entry: ChunkEntry, position: dict[int, int]) -> None:
        for q, count in entry.counts.items():
            at, there = position[q], self._there.setdefault(q, {})
            if at + count <= head.floor[q]:
                continue
            for n, (offset, (key, value)) in enumerate(self.values(sim, entry)[q]):
                place, record = at + n if offset is None else offset, _record(key, value)
                must(at <= place < at + count, "an offset outside its chunk", q, place)
                if place < len(self.log[q]):
                    must(self.log[q][place] == record, "bytes are not the records of these offsets", q, place)
                else:
                    must(place == len(self.log[q]) and record not in self.where, "a record twice, or a gap", q, place)
                    self.log[q].append(record)
                    self.where[record] = q
                there[place] = record


def _record(key: bytes, value: bytes) -> bytes:
    return key + b"=" + value


def _key(record: bytes) -> bytes:
    return record.partition(b"=")[0]


def _is_tombstone(record: bytes) -> bool:
    return record.partition(b"=")[2].startswith(b"-")


@lru_cache(maxsize=4096)
def keyed_chunk(records: tuple[tuple[int, bytes, bytes], ...]) -> Chunk:
    buffer = Buffer(PARTITIONS, 1000)
    for q, key, value in records:
        buffer.add(key, value, 1000, attributes=attributes(op=Op.DELETE) if value[:1] == b"-" else 0, partition=q)
    return buffer.encode("none")


def writer(sim: Simulation, name: str, letters: str) -> Factory:
    """Appends a record for each letter, its key, to both partitions; a capital deletes."""

    def run(life: Life) -> Steps[None]:
        log, ghost = log_of(sim, life.rng), ghost_of(sim)
        for n, letter in enumerate(letters):
            mark = b"" if letter.islower() else b"-"
            records = tuple(
                (q, letter.lower().encode(), mark + f"{life.name}.{n}.{q}".encode()) for q in range(PARTITIONS)
            )
            placed = yield from place(log, keyed_chunk(records))
            try:
                (appended,) = yield from commit([placed])
            except OutcomeUnknown:
                continue
            for q, key, value in records:
                ghost.check(sim)
                must(_record(key, value) in ghost.where, "acknowledged, not in the log")
                if appended.offsets is not None:
                    must(ghost.log[q][appended.offsets[q]] == _record(key, value), "a wrong offset answered")

    return run


def state_reader(sim: Simulation, q: int) -> Factory:
    """Follows a partition; in the end it knows the last state of each key."""

    def run(life: Life) -> Steps[None]:
        ghost, state, last = ghost_of(sim), dict[bytes, bytes](), -1
        reader = Reader(log_of(sim), {q: 0})
        while True:
            fetched = yield from reader.poll(100)
            for one in fetched:
                for offset, row in zip(one.offsets.to_pylist(), one.data.to_pylist(), strict=True):
                    must(offset > last, "a reader went back", offset, last)
                    record, last = _record(row["key"], row["value"]), offset
                    must(ghost.log[q][offset] == record, "a reader sees other records than the log's", offset)
                    state[row["key"]] = record
            if not fetched:
                if sim.finishing and not any(n for n in sim.running() if not n.startswith(("read", "acker"))):
                    must(reader.positions[q] == len(ghost.log[q]), "reader stopped early")
                    must(state == {_key(r): r for r in ghost.log[q]}, "a reader does not know the last state")
                    return
                yield from calls.pause(0)

    return run


def acker(sim: Simulation, q: int = 0, life_name: str = "$Offsets-p.w") -> Factory:
    """A pipeline's writer: every message that it has not acknowledged is there for it, none left out."""

    def run(life: Life) -> Steps[None]:
        ghost, key = ghost_of(sim), Key(life_name, q)
        while True:
            item = yield from guard.settle(key, lambda item: None if item else (Put(key, {"low": -1}, (Absent(),)),))
            low = item["low"]
            fetched = yield from Reader(log_of(sim), {q: low + 1}).poll(1)
            for one in fetched[:1]:
                must(one.offset == low + 1, "a pending message was removed", low + 1, one.offset)
                yield from guard.attempt(Update(key, (Set("low", one.offset),), (Equals("low", low),)))
            if not fetched:
                if sim.finishing and not any(n for n in sim.running() if not n.startswith(("read", "acker"))):
                    must(low + 1 == len(ghost.log[q]), "the writer stopped early")
                    return
                yield from calls.pause(0)

    return run


def compactor(sim: Simulation, settings: TopicSettings, wall: int, times: int) -> Factory:
    def run(life: Life) -> Steps[None]:
        for _ in range(times):
            log = log_of(sim, life.rng)
            needed = yield from held(log.id, range(PARTITIONS))
            yield from tend(log, settings, UpkeepResult("t"), wall, needed)

    return run


COMPACTS = TopicSettings(merge_bytes=2500, compact=True, tombstone_ms=500)
EARLY, LATE = 1000, 2000
"""Times at which no tombstone is old enough to go, and at which all are."""


def compacted(letters: str, *spawns: Spawn, old: str = "abab", held_by: str | None = None) -> Scenario:
    """A scenario on a topic with keys: some old pages, a producer of these letters, and others."""

    def scenario(sim: Simulation) -> None:
        ghost = sim.ghosts["topic"] = States("t0")
        sim.table.write(heads.new_head("t0", PARTITIONS))
        sim.check.append(ghost.check)
        log = log_of(sim)
        if held_by:
            sim.do(hold("t0", [held_by]))
        for n, letter in enumerate(old):
            log.new_id = lambda n=n: f"{n:024x}"
            records = tuple((q, letter.encode(), b"old.%d.%d" % (n, q)) for q in range(PARTITIONS))
            sim.do(commit([sim.do(place(log, keyed_chunk(records)))]))
            sim.do(roll(log, sim.do(log.head())))
            ghost.check(sim)
        sim.spawn("w", writer(sim, "w", letters), dies=True)
        for spawn in spawns:
            spawn(sim)

    return scenario


def compacts(wall: int = EARLY, name: str = "compactor", times: int = 2, restarts: int = 1) -> Spawn:
    return lambda sim: sim.spawn(name, compactor(sim, COMPACTS, wall, times), restarts)


def acks(q: int = 0) -> Spawn:
    return lambda sim: sim.spawn(f"acker{q}", acker(sim, q), 0)


def knows(q: int = 0) -> Spawn:
    return lambda sim: sim.spawn(f"reader{q}", state_reader(sim, q))


COMPACTIONS: dict[str, Scenario] = {
    "compact": compacted("abAb", rolls(), compacts(), knows(), knows(1)),
    "compact2": compacted("aBa", rolls(), compacts(), compacts(LATE, "compactor2"), rolls("roller2")),
    "tombstones": compacted("AB", rolls(), compacts(LATE, times=3), compacts(LATE, "compactor2"), old="abAab"),
    "pending": compacted("abab", rolls(), compacts(), acks(), held_by="$Offsets-p.w"),
}
SCENARIOS |= COMPACTIONS
