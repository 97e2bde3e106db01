"""Random lives of a stream and of somebody who reads it: shards split, roll and are trimmed, iterators expire, requests
are refused, the reader's token is saved and restored at any point.  What was read is compared with what happened."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from tailrace.errors import PositionLost, Throttled, Unavailable
from tailrace.storage.changes import Change, Changes, Read, Shard, Start
from tailrace.storage.tables import Key
from tailrace.streams.patience import Patience
from tailrace.streams.stream import Stream
from tailrace.testing import ManualClock, SimulatedChanges


class Restless:
    """The stream as its reader sees it: at each request something may happen to it."""

    def __init__(self, changes: SimulatedChanges, rng: random.Random) -> None:
        self.changes, self.rng, self.written = changes, rng, 0
        self.keys = [f"k{n}" for n in range(12)]
        self.quiet = False

    def stir(self) -> None:
        """Something happens: mostly a change of an item, sometimes to the shards, seldom to the reader's iterators."""
        if self.quiet:
            return
        what = self.rng.random()
        if what < 0.5:
            self.written += 1
            now = self.changes.clock.wall()
            self.changes.clock.set_wall(now + self.rng.choice([0, 0, -2, 2]))  # the writers' clocks do not agree
            self.changes.capture(Key(self.rng.choice(self.keys)), None, {"n": self.written})
            self.changes.clock.set_wall(now)
        elif what < 0.58:
            open_shards = [shard.id for shard in self.changes.every() if shard.last is None]
            shard = self.rng.choice(open_shards)
            if self.rng.random() < 0.5 and len(open_shards) < 6:
                self.changes.split(shard)
            else:
                self.changes.roll(shard)
        elif what < 0.61:
            self.changes.expire()
        elif what < 0.65:
            self.changes.clock.move(self.rng.choice([0.5, 1, 20, 800]))

    # -- the contract, stirred
    @property
    def stream(self) -> str:
        return self.changes.stream

    def current(self) -> str | None:
        return self.changes.current()

    def time(self) -> float:
        return self.changes.time()

    def latest(self, shard: str) -> tuple[Start, str | None]:
        self.stir()
        return self.changes.latest(shard)

    def shards(self) -> list[Shard]:
        self.stir()
        return self.changes.shards()

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        self.stir()
        return self.changes.iterator(shard, start, sequence)

    def read(self, iterator: str, limit: int = 1000) -> Read:
        self.stir()
        if self.rng.random() < 0.02:
            raise Throttled("refused for now")
        return self.changes.read(iterator, limit)


def life_of_days(seed: int) -> bool:
    """One life over days, in which what is older than a day is trimmed and the reader sometimes sleeps for longer.
    Returns whether it was told that changes are lost: if not, it got each change once."""
    rng = random.Random(seed)
    clock = ManualClock()
    changes = SimulatedChanges(
        shards=rng.randint(1, 3), clock=clock, empty=rng.choice([0, 0.2]), late=rng.choice([0, 2]),
        exact=rng.random() < 0.5, seed=seed,
    )  # fmt: skip
    happened: set[str] = set()
    found: list[str] = []
    awake = clock.wall()
    stream = opened(changes, clock, "trim_horizon", rng)
    try:
        for _ in range(12):
            hours_pass(changes, rng.choice([1, 1, 5, 5, 5, 11, 11, 20, 23, 26, 50]), rng, happened)
            if rng.random() < 0.4:
                stream = opened(changes, clock, stream.token, rng)
            silent = 0
            while silent < 12:
                change = next(stream)
                silent = 0 if change else silent + 1
                if change:
                    found.append(change.sequence)
                else:
                    clock.move(1)
            awake = clock.wall()
            assert sorted(found) == sorted(happened), "a change was lost in silence, or came twice"
    except PositionLost:
        assert clock.wall() - awake > 24 * 3600, "a loss that cannot be"
        return True
    return False


def hours_pass(changes: SimulatedChanges, hours: int, rng: random.Random, happened: set[str]) -> None:
    """Some hours, in which items change, shards split and roll, and what is older than a day goes."""
    for _ in range(hours):
        changes.clock.move(3600)
        if rng.random() < 0.3:
            changes.capture(Key(rng.choice("abcdef")), None, {"n": changes.sequence})
            happened.add(f"{changes.sequence:021d}")
        open_shards = [shard.id for shard in changes.every() if shard.last is None]
        full = [shard for shard in open_shards if changes.within(shard)]
        if full and rng.random() < 0.2:  # an empty shard would be gone before its parent is
            (changes.split if rng.random() < 0.5 and len(open_shards) < 4 else changes.roll)(rng.choice(full))
        changes.trim()
    for _ in range(changes.late):
        changes.shards()  # no child is late for hours


