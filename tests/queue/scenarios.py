"""Scenarios of the queue: who acts at the same time.  The names are those of the model, tests/model/queue."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tailrace.log.format.head import head_key
from tailrace.queue import delayed
from tailrace.queue.replay import start
from tailrace.queue.window import Window
from tailrace.storage.tables import Set, Update
from tailrace.testing import Scenario, SimulatedTable, Simulation
from tests.queue.actors import (
    FAILS,
    FLAKY,
    ID,
    KILLS,
    at_end,
    check,
    grows,
    innocent,
    looks,
    moves,
    pauses,
    prepare,
    purges,
    pushes,
    replays,
    sends,
    shared,
    sweeps,
    toggles,
    worker,
)

TABLES: dict[str, Callable[[], SimulatedTable]] = {
    "items": lambda: SimulatedTable(inline_bytes=65536, joins_inline=False, answers=False),
    "joined": lambda: SimulatedTable(inline_bytes=65536, joins_inline=True, answers=True),
}
TORN = {"items": 2, "joined": 0}
SOME = {0: [b"a", b"b", b"a", b"c"], 1: [b"x", b"x"]}


def ready(sim: Simulation, keys: dict[int, list[bytes]]) -> None:
    prepare(sim, keys)
    sim.check.append(check)
    sim.at_end.append(at_end)


def plain(sim: Simulation) -> None:
    ready(sim, SOME)
    sim.spawn("w1", worker(sim), restarts=1)
    sim.spawn("w2", worker(sim), restarts=1)


def exact(sim: Simulation) -> None:
    ready(sim, SOME)
    sim.ghosts["exact"] = True
    sim.spawn("w1", worker(sim, exact=True), restarts=1)
    sim.spawn("w2", worker(sim, exact=True), restarts=1)


def leave(sim: Simulation) -> None:
    ready(sim, SOME)
    sim.spawn("w1", worker(sim, rounds=6))
    sim.spawn("w2", worker(sim), restarts=1)


def hurry(sim: Simulation) -> None:
    """One worker after the other leaves while its handlers are at work."""
    ready(sim, SOME)
    sim.ghosts["exact"] = True
    for n in range(2):
        sim.spawn(f"w{n}", worker(sim, exact=True, rounds=5 + n, hurries=True))
    sim.spawn("w2", worker(sim, exact=True), restarts=1)


def fails(sim: Simulation) -> None:
    ready(sim, {0: [FAILS, b"a", FAILS, b"a"], 1: [FLAKY, FLAKY]})
    sim.spawn("w1", worker(sim), restarts=1)
    sim.spawn("w2", worker(sim))


def kills(sim: Simulation) -> None:
    """No other fault, so that only one message is to blame."""
    ready(sim, {0: [b"a", KILLS, b"b", b"c"]})
    sim.budget = dict.fromkeys(sim.budget, 0)
    sim.at_end.append(innocent)
    sim.spawn("w1", worker(sim))


def delay(sim: Simulation) -> None:
    ready(sim, {0: [b"a"]})
    sim.spawn("w1", worker(sim), restarts=1)
    sim.spawn("w2", worker(sim))
    sim.spawn("p1", pushes(sim, b"later", None, 0.05))
    sim.spawn("p2", pushes(sim, b"once", "id", 0.02), restarts=0)
    sim.spawn("sweeper", sweeps(sim))


def move(sim: Simulation) -> None:
    """Two who take themselves for the clock holder."""
    prepare(sim, {})
    sim.check.append(check)
    for n in range(3):
        message = {"id": str(n), "key": b"k", "value": b"%d" % n, "attributes": 0, "pushed": 0}
        sim.do(delayed.delay(ID, message, n, random.Random(n)))
    sim.spawn("m1", moves(sim), restarts=1)
    sim.spawn("m2", moves(sim))


def dedup(sim: Simulation) -> None:
    ready(sim, {0: [b"a"]})
    sim.spawn("w1", worker(sim))
    sim.spawn("p1", pushes(sim, b"once", "id", None))
    sim.spawn("p2", pushes(sim, b"once", "id", None))


def pause(sim: Simulation) -> None:
    """While messages wait for their handlers, for another attempt, and for a replay."""
    ready(sim, {0: [b"a", FLAKY, FLAKY, b"b", FLAKY], 1: [b"x", b"x", FLAKY]})
    pause_of_two(sim)
    sim.spawn("replayer", replays(sim))


def pause_of_two(sim: Simulation, meanwhile: Any = None) -> None:
    sim.spawn("w1", worker(sim, stalls=True))
    sim.spawn("w2", worker(sim))
    sim.spawn("pauser", pauses(sim, meanwhile))


def pause_at_a_gap(sim: Simulation) -> None:
    """The first messages of each shard were removed before anybody has had them."""
    ready(sim, SOME)
    sim.table.write(Update(head_key(ID), tuple(Set(("floor", str(q)), 1) for q in SOME)))
    pause_of_two(sim)


def play(sim: Simulation) -> None:
    """A pause that lands late changes nothing."""
    ready(sim, {0: [b"a"]})
    sim.spawn("w1", worker(sim))
    sim.spawn("pauser", toggles(sim))


def replay(sim: Simulation) -> None:
    ready(sim, SOME)
    sim.spawn("w1", worker(sim), restarts=1)
    sim.spawn("w2", worker(sim))
    sim.spawn("replayer", replays(sim))


def again(sim: Simulation) -> None:
    """Everything in shard 0 is done already, and is replayed."""
    done_already(sim)
    sim.spawn("w1", worker(sim), restarts=1)
    sim.spawn("w2", worker(sim))


def alone(sim: Simulation) -> None:
    """One worker replays: only its own writes that land late can do harm."""
    done_already(sim)
    sim.spawn("w1", worker(sim))


def done_already(sim: Simulation) -> None:
    ready(sim, {0: [b"a", b"b", b"c", b"d", b"e", b"f"]})
    window = Window(6, upto=6, acked=6, emitted=6)
    changes = (Set("position", 6), Set("queue", window.stored(1)))
    sim.table.write(Update(shared().shard(0), changes))
    sim.ghosts["handled"] |= {(0, n) for n in range(6)}
    sim.ghosts["v"][0], sim.ghosts["until"] = 1, 6
    sim.do(start(ID, {0: (0, 6)}, 7))


def purge(sim: Simulation) -> None:
    """What is open is dropped while handlers are at work on it."""
    ready(sim, SOME)
    sim.ghosts["exact"] = True
    sim.spawn("w1", worker(sim, exact=True), restarts=1)
    sim.spawn("w2", worker(sim, exact=True))
    sim.spawn("purger", purges(sim))


def at_most_once(sim: Simulation) -> None:
    """Messages are done when they are handed out."""
    ready(sim, SOME)
    sim.ghosts["at_most_once"] = True
    sim.spawn("w1", worker(sim, acking=False), restarts=1)
    sim.spawn("w2", worker(sim, acking=False))


def batches(sim: Simulation) -> None:
    ready(sim, {0: [b"a", b"a", FLAKY, b"a"], 1: [b"x", FAILS, b"x"]})
    sim.spawn("w1", worker(sim, batch=3), restarts=1)
    sim.spawn("w2", worker(sim, batch=2))


def grow(sim: Simulation) -> None:
    """More shards while a key's messages are pushed: those of its new shard wait for those of the old one."""
    ready(sim, {0: [b"a", b"b"], 1: [b"x"]})
    sim.spawn("w1", worker(sim), restarts=1)
    sim.spawn("w2", worker(sim))
    sim.spawn("sender", sends(sim, 4), restarts=1)
    sim.spawn("grower", grows(sim), restarts=1)


