"""Scenarios of the event store: who writes, prunes and reads streams at the same time, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.errors import OutcomeUnknown, TooManyConflicts, VersionConflict
from tailrace.events import Cache, Event
from tailrace.events.append import AppendSettings, StreamAppend, commit, part
from tailrace.events.cache import AnyCachedValue
from tailrace.events.decider import LATEST, DeciderSteps, transact
from tailrace.events.loading import Loading
from tailrace.events.pruning import prune
from tailrace.events.reading import Backward, Forward, read_tip
from tailrace.events.tip import TIP, TipLimits
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Key
from tailrace.testing import Life, Scenario, SimulatedTable, Simulation, Violation
from tests.events.counting import CODEC, EXACT, STRATEGIES, ZERO, Added, fold

TABLES: dict[str, Callable[[], SimulatedTable]] = {
    "dynamodb": lambda: SimulatedTable(answers=False),
    "sqlite": lambda: SimulatedTable(answers=True),
}
TORN = {"dynamodb": 2, "sqlite": 0}
A, B, ROLL = "Counter-a", "Counter-b", "Counter-roll"


class Ghost:
    """What a stream has held, seen from outside at every step: its events never change, and none comes twice."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.ids: list[str] = []
        self.states = [ZERO]
        self._version = -1

    def check(self, sim: Simulation) -> None:
        if self._version == sim.table.version:
            return
        self._version = sim.table.version
        tip = sim.table.items.get(Key(self.stream, TIP))
        if tip is None:
            return
        held = self._held(sim, tip)
        for index in range(tip.get("floor", 0), tip["n"]):
            if index not in held:
                raise Violation("an event is missing", self.stream, index)
            self._seen(index, *held[index])
        if len(self.ids) != tip["n"]:
            raise Violation("the version is not the number of events", self.stream, tip["n"], len(self.ids))
        for unfold in tip["u"]:
            self._unfold(unfold)

    def _held(self, sim: Simulation, tip: Any) -> dict[int, tuple[str, Any]]:
        held: dict[int, tuple[str, Any]] = {}
        items = [item for key, item in sim.table.items.items() if key.p == self.stream]
        for item in sorted(items, key=lambda item: item["i"]):
            for index, one in enumerate(item["e"], item["n"] - len(item["e"])):
                if index in held:
                    raise Violation("an event is in two items", self.stream, index)
                held[index] = one["id"], one.get("d")
        return held

    def _seen(self, index: int, id: str, data: bytes) -> None:
        if index < len(self.ids):
            if self.ids[index] != id:
                raise Violation("an event has changed", self.stream, index)
        elif id in self.ids:
            raise Violation("an event came twice", self.stream, index, id)
        else:
            self.ids.append(id)
            self.states.append(fold(self.states[-1], Added(**msgspec.json.decode(data))))

    def _unfold(self, unfold: Any) -> None:
        said = msgspec.json.decode(unfold["d"])
        if unfold["i"] >= len(self.states) or (
            said["times"] and (said["total"], said["times"]) != self.states[unfold["i"]]
        ):
            raise Violation("an unfold is not the state of its version", self.stream, unfold)

    def acked(self, ids: list[str], version: int) -> None:
        if self.ids[version - len(ids) : version] != ids:
            raise Violation("acknowledged, and not there", self.stream, ids, version)


def settings_of(life: Life) -> AppendSettings:
    return AppendSettings(TipLimits(max_events=2), "none", lambda: f"{life.rng.getrandbits(64):016x}", lambda: "T")


def added(life: Life, count: int) -> list[Event]:
    return [CODEC.encode(A, Added(life.rng.randint(1, 9), life.name)) for _ in range(count)]


def acknowledge(sim: Simulation, parts: list[StreamAppend], done: Any) -> None:
    for p, appended in zip(parts, done, strict=True):
        ghost = sim.ghosts[p.stream]
        ghost.check(sim)
        if p.batch is not None:
            ghost.acked(p.batch.ids, appended.version)


def writer(sim: Simulation, *streams: str, times: int = 3, expects: bool = False) -> Callable[[Life], Steps[None]]:
    """Appends to the end, or to a version it has read, to one stream or to several at once."""

    def steps(life: Life) -> Steps[None]:
        for n in range(times):
            settings, parts = settings_of(life), []
            for stream in streams:
                expected = (yield from read_tip(stream)).version if expects else None
                parts.append(part(stream, added(life, 1 + n % 2), [], settings, expected=expected))
            try:
                done = yield from commit(parts, settings)
            except (VersionConflict, OutcomeUnknown):
                continue
            acknowledge(sim, parts, done)

    return steps


