"""Growing under the simulator: producers of keys, whoever grows the topic, and a group that reads across it.

Every key changes its partition when the topic grows.  A group may handle a record only after all earlier ones of its
key were handled, whichever partitions they are in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from unittest.mock import patch

from tailrace.errors import BadSetting, Fenced, OutcomeUnknown, TimedOut, Unavailable
from tailrace.log import catalog
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import Head
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.groups.prefetch import Inbox
from tailrace.log.read.reader import Reader
from tailrace.log.record import partition_of
from tailrace.log.topic import as_records
from tailrace.log.write import append, attempt
from tailrace.log.write.append import Appended, commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.named_producer import send, start
from tailrace.log.write.placement import Placed, place
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Put, Set, Update
from tailrace.testing import Life, Scenario, Simulation
from tests.log.actors import Factory, cleaner, honest, merger, retention, roller
from tests.log.ghost import PARTITIONS, Ghost, ghost_of, log_of, must
from tests.log.group_actors import with_inbox

GROWN = (3, 5)
"""How many partitions the topic gets, one after the other."""


def _key(*wanted: int) -> bytes:
    counts = (PARTITIONS, *GROWN)
    return next(k for n in range(10_000) if [partition_of(k := b"%d" % n, c) for c in counts] == list(wanted))


KEYS = {"a": _key(0, 1, 2), "b": _key(1, 0, 4), "named": _key(0, 2, 1)}
"""The key of each producer: where it belongs among 2, 3 and 5 partitions."""


@lru_cache(maxsize=4096)
def keyed_chunk(partitions: int, key: bytes, value: bytes) -> Chunk:
    buffer = Buffer(partitions, 1000)
    buffer.add(key, value, 1000)
    return buffer.encode("none")


def told(sim: Simulation, key: bytes, value: bytes, appended: Appended) -> None:
    """A producer is answered: its record is where its key belonged when it was appended."""
    q = partition_of(key, appended.partitions) if appended.partitions else 0
    offset = None if appended.offsets is None else appended.offsets[q]
    ghost_of(sim).ack(sim, q, value, offset)


def keyed(sim: Simulation, key: bytes, batches: int = 3) -> Factory:
    """Appends records of one key, in order."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim, life.rng)
        yield from log.head()
        for n in range(batches):
            value = f"{life.name}.{n}".encode()
            try:
                placed = yield from place(log, keyed_chunk(log.partitions, key, value))
                (appended,) = yield from commit([placed])
            except OutcomeUnknown:
                honest(sim)
                continue
            told(sim, key, value, appended)

    return run