def pause_and_grow(sim: Simulation) -> None:
    """The shards that a growth adds are paused, too."""
    ready(sim, {})
    pause_of_two(sim, grows(sim))
    sim.spawn("sender", sends(sim, 3), restarts=1)


def all_at_once(sim: Simulation) -> None:
    """A replay while the queue grows, shards move from one consumer to another, and messages are delayed."""
    grow(sim)
    sim.spawn("w3", worker(sim, rounds=8))
    sim.spawn("replayer", replays(sim))
    sim.spawn("p1", pushes(sim, b"later", "id", 0.02), restarts=1)


def look(sim: Simulation) -> None:
    """The stats, while delayed messages are moved into the log and handled."""
    ready(sim, {0: [b"a"]})
    sim.spawn("w1", worker(sim))
    for n in range(3):
        sim.spawn(f"p{n}", pushes(sim, b"later-%d" % n, None, 0.02 * n))
    sim.spawn("looker", looks(sim, 1))


def limit(sim: Simulation) -> None:
    ready(sim, SOME)
    sim.spawn("w1", worker(sim, limit=True), restarts=1)
    sim.spawn("w2", worker(sim, limit=True))


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        plain,
        exact,
        leave,
        hurry,
        fails,
        kills,
        delay,
        move,
        dedup,
        pause,
        pause_at_a_gap,
        play,
        replay,
        again,
        alone,
        purge,
        at_most_once,
        batches,
        limit,
        grow,
        pause_and_grow,
        all_at_once,
        look,
    )
}