def check(changes: Changes) -> Changes:
    """Only for the type checker: `Restless` keeps the contract."""
    return changes


def schedule(seed: int, through: Callable[[Changes], Changes] = lambda changes: changes, threads: int = 1) -> None:
    """One life: what was read, over all restarts and refusals, is what happened, in an order that respects items and
    lineage.

    `through` gives the reader's way to the stream, its own or one over a network."""
    rng = random.Random(seed)
    clock = ManualClock()
    changes = SimulatedChanges(
        shards=rng.randint(1, 3), clock=clock, empty=rng.choice([0, 0.3]), late=rng.choice([0, 0, 4]),
        exact=rng.random() < 0.5, seed=seed,
    )  # fmt: skip
    service = Restless(changes, rng)
    seen = through(check(service))
    for _ in range(rng.randint(0, 30)):
        service.stir()
    latest = rng.random() < 0.3
    if latest:
        for _ in range(changes.late):
            changes.shards()  # a child that is not shown yet is read whole
        clock.set_wall(max(clock.wall(), changes.newest_time()) + 10)  # so that its second is told from earlier ones
    known = changes.sequence
    service.quiet = latest
    stream = opened(seen, clock, "latest" if latest else "trim_horizon", rng, threads)
    service.quiet = False
    found: list[Change] = []
    for _ in range(rng.randint(20, 120)):
        if rng.random() < 0.15:
            stream = opened(seen, clock, stream.token, rng, threads)
        elif rng.random() < 0.05:
            stream.heartbeat()
        else:
            found += given(stream, rng)
        service.stir()
    service.quiet = True
    for _ in range(60):
        clock.move(2)
        while more := given(stream, rng):
            found += more
        if rng.random() < 0.2:
            stream = opened(seen, clock, stream.token, rng, threads)
    compare(found, changes, known if latest else 0)


def given(stream: Stream[Change], rng: random.Random) -> list[Change]:
    """The next change, or some at once; none if there is none or the service refuses: the reader goes on later."""
    try:
        if rng.random() < 0.3:
            return stream.take(rng.randint(1, 6))
        return [change] if (change := next(stream)) else []
    except Unavailable:
        return []


def opened(
    changes: Changes, clock: ManualClock, position: object, rng: random.Random, threads: int = 1
) -> Stream[Change]:
    patience = rng.choice([0, 1e9])
    return Stream(
        changes, position, table="t", make=lambda change: change, page=rng.choice([1, 2, 1000]), threads=threads,
        clock=clock.monotonic, patience=Patience(patience, clock.monotonic, clock.move, rng),
    )  # type: ignore[arg-type]  # fmt: skip


def compare(found: list[Change], changes: SimulatedChanges, after: int) -> None:
    """Each change once; those of one item in order; none of a shard before all of its parent."""
    happened = {c.sequence: (c, shard) for shard in changes.every() for c in changes.within(shard.id)}
    wanted = {sequence for sequence in happened if int(sequence) > after}
    given = [c.sequence for c in found]
    assert len(given) == len(set(given)), f"given twice: {sorted(s for s in set(given) if given.count(s) > 1)}"
    assert set(given) == wanted, f"missing {sorted(wanted - set(given))}, not wanted {sorted(set(given) - wanted)}"
    by_key = defaultdict(list)
    for change in found:
        by_key[change.key].append(change.sequence)
    for key, sequences in by_key.items():
        assert sequences == sorted(sequences), f"{key} out of order: {sequences}"
    where = {sequence: number for number, sequence in enumerate(given)}
    for shard in changes.every():
        mine = [where[c.sequence] for c in changes.within(shard.id) if c.sequence in where]
        assert all(a < b for a, b in pairwise(mine)), f"{shard.id} was reordered"
        parents = (
            [where[c.sequence] for c in changes.within(shard.parent) if c.sequence in where] if shard.parent else []
        )
        assert not (mine and parents) or max(parents) < min(mine), f"{shard.id} was read before its parent was drained"
