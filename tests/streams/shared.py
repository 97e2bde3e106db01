"""Actors that share a stream's shards under the simulator, and what must hold after each of their steps."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tailrace.coordination.lease import new_number
from tailrace.coordination.sharing import Policy, UnitWorker
from tailrace.coordination.source import UnitWrite
from tailrace.coordination.units import Units
from tailrace.errors import Throttled, TimedOut, Unavailable
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.changes import Change, Shard
from tailrace.storage.tables import Absent, Append, Item, Key, Put, Update
from tailrace.streams.sharing import ShardSource, place_of
from tailrace.testing import Life, SimulatedChanges, Simulation, Violation
from tests.log.group_actors import together

TTL, CHANGES = 0.1, 14
EFFECT = Key("effect")


class Service(SimulatedChanges):
    """A stream that remembers what was in the shards it has forgotten."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.known: dict[str, tuple[Shard, list[str]]] = {}
        self.quiet = False
        self.unread: set[str] = set()

    def _meet(self, operation: str) -> None:
        if not self.quiet:
            super()._meet(operation)

    def note(self) -> None:
        """Remember what every shard has."""
        for shard in self.every():
            self.known[shard.id] = shard, [change.sequence for change in self.within(shard.id)]

    def forget(self, shard: str) -> None:
        """Trim a closed shard as a whole."""
        del self._kept[shard]

    def lost(self) -> set[str]:
        """What was in shards that were trimmed while nobody had read them to the end."""
        return {sequence for shard in self.unread for sequence in self.known[shard][1]}


def stepped(units: Units, rng: random.Random) -> Units:
    """Units after whose reading others may act, sometimes for long, before the service is asked for its shards: that is
    no step of the simulation."""

    class Stepped(Units):
        def everything(self, era: int) -> Steps[dict[str, Item]]:
            found = yield from super().everything(era)
            yield from calls.pause(rng.choice((0, 0, 7)))
            return found

    return Stepped(units.of, units.group, units.what)


def source(sim: Simulation) -> ShardSource:
    service: Service = sim.ghosts["service"]

    def writes(returned: Any) -> list[UnitWrite]:
        if returned is None:
            return []
        sequence, epoch = returned
        return [UnitWrite(None, Update(EFFECT, (Append("done", [sequence]), Append("by", [epoch]))))]

    page = sim.ghosts["page"]
    made = ShardSource(service, "t", "group", lambda change: change, lambda ask: ask(), page=page, writes=writes)
    if sim.ghosts["stepped"]:
        made.units = stepped(made.units, sim.ghosts["rng"])
    return made


def prepare(sim: Simulation, start: str) -> None:
    """A stream with some changes, and a group that begins at one of its ends."""
    rng = random.Random(sim.seed)
    service = Service(
        shards=rng.randint(1, 3), clock=sim.clock, late=rng.choice([0, 2]), empty=rng.choice([0, 0.2]),
        throttled=rng.choice([0, 0.02]), exact=rng.random() < 0.5, seed=sim.seed,
    )  # fmt: skip
    sim.ghosts |= {"service": service, "handled": [], "rng": rng, "written": False, "page": 2, "stepped": False}
    sim.table.write(Put(EFFECT, {"done": [], "by": []}, (Absent(),)))
    for _ in range(rng.randint(0, 8)):
        stir(sim)
    service.quiet = True
    if start == "latest":
        for _ in range(service.late + 1):
            service.shards()
        sim.clock.set_wall(sim.clock.wall() + 10)
    service.note()
    sim.ghosts["after"] = service.sequence if start == "latest" else 0
    sim.do(source(sim).join(start))
    service.quiet = False


def prepare_rolled(sim: Simulation) -> None:
    """A shard with some changes, closed, and its child with some more; nobody has begun either."""
    prepare(sim, "trim_horizon")
    rng, service = sim.ghosts["rng"], sim.ghosts["service"]
    service.late = 0
    sim.ghosts |= {"page": 16, "stepped": True}
    for _ in range(2):
        shard = service.shard_of("a")
        for _ in range(rng.randint(8, 12)):
            service.capture(Key("a"), None, {"n": service.sequence})
        service.roll(shard)
    service.note()


