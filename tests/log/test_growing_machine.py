"""The log as a machine with levers, one of which gives a topic more partitions, and a group that reads across that.

Beside what holds of any log: a record with a key is in one partition only, and the records of a key are in order from
one growth to the next; and a group handles none before all earlier ones of its key.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from tailrace.coordination.rules import without
from tailrace.errors import BadSetting
from tailrace.log import catalog
from tailrace.log.groups import group as groups
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.record import partition_of
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import Appended, commit
from tailrace.log.write.placement import place
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Put
from tests.log.driving import Driven, view
from tests.log.growing import KEYS as MOVING
from tests.log.growing import keyed_chunk
from tests.log.test_machine import PACE, QUIET, TOPIC, TOPICS, Life, Machine

MOST_PARTITIONS = 7
KEYS = {"k": MOVING["a"], "l": MOVING["b"]}


class Growing(Machine):
    """Two topics that grow."""

    @property
    def handled(self) -> dict[bytes, set[int]]:
        """The numbers that the group has handled of each producer."""
        return self.__dict__.setdefault("_handled", defaultdict(set))  # type: ignore[no-any-return]

    @property
    def committed(self) -> dict[int, int]:
        """How far the group has come."""
        return self.__dict__.setdefault("_committed", defaultdict(int))  # type: ignore[no-any-return]

    @rule(topic=TOPIC, more=st.integers(1, 3), pace=PACE)
    def grow(self, topic: str, more: int, pace: str | int) -> None:
        """Somebody gives a topic more partitions, and may not be told."""
        if not self.free(f"grower {topic}"):
            return
        log, now = view(self.store, topic), self.head(topic).partitions
        if catalog.topic_key(log.name) not in self.store.table.items:  # type: ignore[attr-defined]
            self.store.table.write(Put(catalog.topic_key(log.name), {"id": topic, "partitions": now}, (Absent(),)))
        steps = catalog.grow(log, min(MOST_PARTITIONS, now + more))
        self.start(Life(f"grower {topic}", Driven(self.store, steps), expects=(BadSetting,)), pace)

    @rule(who=st.sampled_from(sorted(KEYS)), shared=st.integers(0, 1), pace=PACE)
    def keyed(self, who: str, shared: int, pace: str | int) -> None:
        """A producer sends the next record of its key."""
        if not self.free(f"{who}t0"):
            return
        value = self.record(who)
        sends = {("t0", q): [value] for q in range(MOST_PARTITIONS)}
        life = Life(f"{who}t0", Driven(self.store, _keyed(self.logs["t0", shared], KEYS[who], value)), sends)

        def finish(appended: list[Appended]) -> None:
            (one,) = appended
            q = partition_of(KEYS[who], one.partitions)
            self.acked[("t0", q), value] = None if one.offsets is None else one.offsets[q]

        life.finish = finish
        self.start(life, pace)

    @rule(half=st.integers(0, 1), max_bytes=st.sampled_from([1, 10_000]), pace=PACE)
    def drain(self, half: int, max_bytes: int, pace: str | int) -> None:
        """A member of a group reads its half of the partitions on, and commits when it has handled what it got."""
        if not self.free(f"member {half}"):
            return
        head = self.head("t0")
        mine = {q: self.committed[q] for q in range(head.partitions) if q % 2 == half}
        reader = Reader(view(self.store), mine, from_floor=True, passed=groups.passed(head, self.committed))

        def finish(fetched: list[Fetched]) -> None:
            self.look()
            for run in fetched:
                for value in run.data.column("value").to_pylist():
                    self.handle(value)
            self.committed.update(reader.positions)

        life = Life(f"member {half}", Driven(self.store, reader.poll(max_bytes)))
        life.finish = finish
        self.start(life, pace)

    def handle(self, value: bytes) -> None:
        who, _, number = value.partition(b".")
        if who[:1].decode() in KEYS:
            due = {n for n, _ in self.places(who) if n < int(number)}
            assert due <= self.handled[who], f"{value!r} before {due - self.handled[who]}"
            self.handled[who].add(int(number))

    def places(self, who: bytes) -> list[tuple[int, tuple[int, int, int]]]:
        """The records of a key above the floor: (number, (growths before it, offset, partition))."""
        head, out = self.head("t0"), []
        for (id, q), known in self.known.items():
            for offset, value in enumerate(known):
                if id == "t0" and value is not None and value.startswith(who + b".") and offset >= head.floor[q]:
                    generation = sum(offset >= growth.at[q] for growth in head.grown)
                    out.append((int(value.partition(b".")[2]), (generation, offset, q)))
        return sorted(out)

    # --- what must hold
    def read_all(self) -> None:
        for id in TOPICS:
            head = self.head(id)
            for q in range(head.partitions):
                self.known.setdefault((id, q), [])
            reader = Reader(view(self.store, id), {0: 0}, from_floor=True, every=True)
            while fetched := self.store.run(reader.poll()):
                for run in fetched:
                    self.compare((id, run.partition), run.offset, run.data.column("value").to_pylist())
            assert reader.positions == head.next, "not all could be read"

    def judge(self) -> None:
        super().judge()
        for who in {value.partition(b".")[0] for known in self.known.values() for value in known if value is not None}:
            if who[:1].decode() in KEYS:
                found = self.places(who)
                assert len({n for n, _ in found}) == len(found), f"a record of {who!r} in two partitions"
                where = [(generation, offset) for _, (generation, offset, _) in found]
                assert where == sorted(where), f"the order of {who!r} across partitions"
                homes = {(generation, q) for _, (generation, _, q) in found}
                assert len(homes) == len({g for g, _ in homes}), f"{who!r} in two partitions at a time"


def _keyed(log: TopicLog, key: bytes, value: bytes) -> Steps[list[Appended]]:
    if log.seen is None:
        yield from log.head()
    placed = yield from place(log, keyed_chunk(log.partitions, key, value))
    return (yield from commit([placed]))


class Across(Growing):
    """Only who matters to a group: producers of keys, its members, whoever grows the topic or tidies up."""

    append = transaction = conditional = numbered = read = None  # type: ignore[assignment]


TestGrowing = Growing.TestCase
TestGrowing.settings = settings(max_examples=50, stateful_step_count=50, deadline=None, suppress_health_check=QUIET)
TestAcross = Across.TestCase
TestAcross.settings = settings(max_examples=120, stateful_step_count=60, deadline=None, suppress_health_check=QUIET)


class Long(Growing):
    """The same, for longer."""


@pytest.mark.soak
class TestLongGrowing(Long.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=100, deadline=None, suppress_health_check=QUIET)


@pytest.mark.parametrize("rule", ["grow.early", "grow.partitions"])
def test_a_rule_taken_away_is_missed(rule: str) -> None:
    tries = settings(
        max_examples=3000,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=QUIET,
        phases=[Phase.generate],
        database=None,
    )
    with without(rule), pytest.raises(AssertionError):
        run_state_machine_as_test(Across, settings=tries)
