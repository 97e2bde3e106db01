"""No step of a protocol asks for ever: whatever is not answered, each ends within minutes, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tailrace.coordination import guard, lease, position
from tailrace.coordination.lease import Beats, HeldLease
from tailrace.coordination.position import PositionMove
from tailrace.errors import GaveUp, TailraceError, TimedOut
from tailrace.events.event import Event
from tailrace.events.store import Events
from tailrace.log import catalog
from tailrace.log.format import head
from tailrace.log.groups import group
from tailrace.log.groups.group import Group
from tailrace.log.groups.member import PartitionMember
from tailrace.log.integrity.quarantine import quarantine
from tailrace.log.integrity.scrub import scrub_topic
from tailrace.log.read.reader import Reader
from tailrace.log.settings import TopicSettings
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.merge import merge_all
from tailrace.log.upkeep.retention import RetentionRule, drop_pages, raise_floor, retain
from tailrace.log.upkeep.retention_holds import hold
from tailrace.log.upkeep.topic_upkeep import compacting
from tailrace.log.write import named_producer, numbered_append, source_append
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tailrace.storage.calls import PATIENCE, Steps, Store
from tailrace.storage.objects import Bytes, ObjectInfo
from tailrace.storage.tables import LAST, Absent, Action, Add, Item, Key, Put, Slice, Update
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable
from tests.log.actors import chunk

MANY = 4000
"""More calls than any step makes within its patience."""
SECONDS = 5.0
"""How long a client waits for an answer."""


class Asked(AssertionError):
    """A step would ask for ever."""


Hears = Callable[[Sequence[Action] | None], bool]
"""Whether a write (None: a read, or a call to a bucket) is answered."""
SILENCES: dict[str, tuple[Hears, bool]] = {
    "nothing": (lambda actions: False, False),
    "writes": (lambda actions: actions is None, False),
    "writes that happen": (lambda actions: actions is None, True),
    "transactions": (lambda actions: actions is None or len(actions) == 1, False),
    "transactions that happen": (lambda actions: actions is None or len(actions) == 1, True),
    "single writes": (lambda actions: actions is None or len(actions) > 1, False),
}
"""What is not answered, and whether it happens all the same."""


class Silence:
    """Stands between a store and its simulated storage; what is not answered takes as long as a client waits."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.calls = clock, 0
        self.hears: Hears = lambda actions: True
        self.happens = False

    def meet(self, do: Callable[[], Any], actions: Sequence[Action] | None = None) -> Any:
        """Carry a call out, or leave it without an answer."""
        self.calls += 1
        if self.calls > MANY:
            raise Asked("a step asks for ever")
        if self.hears(actions):
            self.clock.move(0.001)
            return do()
        self.clock.move(SECONDS)
        if self.happens:
            with suppress(TailraceError):
                do()
        raise TimedOut("no answer")


class SilentTable(SimulatedTable):
    """A table with a silence before it."""

    silence: Silence

    def get(self, key: Key) -> Item | None:
        return self.silence.meet(lambda: SimulatedTable.get(self, key))

    def query(self, *given: Any, **more: Any) -> Slice:
        return self.silence.meet(lambda: SimulatedTable.query(self, *given, **more))

    def scan(self, after: Key | None = None) -> list[Item]:
        return self.silence.meet(lambda: SimulatedTable.scan(self, after))

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        return self.silence.meet(lambda: SimulatedTable.write(self, *actions), actions)