def keyed_named(sim: Simulation, key: bytes, batches: int = 3) -> Factory:
    """A named producer: a new life sends the last batch again, perhaps to a topic that has grown since."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim, life.rng)
        item = yield from start("n")
        epoch = item["epoch"]
        for seq in range(max(1, sim.ghosts.get("sent", 0)), batches + 1):
            value = f"named.{seq}".encode()
            yield from log.head()
            make = lambda value=value: place(log, keyed_chunk(log.partitions, key, value))  # noqa: E731
            appended, item = yield from send(log, "n", epoch, item, seq, make)
            told(sim, key, value, appended)
            sim.ghosts["sent"] = max(sim.ghosts.get("sent", 0), seq)

    return run


def grower(sim: Simulation, partitions: int) -> Factory:
    def run(life: Life) -> Steps[None]:
        yield from catalog.grow(log_of(sim), partitions)

    return run


def follower(sim: Simulation) -> Factory:
    """Reads every partition there is or comes to be, without a group."""

    def run(life: Life) -> Steps[None]:
        ghost, due = ghost_of(sim), dict[int, int]()
        reader = Reader(log_of(sim), {0: 0, 1: 0}, from_floor=True, every=True)
        while True:
            fetched = yield from reader.poll(100)
            for run in fetched:
                gap = run.offset != due.get(run.partition, 0)
                must(not gap or run.offset <= ghost.head(sim).floor[run.partition], "reader skipped records")
                seen = run.data.column(3).to_pylist()
                must(seen == ghost.log[run.partition][run.offset : run.end], "reader sees other records than the log's")
                due[run.partition] = run.end
            if not fetched:
                if sim.finishing and not any(n for n in sim.running() if not n.startswith(("read", "member"))):
                    must(reader.positions == ghost.head(sim).next, "reader stopped early")
                    return
                yield from calls.pause(0)

    return run


# -- a group across it
def member(sim: Simulation) -> Factory:
    """A member of a group, with its three loops side by side."""

    def steps(life: Life) -> Steps[None]:
        yield from with_inbox(sim, life, Group("g", log_of(sim)), _keeps, _handles)

    return steps


def _keeps(sim: Simulation, inbox: Inbox, over: threading.Event) -> Steps[None]:
    while not (sim.finishing and (yield from _drained(sim, inbox.member.group))):
        yield from inbox.member.beat()
        with suppress(TimedOut, Unavailable):
            yield from inbox.keep()
        yield from calls.pause(1)
    over.set()


def _drained(sim: Simulation, group: Group) -> Steps[bool]:
    if any(n for n in sim.running() if not n.startswith(("member", "read"))):
        return False
    shards = yield from groups.shards(group)
    ends = ghost_of(sim).head(sim).next
    return {q: item["position"] for q, item in shards.items()} == ends


def _handles(sim: Simulation, life: Life, inbox: Inbox, over: threading.Event) -> Steps[None]:
    while not over.is_set():
        yield from calls.pause(0)
        inbox.finish()
        fetched = inbox.take()
        for record in as_records("t", fetched) if fetched is not None else ():
            inbox.current = record
            yield from calls.pause(0)
            handle(sim, record.value or b"")
            if inbox.interrupted:
                break


def handle(sim: Simulation, value: bytes) -> None:
    """Records of a key come in order; each perhaps more than once."""
    who, _, number = value.rpartition(b".")
    handled: dict[bytes, set[int]] = sim.ghosts.setdefault("handled", {})
    before = [int(r.rpartition(b".")[2]) for r in ghost_of(sim).where if r.rpartition(b".")[0] == who]
    missed = {n for n in before if n < int(number)} - handled.get(who, set())
    must(not missed, "order of a key broken by growing", value, missed)
    handled.setdefault(who, set()).add(int(number))


def all_handled(sim: Simulation) -> None:
    handled: dict[bytes, set[int]] = sim.ghosts.get("handled", {})
    for record in ghost_of(sim).where:
        who, _, number = record.rpartition(b".")
        must(int(number) in handled.get(who, set()), "a record was never handled", record)


# -- scenarios
def _topic(sim: Simulation) -> None:
    ghost = sim.ghosts["topic"] = Ghost("t0")
    sim.table.write(heads.new_head("t0", PARTITIONS))
    sim.table.write(Put(catalog.topic_key("t"), {"id": "t0", "partitions": PARTITIONS}, (Absent(),)))
    sim.check += [ghost.check, _catalog_agrees]


def _catalog_agrees(sim: Simulation) -> None:
    said = sim.table.items[catalog.topic_key("t")]["partitions"]
    must(said == ghost_of(sim).head(sim).partitions, "the catalog and the head disagree on the partitions")


def _made(cast: Callable[[Simulation], None]) -> Scenario:
    def scenario(sim: Simulation) -> None:
        _topic(sim)
        cast(sim)

    return scenario


def _grow(sim: Simulation) -> None:
    sim.spawn("a", keyed(sim, KEYS["a"]), dies=True)
    sim.spawn("b", keyed(sim, KEYS["b"], 2), dies=True)
    sim.spawn("grower", grower(sim, GROWN[0]), restarts=1, expects=(BadSetting,))
    sim.spawn("reader", follower(sim))


def _grow_twice(sim: Simulation) -> None:
    _grow(sim)
    sim.spawn("grower2", grower_after(sim), restarts=1)
    sim.spawn("roller", roller(sim))
    sim.spawn("cleaner", cleaner(sim))
    sim.spawn("merger", merger(sim))
    sim.spawn("retention", retention(sim))


def grower_after(sim: Simulation) -> Factory:
    """Grows it a second time, once it has grown."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim)
        while (yield from log.head()).partitions < GROWN[0]:
            yield from calls.pause(0)
        yield from catalog.grow(log, GROWN[1])

    return run


def _grow_named(sim: Simulation) -> None:
    sim.spawn("named", keyed_named(sim, KEYS["named"]), 2, expects=(Fenced,))
    sim.spawn("b", keyed(sim, KEYS["b"], 2), dies=True)
    sim.spawn("grower", grower(sim, GROWN[0]), restarts=1, expects=(BadSetting,))
    sim.spawn("grower2", grower_after(sim))
    sim.spawn("cleaner", cleaner(sim))


def _grow_group(sim: Simulation) -> None:
    sim.spawn("a", keyed(sim, KEYS["a"]), dies=True)
    sim.spawn("b", keyed(sim, KEYS["b"]), dies=True)
    sim.spawn("grower", grower(sim, GROWN[0]), restarts=1, expects=(BadSetting,))
    sim.spawn("member1", member(sim), restarts=1)
    sim.spawn("member2", member(sim))
    sim.at_end.append(all_handled)


GROWING: dict[str, Scenario] = {
    "grow": _made(_grow),
    "grow-twice": _made(_grow_twice),
    "grow-named": _made(_grow_named),
    "grow-group": _made(_grow_group),
}


# -- mutants
def no_roll(topic_id: str, head: Head, partitions: int) -> tuple[Action, ...]:
    """GROW that only says so, and leaves the page open."""
    _, update = _grows(topic_id, head, partitions)
    assert isinstance(update, Update)
    kept = [c for c in update.changes if c.path not in ("page", "k", "b", "t", "e", "ids")]
    kept[0] = Set("grown", [*head.item.get("grown", ()), {"page": head.page, "at": head.item["nx"]}])
    return (Update(update.key, tuple(kept), update.when),)


_grows = heads.grow


@contextmanager
def before_page() -> Iterator[None]:
    """A chunk in doubt is spread anew before it is known whether it has landed."""
    found = append._found

    def hasty(placed: Sequence[Placed]) -> Steps[list[Appended] | None]:
        if any(map(attempt.has_grown, placed)):
            return None
        return (yield from found(placed))

    with patch.object(append, "_found", hasty):
        yield