def counter(sim: Simulation, stream: str, strategies: tuple[str, ...], times: int = 3) -> Callable[[Life], Steps[None]]:
    """Decides with a cache, by one strategy after the other; keeps count of what it was told."""

    def steps(life: Life) -> Steps[None]:
        cache = Cache()
        for n in range(times):
            loading = Loading(stream, CODEC, fold, ZERO, STRATEGIES[strategies[n % len(strategies)]])
            deciding = DeciderSteps(loading, settings_of(life), cache, attempts=3)
            tally = sim.ghosts["tally"]
            tally["doubt"] += 1
            try:
                yield from transact([deciding], lambda states: (None, [[Added(1)]]), AnyCachedValue() if n else LATEST)
                tally["done"] += 1
                tally["doubt"] -= 1
            except TooManyConflicts:
                tally["doubt"] -= 1
            except OutcomeUnknown:
                pass

    return steps


def pruner(sim: Simulation, stream: str, times: int = 2) -> Callable[[Life], Steps[None]]:
    def steps(life: Life) -> Steps[None]:
        for _ in range(times):
            until = life.rng.randint(0, 4)
            pruned = yield from prune(stream, until, settings_of(life).new_id)
            if pruned.lowest > until + 1:
                sim.ghosts.setdefault("pruned", []).append(pruned)

    return steps


def reader(sim: Simulation, stream: str, times: int = 3) -> Callable[[Life], Steps[None]]:
    """Reads all there is, both ways: without a gap, from the floor or below."""

    def steps(life: Life) -> Steps[None]:
        for n in range(times):
            source, events = (Forward(stream), Backward(stream))[n % 2], list[Event]()
            while page := (yield from source.page()):
                events += page
            indexes = sorted(event.index for event in events)
            floor = sim.table.items.get(Key(stream, TIP), {}).get("floor", 0)
            sim.ghosts[stream].check(sim)
            if indexes and (indexes != [*range(indexes[0], indexes[-1] + 1)] or indexes[0] > floor):
                raise Violation("a read has a gap", indexes, floor)
            for event in events:
                if sim.ghosts[stream].ids[event.index] != event.id:
                    raise Violation("a read is wrong", event)

    return steps


def both_or_none(sim: Simulation) -> None:
    """The streams of one transaction have the same writer's events, the same number of times."""
    counts = []
    for stream in A, B:
        items = [item for key, item in sim.table.items.items() if key.p == stream]
        data = [msgspec.json.decode(one["d"]) for item in items for one in item["e"]]
        counts.append(sum(one["who"].startswith("pair") for one in data))
    if counts[0] != counts[1]:
        raise Violation("half a transaction", counts)


def rolled(sim: Simulation) -> None:
    """Every decision that was told done is in the rolling state, once."""
    tally = sim.ghosts["tally"]
    item = sim.table.items.get(Key(ROLL, TIP))
    total = msgspec.json.decode(item["u"][0]["d"])["total"] if item else 0
    if not tally["done"] <= total <= tally["done"] + tally["doubt"]:
        raise Violation("decisions are lost or doubled", total, tally)


def prepared(sim: Simulation) -> None:
    for stream in A, B:
        ghost = sim.ghosts[stream] = Ghost(stream)
        sim.check.append(ghost.check)
    sim.ghosts["tally"] = {"done": 0, "doubt": 0}


def appending(sim: Simulation) -> None:
    prepared(sim)
    sim.spawn("a", writer(sim, A), dies=True)
    sim.spawn("b", writer(sim, A, expects=True), dies=True)
    sim.spawn("reader", reader(sim, A))
    sim.spawn("pruner", pruner(sim, A), restarts=1)


def deciding(sim: Simulation) -> None:
    prepared(sim)
    sim.spawn("a", counter(sim, A, EXACT), dies=True)
    sim.spawn("b", counter(sim, A, EXACT[::-1]), dies=True)
    sim.spawn("c", writer(sim, A, times=1))


def rolling(sim: Simulation) -> None:
    prepared(sim)
    sim.at_end.append(rolled)
    sim.spawn("a", counter(sim, ROLL, ("rolling",)), restarts=1)
    sim.spawn("b", counter(sim, ROLL, ("rolling",)))


def pairs(sim: Simulation) -> None:
    prepared(sim)
    sim.check.append(both_or_none)
    sim.spawn("pair", writer(sim, A, B), dies=True)
    sim.spawn("pair2", writer(sim, B, A, expects=True))
    sim.spawn("a", writer(sim, A, times=2))
    sim.spawn("reader", reader(sim, B))


SCENARIOS: dict[str, Scenario] = {"append": appending, "decide": deciding, "roll": rolling, "pair": pairs}