class SilentObjects(SimulatedObjects):
    """Objects with a silence before them."""

    silence: Silence

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        self.silence.meet(lambda: SimulatedObjects.put(self, name, parts))

    def get(self, name: str) -> memoryview:
        return self.silence.meet(lambda: SimulatedObjects.get(self, name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return self.silence.meet(lambda: SimulatedObjects.get_ranges(self, name, ranges))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.silence.meet(lambda: SimulatedObjects.list(self, prefix))

    def delete(self, names: Iterable[str]) -> None:
        self.silence.meet(lambda: SimulatedObjects.delete(self, names))


class World:
    """A topic with three pages, a group, a named producer and a stream; and a silence that can fall."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.silence = Silence(self.clock)
        table, objects = SilentTable(inline_bytes=0, joins_inline=False, answers=False), SilentObjects(reuse=True)
        table.silence = objects.silence = self.silence
        self.store = Store(table, objects, self.clock.monotonic, self.clock.move)
        described = self.do(catalog.create("t", 2, {}, 0))
        self.log = TopicLog("t", described.id, 0, False)
        for n in range(3):
            self.do(commit([self.do(place(self.log, chunk(((0, b"old.%d" % n),))))]))
            self.do(roll(self.log, self.do(self.log.head())))
        self.placed = self.do(place(self.log, chunk(((0, b"new.0"),))))
        self.group = Group("g", self.log, 2)
        self.do(group.make(self.group, "earliest"))
        self.member = PartitionMember(self.group, 1, name=None)
        self.do(self.member.join("earliest"))
        self.source = self.do(source_append.open_reader("s", 0))
        self.named = self.do(named_producer.start("n"))
        held = self.do(lease.acquire("l", 1, Beats(10), {}))
        assert held is not None
        self.held: HeldLease = held
        self.events = Events(self.store)
        self.stream = self.events.stream("Cart-1")
        self.stream.append([Event("Added", b"1")])
        self.do(guard.attempt(Put(Key("shard"), {"owner": 1, "epoch": 1, "position": 0}, (Absent(),))))

    def do(self, steps: Steps[Any]) -> Any:
        return self.store.run(steps)


STEPS: dict[str, Callable[[World], Any]] = {
    "guard.truth": lambda w: w.do(guard.truth(Key("x"))),
    "guard.read": lambda w: w.do(guard.read(Key("x"))),
    "guard.settle": lambda w: w.do(
        guard.settle(Key("x"), lambda item: None if item else (Put(Key("x"), {}, (Absent(),)),))
    ),
    "lease.acquire": lambda w: w.do(lease.acquire("new", 2, Beats(10), {})),
    "lease.take": lambda w: w.do(lease.acquire("l", 1, Beats(10), {})),
    "lease.release": lambda w: w.do(lease.release(w.held)),
    "lease.beat": lambda w: w.do(lease.beat(w.held, {})),
    "position.commit": lambda w: w.do(position.commit([PositionMove(HeldLease(Key("shard"), 1, 1), 0, 5)])),
    "position.commit_with": lambda w: w.do(
        position.commit_with(PositionMove(HeldLease(Key("shard"), 1, 1), 0, 5), [Put(Key("y"), {}, (Absent(),))])
    ),
    "append.place": lambda w: w.do(place(w.log, chunk(((0, b"new.1"),)))),
    "append.commit": lambda w: w.do(commit([w.placed])),
    "append.commit to a full head": lambda w: w.do(commit([full(w)])),
    "append.roll": lambda w: w.do(roll(w.log, w.do(w.log.head()))),
    "named.start": lambda w: w.do(named_producer.start("n")),
    "named.start anew": lambda w: w.do(named_producer.start("m")),
    "named.send": lambda w: w.do(
        named_producer.send(w.log, "n", 1, w.named, 1, lambda: place(w.log, chunk(((0, b"named.1"),))))
    ),
    "once.append": lambda w: w.do(numbered_append.append_once("o", 1, [w.placed])),
    "intake.open_reader": lambda w: w.do(source_append.open_reader("r", 0)),
    "intake.take_in": lambda w: w.do(
        source_append.take_in([w.placed], source_append.SourceGuard(source_append.reader_key("s"), w.source, 1, {}))
    ),
    "catalog.create": lambda w: w.do(catalog.create("u", 2, {}, 0)),
    "catalog.change_settings": lambda w: w.do(catalog.change_settings("t", {"retention_ms": 5}, 0)),
    "catalog.grow": lambda w: w.do(catalog.grow(w.log, 4)),
    "catalog.delete": lambda w: w.do(catalog.delete("t")),
    "catalog.purge": lambda w: (loud(w, lambda: w.do(catalog.delete("t"))), w.do(catalog.purge())),
    "group.make": lambda w: w.do(group.make(Group("h", w.log, 2), "earliest")),
    "group.reset": lambda w: w.do(group.reset(w.group, "earliest", force=True)),
    "group.delete": lambda w: w.do(group.delete(w.group, force=True)),
    "group.forget": lambda w: w.do(group.forget(w.log.id)),
    "member.join": lambda w: w.do(PartitionMember(w.group, 2, name="two").join("earliest")),
    "member.beat": lambda w: w.do(w.member.beat()),
    "member.balance": lambda w: w.do(w.member.balance()),
    "member.leave": lambda w: w.do(w.member.leave()),
    "holds.hold": lambda w: w.do(hold(w.log.id, ["a"])),
    "quarantine": lambda w: w.do(quarantine(w.log, [], "", "", "", 0)),
    "merging": lambda w: w.do(merge_all(w.log)),
    "retention": lambda w: w.do(retain(w.log, RetentionRule(since=LAST))),
    "retention.raise_floor": lambda w: w.do(raise_floor(w.log, {0: 1})),
    "retention.drop_pages": lambda w: (loud(w, lambda: w.do(raise_floor(w.log, {0: 2}))), w.do(drop_pages(w.log))),
    "cleaning": lambda w: (loud(w, lambda: w.do(clean(w.log))), w.do(clean(w.log))),
    "compaction": lambda w: w.do(compact(w.log, compacting(TopicSettings(compact=True), 10**13, None))),
    "scrub": lambda w: w.do(scrub_topic(w.log)),
    "reader.poll": lambda w: w.do(Reader(w.log, {0: 0}).poll(1000)),
    "events.append": lambda w: w.stream.append([Event("Added", b"2")]),
    "events.append to several": lambda w: w.events.append(
        w.stream.change([Event("Added", b"2")]), w.events.stream("Cart-2").change([Event("Added", b"1")])
    ),
    "events.prune": lambda w: w.stream.prune(0),
    "events.read": lambda w: list(w.stream.read()),
}


def loud(w: World, do: Callable[[], object]) -> None:
    """Do something as if there were no silence."""
    hears, w.silence.hears = w.silence.hears, lambda actions: True
    do()
    w.silence.hears = hears


def full(w: World) -> Any:
    """A chunk to be appended to a head that is full."""
    loud(w, lambda: w.do(guard.attempt(Update(head.head_key(w.log.id), (Add("b", head.MAX_ENTRY_BYTES),)))))
    return w.placed


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize("step", STEPS)
def test_no_step_asks_for_ever(step: str, silence: str) -> None:
    world = World()
    world.silence.calls = 0
    world.silence.hears, world.silence.happens = SILENCES[silence]
    began = world.clock.monotonic()
    with suppress(TailraceError):
        STEPS[step](world)
    assert world.clock.monotonic() - began < 5 * PATIENCE


@pytest.mark.parametrize("silence", ["writes", "writes that happen"])
def test_who_gives_up_says_what_was_not_answered(silence: str) -> None:
    world = World()
    world.silence.hears, world.silence.happens = SILENCES[silence]
    with pytest.raises(GaveUp, match=r"writes of item x/0 had no answer for \d+ s; they may have happened"):
        STEPS["guard.truth"](world)


def test_an_answer_in_between_begins_the_patience_anew() -> None:
    world = World()
    before = world.clock.monotonic()

    def now_and_then(actions: Sequence[Action] | None) -> bool:
        return actions is None or world.silence.calls % 10 == 0

    world.silence.hears = now_and_then
    for _ in range(20):
        assert world.do(guard.truth(Key("x"))) is None
    assert world.clock.monotonic() - before > 3 * PATIENCE
