"""Projections under the simulator: members die, stall and come back, commits land late, the index grows, others append
to the same streams.  Each event of the feed has its effect once, in order; and each rule, taken away, is missed."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tailrace.coordination.lease import new_number
from tailrace.coordination.rules import without
from tailrace.coordination.sharing import Policy, UnitWorker
from tailrace.errors import Damaged, TimedOut, Unavailable
from tailrace.events.append import commit, part
from tailrace.events.event import Event
from tailrace.events.reading import Forward
from tailrace.events.store import Events
from tailrace.feed.consumer import FeedProgress, FeedSource, FeedUnit, Row
from tailrace.feed.epoch import EpochLimits
from tailrace.feed.feed import FeedEvent, wanted
from tailrace.feed.index import Indexer
from tailrace.feed.span import Span
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.testing import (
    Life,
    Scenario,
    SimulatedTable,
    Simulation,
    Violation,
    check_schedules,
    one_schedule,
)
from tests.log.group_actors import together
from tests.streams.shared import works

SEEDS, TTL = 40, 0.1
STREAMS, BATCHES = ("S-0", "S-1", "X-0"), 5


def events_of(sim: Simulation, rng: random.Random) -> Events:
    """An event store on the simulated table, which draws its ids from a life."""
    events = Events(Store(sim.table, sim.objects))
    events.settings = replace(events.settings, new_id=lambda: f"{rng.getrandbits(62):x}", now=lambda: "2026-01-01")
    return events


def prepare(sim: Simulation) -> None:
    """What will be indexed, batch by batch; the first batch is there."""
    rng = random.Random(sim.seed)
    ends = dict.fromkeys(STREAMS, 0)
    batches = []
    for _ in range(BATCHES):
        spans = []
        for stream in rng.sample(STREAMS, rng.randint(1, 3)):
            spans.append(Span(stream, ends[stream], ("a",) * rng.randint(1, 3)))
            ends[stream] = spans[-1].end
        batches.append(spans)
    sim.ghosts |= {"batches": batches, "ends": ends, "indexed": False}
    sim.do(indexer(sim, rng).ingest(batches[0]))
    sim.do(source(sim, rng).join())


def indexer(sim: Simulation, rng: random.Random) -> Indexer:
    settings = events_of(sim, rng).settings
    return Indexer(limits=EpochLimits(max_version=2), settings=settings, wall=lambda: 1_767_225_600.0)


def source(sim: Simulation, rng: random.Random) -> FeedSource:
    return FeedSource(events_of(sim, rng), "group", (0,), bodies=False, wanted=wanted("S", None, None))


def indexes(sim: Simulation) -> Callable[[Life], Steps[None]]:
    def steps(life: Life) -> Steps[None]:
        for spans in sim.ghosts["batches"][1:]:
            yield from calls.pause(5)
            yield from indexer(sim, life.rng).ingest(spans)
        sim.ghosts["indexed"] = True

    return steps


def rival(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Somebody else who appends to the same streams."""

    def steps(life: Life) -> Steps[None]:
        settings = events_of(sim, life.rng).settings
        for _ in range(3):
            yield from calls.pause(4)
            yield from commit([part("Out-S-0", [Event("Rival")], (), settings)], settings)

    return steps


def consumer(sim: Simulation) -> Callable[[Life], Steps[None]]:
    def steps(life: Life) -> Steps[None]:
        events = events_of(sim, life.rng)

        def handle(event: FeedEvent) -> Any:
            if life.rng.random() < 0.05:
                raise ValueError("fails now and then")
            return events.stream(f"Out-{event.stream}").change([Event("Seen", b"%d" % event.index)])

        policy = Policy(attempts=1000, patience=life.rng.choice((0, 60)))
        number = new_number(life.rng.getrandbits)
        worker = UnitWorker(source(sim, life.rng), number, handle, policy, ttl=TTL, wall=lambda: 0.0)
        yield from worker.member.enter()
        over = threading.Event()
        yield from together(life, keeps(sim, worker, over), works(worker, over))
        worker.closing = True
        for task in list(worker.tasks.values()):
            yield from worker.release(task)
        yield from worker.member.leave()

    return steps