def trimmer(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Closed shards are trimmed while workers read them."""

    def steps(life: Life) -> Steps[None]:
        for _ in range(20):
            yield from calls.pause(life.rng.randrange(3))
            trim_one_that_is_read(sim)
        sim.ghosts["written"] = sim.ghosts["service"].quiet = True

    return steps


def stir(sim: Simulation) -> None:
    """Something happens: mostly a change of an item, sometimes to the shards."""
    rng, service = sim.ghosts["rng"], sim.ghosts["service"]
    what = rng.random()
    if what < 0.6:
        service.capture(Key(rng.choice("abcdef")), None, {"n": service.sequence})
    elif what < 0.9:
        still = [shard.id for shard in service.every() if shard.last is None]
        (service.split if rng.random() < 0.5 and len(still) < 4 else service.roll)(rng.choice(still))
    else:
        service.expire()
    service.note()


def writer(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Changes come, shards split, and those that were read are trimmed."""

    def steps(life: Life) -> Steps[None]:
        for _ in range(CHANGES):
            stir(sim)
            ended = [item["unit"] for item in units(sim) if item.get("ended")]
            kept = {shard.id for shard in sim.ghosts["service"].every()}
            if ended and ended[0] in kept and sim.ghosts["rng"].random() < 0.3:
                sim.ghosts["service"].forget(ended[0])
            yield from calls.pause(2)
        sim.ghosts["written"] = True
        sim.ghosts["service"].quiet = True

    return steps


def trim_one_that_is_read(sim: Simulation) -> None:
    """Trim a closed shard that a worker holds, and has not read to its end."""
    service: Service = sim.ghosts["service"]
    held = {item["unit"] for item in units(sim) if item["owner"] and not item.get("ended")}
    for shard in service.every():
        if shard.last is not None and shard.id in held and sim.ghosts["rng"].random() < 0.15:
            service.unread.add(shard.id)
            service.forget(shard.id)


def units(sim: Simulation) -> list[Item]:
    return [item for key, item in sim.table.items.items() if key.p.startswith("$Units-") and "unit" in item]


def wanted(sim: Simulation) -> set[str]:
    everything = {sequence for _, changes in sim.ghosts["service"].known.values() for sequence in changes}
    asked_for = {sequence for sequence in everything if int(sequence) > sim.ghosts["after"]}
    return asked_for - sim.ghosts["service"].lost()


def is_over(sim: Simulation, transactional: bool) -> bool:
    if not sim.ghosts["written"]:
        return False
    done = sim.table.items[EFFECT]["done"] if transactional else [one for _, _, one in sim.ghosts["handled"]]
    return set(done) >= wanted(sim) and all(
        item.get("ended")
        or item["unit"] in sim.ghosts["service"].unread
        or place_of(item).after in (None, _last(sim, item))
        for item in units(sim)
    )


def _last(sim: Simulation, item: Item) -> str | None:
    changes = sim.ghosts["service"].known[item["unit"]][1]
    return changes[-1] if changes else None


def consumer(sim: Simulation, transactional: bool) -> Callable[[Life], Steps[None]]:
    """One life: a loop that looks and beats beside one that handles."""

    def steps(life: Life) -> Steps[None]:
        number = new_number(life.rng.getrandbits)

        def handle(change: Change) -> Any:
            epoch = next((t.held.epoch for t in worker.tasks.values() if t.queue and t.queue[0] is change), -1)
            sim.ghosts["handled"].append((life.name, epoch, change.sequence))
            if life.rng.random() < 0.05:
                raise ValueError("fails now and then")
            return (change.sequence, epoch) if transactional else None

        interval, patience = life.rng.choice((0.0, 0.01, 100.0)), life.rng.choice((0, 60))
        policy = Policy(attempts=1000, commit_interval=interval, patience=patience)
        worker = UnitWorker(source(sim), number, handle, policy, ttl=TTL, wall=lambda: 0.0)
        yield from worker.member.enter()
        over = threading.Event()
        yield from together(life, keeps(sim, worker, over, transactional), works(worker, over))
        worker.closing = True
        for task in list(worker.tasks.values()):
            yield from worker.release(task)
        yield from worker.member.leave()

    return steps


def keeps(sim: Simulation, worker: UnitWorker[Change], over: threading.Event, transactional: bool) -> Steps[None]:
    yield from calls.pause(0)
    while not is_over(sim, transactional):
        yield from worker.member.beat()
        with contextlib.suppress(TimedOut, Unavailable, Throttled):
            yield from worker.look()
        yield from calls.pause(1)
    over.set()


def works(worker: UnitWorker[Any], over: threading.Event) -> Steps[None]:
    while not over.is_set():
        yield from calls.pause(0)
        for task in list(worker.tasks.values()):
            if worker.tasks.get(task.unit) is task:
                with contextlib.suppress(TimedOut, Unavailable):
                    yield from worker.turn(task)


# -- what must hold
def in_order(sim: Simulation) -> None:
    """What was done with transactions: each change once, in the order of its key, parents before children; and exactly
    what the units' places say."""
    done: list[str] = sim.table.items[EFFECT]["done"]
    if done == sim.ghosts.get("checked"):
        return
    sim.ghosts["checked"] = list(done)
    if len(set(done)) < len(done):
        raise Violation("a change was handled twice", done)
    if done:
        by_its_owner(sim, done[-1], sim.table.items[EFFECT]["by"][-1])
    check_order(sim, done)


def by_its_owner(sim: Simulation, sequence: str, epoch: int) -> None:
    """The last change was handled under the lease that stands."""
    for item in units(sim):
        if sequence in sim.ghosts["service"].known[item["unit"]][1] and item["epoch"] != epoch:
            raise Violation("a commit by a past owner was accepted", item["unit"], epoch, item["epoch"])


def check_order(sim: Simulation, done: list[str]) -> None:
    known: dict[str, tuple[Shard, list[str]]] = sim.ghosts["service"].known
    lost = sim.ghosts["service"].lost()
    where = {sequence: n for n, sequence in enumerate(done)}
    for shard, changes in known.values():
        mine = [where[sequence] for sequence in changes if sequence in where]
        if any(a > b for a, b in pairwise(mine)):
            raise Violation("a shard was reordered", shard.id, done)
        asked = [sequence for sequence in changes if int(sequence) > sim.ghosts["after"]]
        if mine and len(mine) < len(asked) and sorted(mine) != [where[s] for s in asked[: len(mine)] if s in where]:
            raise Violation("a change was left out", shard.id, done)
        if mine and shard.parent is not None:
            before = [
                s for s in known[shard.parent][1] if int(s) > sim.ghosts["after"] and (s in where or s not in lost)
            ]
            if any(sequence not in where or where[sequence] > min(mine) for sequence in before):
                raise Violation("a child came before its parent was drained", shard.id, done)


def places_are_true(sim: Simulation) -> None:
    """No place is behind a change that was not handled, by anybody."""
    handled = {sequence for _, _, sequence in sim.ghosts["handled"]}
    for item in units(sim):
        after, changes = place_of(item).after, sim.ghosts["service"].known[item["unit"]][1]
        passed = changes if item.get("ended") else changes[: changes.index(after) + 1] if after in changes else []
        lost = sim.ghosts["service"].lost() if item.get("trimmed") else set()
        missing = [s for s in passed if int(s) > sim.ghosts["after"] and s not in handled and s not in lost]
        if missing:
            raise Violation("a place is behind a change that nobody handled", item["unit"], missing)


def committed_once(sim: Simulation) -> None:
    """Of a plain handler: nothing that was committed when a unit was taken is handled again under that lease."""
    per_lease: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, epoch, sequence in sim.ghosts["handled"]:
        per_lease[name, epoch].append(sequence)
    taken = sim.ghosts.setdefault("taken", {})
    for item in units(sim):
        at = taken.setdefault((item["unit"], item["epoch"]), place_of(item).after)
        for (_, epoch), sequences in per_lease.items():
            mine = [s for s in sequences if s in sim.ghosts["service"].known[item["unit"]][1]]
            if epoch == item["epoch"] and at is not None and any(s <= at for s in mine):
                raise Violation("what was committed was handled again", item["unit"], at, mine)


def everything_came(sim: Simulation) -> None:
    done = set(sim.table.items[EFFECT]["done"]) or {sequence for _, _, sequence in sim.ghosts["handled"]}
    if done - sim.ghosts["service"].lost() != wanted(sim):
        raise Violation("changes are missing, or were not wanted", wanted(sim) ^ done)


def nothing_is_left(sim: Simulation) -> None:
    """What was drained and is gone is let go of, and every lease was given back."""
    if left := [item["unit"] for item in units(sim) if item["owner"]]:
        raise Violation("a lease was not given back", left)
