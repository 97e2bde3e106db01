"""Scenarios of the log: who acts on a topic at the same time.  The names are those of the model, tests/model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.errors import Fenced
from tailrace.log.format import head as heads
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tailrace.storage.memory.admission import admit
from tailrace.testing import Scenario, SimulatedTable, Simulation
from tests.log.actors import (
    chunk,
    cleaner,
    merger,
    named,
    pair,
    producer,
    reader,
    retention,
    rewriter,
    roller,
    source,
    source_agrees,
)
from tests.log.ghost import PARTITIONS, Ghost, log_of
from tests.log.growing import GROWING

Spawn = Callable[[Simulation], None]
TABLES: dict[str, Callable[[], SimulatedTable]] = {
    "objects": lambda: SimulatedTable(inline_bytes=0, joins_inline=False, answers=False),
    "items": lambda: SimulatedTable(inline_bytes=65536, joins_inline=False, answers=False),
    "joined": lambda: SimulatedTable(inline_bytes=65536, joins_inline=True, answers=True),
}
"""How small chunks are kept: as on S3 + DynamoDB with large and with small chunks, and as on SQLite."""

TORN = {"objects": 2, "items": 2, "joined": 0}
"""Readers of SQLite see a transaction whole."""


@contextmanager
def small_pages() -> Iterator[None]:
    """A head is full with two entries, so that pages are made all the time."""
    before, heads.MAX_ENTRY_BYTES = heads.MAX_ENTRY_BYTES, 60
    try:
        yield
    finally:
        heads.MAX_ENTRY_BYTES = before


def topic(sim: Simulation, name: str = "topic", id: str = "t0", pages: int = 0) -> Ghost:
    """A topic with some pages of one record each."""
    ghost = sim.ghosts[name] = Ghost(id)
    sim.table.write(heads.new_head(id, PARTITIONS))
    sim.check.append(ghost.check)
    log = log_of(sim) if name == "topic" else None
    for n in range(pages):
        assert log is not None
        log.new_id = lambda n=n: f"{n:024x}"
        placed = sim.do(place(log, chunk(((0, b"old.%d" % n),))))
        sim.do(commit([placed]))
        sim.do(roll(log, sim.do(log.head())))
        ghost.check(sim)
    return ghost


def made(*spawns: Spawn, pages: int = 0) -> Scenario:
    """A scenario: a topic, and these actors."""

    def scenario(sim: Simulation) -> None:
        topic(sim, pages=pages)
        for spawn in spawns:
            spawn(sim)

    return scenario


def unseen(*spawns: Spawn) -> Scenario:
    """A scenario on a topic of three pages, of which plain reads do not show the middle one for a while."""

    def scenario(sim: Simulation) -> None:
        ghost = topic(sim, pages=1)
        log = log_of(sim)
        for n in range(1, 3):
            log.new_id = lambda n=n: f"{n:024x}"
            sim.do(commit([sim.do(place(log, chunk(((0, b"old.%d" % n),))))]))
            # Readers of SQLite, which answers what a transaction did, see it whole.
            torn = 0 if n == 1 and not sim.table.answers else None
            sim.table.apply(admit(heads.roll(log.id, sim.do(log.head()))), torn)
            ghost.check(sim)
        for spawn in spawns:
            spawn(sim)

    return scenario


def a(*batches: tuple[int, ...], name: str = "a") -> Spawn:
    return lambda sim: sim.spawn(name, producer(sim, name, batches), dies=True)


def rolls(name: str = "roller", times: int = 2) -> Spawn:
    return lambda sim: sim.spawn(name, roller(sim, times))


def cleans(name: str = "cleaner", times: int = 2) -> Spawn:
    return lambda sim: sim.spawn(name, cleaner(sim, times))


def merges(begin: int = 0, name: str = "merger", restarts: int = 0, times: int = 2) -> Spawn:
    return lambda sim: sim.spawn(name, merger(sim, begin, times), restarts)


def retains(name: str = "retention") -> Spawn:
    return lambda sim: sim.spawn(name, retention(sim))


def rewrites(name: str = "rewriter", times: int = 2) -> Spawn:
    return lambda sim: sim.spawn(name, rewriter(sim, times))


def reads(q: int = 0) -> Spawn:
    return lambda sim: sim.spawn(f"reader{q}", reader(sim, q))


def names(restarts: int = 2, batches: int = 3) -> Spawn:
    return lambda sim: sim.spawn("named", named(sim, batches), restarts, expects=(Fenced,))


def pairs(name: str = "pair") -> Spawn:
    def spawn(sim: Simulation) -> None:
        if "other" not in sim.ghosts:
            topic(sim, "other", "other")
        sim.spawn(name, pair(sim), dies=True)

    return spawn


def sources(restarts: int = 2) -> Spawn:
    def spawn(sim: Simulation) -> None:
        sim.check.append(source_agrees)
        sim.spawn("source", source(sim), restarts)

    return spawn


SCENARIOS: dict[str, Scenario] = {
    **GROWING,
    "append": made(a((0,), (0, 1)), a((1, 0), name="b"), rolls(), cleans(), reads()),
    "clean": made(a((0,), (0,)), cleans(), cleans("cleaner2"), rolls()),
    "merge": made(
        a((0,), (0, 1), (0,), (0,)),
        rolls(),
        rolls("roller2"),
        merges(restarts=1),
        merges(1, "merger2"),
        cleans(),
        reads(),
    ),
    "retain": made(
        a((0,), (0, 1), (0,)), a((0,), name="b"), rolls(), merges(), retains(), retains("retention2"), reads()
    ),
    "read": made(merges(), cleans(), reads(), pages=3),
    "doubt": made(a((0,), (0,)), rolls(times=6), merges(times=10), pages=1),
    "merge2": made(merges(restarts=1), merges(1, "merger2"), retains(), pages=3),
    "rewrite": made(rewrites(), merges(restarts=1), cleans(times=3), reads(), pages=2),
    "unseen": unseen(merges(times=1), cleans(times=3), reads()),
    "fence": made(a((0,), (0,)), cleans(times=3), cleans("cleaner2", times=3)),
    "floor": made(retains(), retains("retention2"), merges(), pages=3),
    "named": made(names(), a((0,), (1,), name="b"), rolls(), cleans()),
    "pipeline": made(sources(), a((0,), name="b"), rolls(), cleans()),
    "pair": made(pairs(), a((0,), (1,)), rolls(), cleans()),
    "all": made(
        a((0,), (0, 1)),
        a((1, 0), name="b"),
        names(1),
        sources(1),
        rolls(),
        cleans(),
        cleans("cleaner2"),
        merges(restarts=1),
        retains(),
        reads(),
        reads(1),
    ),
}