def keeps(sim: Simulation, worker: UnitWorker[Row], over: threading.Event) -> Steps[None]:
    yield from calls.pause(0)
    while not (sim.ghosts["indexed"] and all(len(effects(sim, s)) >= n for s, n in expected(sim).items())):
        yield from worker.member.beat()
        with contextlib.suppress(TimedOut, Unavailable):
            yield from worker.look()
        yield from calls.pause(1)
    over.set()


def expected(sim: Simulation) -> dict[str, int]:
    return {stream: n for stream, n in sim.ghosts["ends"].items() if stream.startswith("S-")}


def effects(sim: Simulation, stream: str) -> list[int]:
    """The effects of a stream's events, in their order."""
    found: list[Event] = []
    reader = Forward(f"Out-{stream}")
    while page := sim.do(reader.page()):
        found += page
    return [int(event.data) for event in found if event.type == "Seen"]


def each_once(sim: Simulation) -> None:
    for stream in STREAMS:
        try:
            found = effects(sim, stream)
        except Damaged as error:
            raise Violation("an append was made over another", stream) from error
        if found != list(range(len(found))):
            raise Violation("an event had its effect twice, out of order or not at all", stream, found)
    if effects(sim, "X-0"):
        raise Violation("an event that was not wanted was handled")


def all_came(sim: Simulation) -> None:
    for stream, n in expected(sim).items():
        if len(effects(sim, stream)) != n:
            raise Violation("events are missing", stream, effects(sim, stream), n)


def projections(restarts: int = 1) -> Scenario:
    def scenario(sim: Simulation) -> None:
        prepare(sim)
        sim.spawn("indexer", indexes(sim), restarts=1)
        sim.spawn("rival", rival(sim))
        for name in ("ann", "bob"):
            sim.spawn(name, consumer(sim), restarts=restarts)
        sim.check.append(each_once)
        sim.at_end.append(all_came)

    return scenario


def on_dynamodb() -> SimulatedTable:
    return SimulatedTable(answers=False)


@pytest.mark.parametrize("table", [SimulatedTable, on_dynamodb])
def test_projections_are_exactly_once(table: Callable[[], SimulatedTable]) -> None:
    check_schedules(projections(), range(SEEDS), table=table)


@pytest.mark.soak
def test_and_so_for_many_schedules() -> None:
    first = int(os.environ.get("TAILRACE_SEED", "10000"))
    seeds = range(first, first + int(os.environ.get("TAILRACE_SCHEDULES", "20000")))
    check_schedules(projections(2), seeds, table=on_dynamodb)


# -- mutants
def _whole_batches(self: FeedUnit, entry: Any) -> list[Row]:
    """A checkpoint without how many events behind it are handled."""
    return [Row(row.event, FeedProgress(row.progress.checkpoint)) for row in _rows(self, entry)]


def _checkpoint_of_what_was_read(self: FeedUnit, last: Any) -> Any:
    return _also(self, None)


_rows, _also = FeedUnit._rows, FeedUnit.also

MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a commit wherever position and checkpoint are": lambda: without(
        "commit.owner", "commit.epoch", "commit.position", "events.etag", "events.n"
    ),
    "checkpoints know whole batches only": lambda: patch.object(FeedUnit, "_rows", _whole_batches),
    "the checkpoint of what was read": lambda: patch.object(FeedUnit, "also", _checkpoint_of_what_was_read),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_missed(mutant: str) -> None:
    with MUTANTS[mutant]():
        found = any(one_schedule(projections(), seed, table=on_dynamodb)[1] for seed in range(200))
    assert found, f"nothing notices: {mutant}"
