"""The log as a machine with levers: producers that stall anywhere, die, lose answers, while others read and tidy up.

Hypothesis pulls the levers.  After each pull a plain reader must find, from the floor to the end: everything that was
acknowledged at the offset that was answered, nothing twice, nothing that nobody sent, what was there before unchanged,
each producer's records in its order.  What was said not to have happened never does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.coordination import guard
from tailrace.errors import Expected, Fenced, OutcomeUnknown, Throttled, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head, Page
from tailrace.log.read.reader import Reader
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write import named_producer
from tailrace.log.write.append import Appended, commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tailrace.storage.calls import Call, DeleteObjects, Get, GetObject, ListObjects, PutObject, Query, Steps, Write
from tailrace.storage.tables import LAST
from tests.log.driving import TABLES, Driven, chunk, land, new_log, simulated, view

TOPICS = ("t0", "t1")
PARTITIONS = 2
READS = (Get, Query, GetObject, ListObjects)
WRITES = (Write, PutObject, DeleteObjects)
MOST = 6
"""Lives at work at the same time."""

Place = tuple[str, int]
"""A topic and a partition."""

TOPIC = st.sampled_from(["t0", "t0", "t0", "t1"])
PACE = st.sampled_from(["end", "end", "landed", "late", "lost", 0, 1, 2, 3, 5, 8])
"""How far a life gets before others move: to its end, to an append without an answer, or so many calls."""


@dataclass
class Life:
    """Steps at work, what they send, and how it went."""

    name: str
    steps: Driven
    sends: dict[Place, list[bytes]] = field(default_factory=dict)
    finish: Callable[[Any], None] = lambda result: None
    expects: tuple[type[Exception], ...] = ()
    lost: bool = False


class Machine(RuleBasedStateMachine):
    """Two topics, some lives, and the plain model of what the log may hold."""

    @initialize(kept=st.sampled_from(sorted(TABLES)))
    def begin(self, kept: str) -> None:
        self.small = patch.object(heads, "MAX_ENTRY_BYTES", 60)
        self.small.start()
        self.store, self.clock = simulated(kept)
        self.logs: dict[tuple[str, int], TopicLog] = {}
        for id in TOPICS:
            new_log(self.store, id, PARTITIONS)
            self.logs[id, 0], self.logs[id, 1] = view(self.store, id), view(self.store, id)
        self.seen = (-1, -1)
        self.lives: list[Life] = []
        self.late: list[Call] = []
        self.counts: dict[str, int] = {}
        self.deaths: dict[str, int] = {}
        self.readers = {(id, q): Reader(self.logs[id, 0], {q: 0}, from_floor=True) for id in TOPICS for q in range(2)}
        self.due = dict.fromkeys(self.readers, 0)
        self.known: dict[Place, list[bytes | None]] = {place: [] for place in self.readers}
        self.sent: set[tuple[Place, bytes]] = set()
        self.acked: dict[tuple[Place, bytes], int | None] = {}
        self.never: set[tuple[Place, bytes]] = set()

    # --- lives begin
    def start(self, life: Life, pace: str | int) -> None:
        for at, values in life.sends.items():
            self.sent |= {(at, value) for value in values}
        self.lives.append(life)
        calls = pace if isinstance(pace, int) else 1000
        while calls and not life.steps.done and not (_appends(life.steps.call) and pace in ("landed", "late", "lost")):
            life.steps.step()
            calls -= 1
        if life.steps.done or isinstance(pace, int):
            self.settle(life)
        else:
            self.without_answer(life, pace)

    def free(self, name: str) -> bool:
        return len(self.lives) < MOST and all(life.name != name for life in self.lives)

    def record(self, who: str) -> bytes:
        """The next record of a producer; what begins with another word comes from another process."""
        self.counts[who] = self.counts.get(who, 0) + 1
        return b"%s%d.%d" % (who.encode(), self.deaths.get(who, 0), self.counts[who])

    def dies(self, life: Life) -> None:
        self.deaths[life.name[0]] = self.deaths.get(life.name[0], 0) + 1

    @rule(who=st.sampled_from("abc"), topic=TOPIC, shared=st.integers(0, 1),
          partitions=st.lists(st.integers(0, 1), min_size=1, max_size=3), pace=PACE)  # fmt: skip
    def append(self, who: str, topic: str, shared: int, partitions: list[int], pace: str | int) -> None:
        """An anonymous producer sends its next chunk; some producers share what they have seen of a topic."""
        if not self.free(who + topic):
            return
        sends: dict[Place, list[bytes]] = {}
        for q in partitions:
            sends.setdefault((topic, q), []).append(self.record(who))
        records = [(q, value) for (_, q), values in sends.items() for value in values]
        life = Life(who + topic, Driven(self.store, _append(self.logs[topic, shared], records)), sends)
        life.finish = lambda appended: self.acknowledge(life.sends, {topic: appended[0]})
        self.start(life, pace)

    @rule(who=st.sampled_from("de"), partitions=st.tuples(st.integers(0, 1), st.integers(0, 1)), pace=PACE)
    def transaction(self, who: str, partitions: tuple[int, int], pace: str | int) -> None:
        """Records of both topics, together."""
        if not self.free(who):
            return
        value = self.record(who)
        sends = {(id, q): [value] for id, q in zip(TOPICS, partitions, strict=True)}
        logs = [self.logs[id, 1] for id in TOPICS]
        life = Life(who, Driven(self.store, _both(logs, [(q, value) for q in partitions])), sends)
        life.finish = lambda both: self.acknowledge(life.sends, dict(zip(TOPICS, both, strict=True)))
        self.start(life, pace)

    @rule(q=st.integers(0, 1), off=st.sampled_from([0, 0, 0, 1]), pace=PACE)
    def conditional(self, q: int, off: int, pace: str | int) -> None:
        """Append only at the expected offset."""
        if not self.free("x"):
            return
        expected = {q: self.head("t0").next[q] + off}
        value = self.record("x")
        steps = Driven(self.store, _append(self.logs["t0", 0], [(q, value)], expected))
        life = Life("x", steps, {("t0", q): [value]}, expects=(Expected,))

        def finish(appended: list[Appended]) -> None:
            offsets = appended[0].offsets
            assert offsets is None or offsets[q] == expected[q], "appended at another offset than the expected one"
            self.acknowledge(life.sends, {"t0": appended[0]})

        life.finish = finish
        self.start(life, pace)

    @rule(pace=PACE)
    def numbered(self, pace: str | int) -> None:
        """A life of a named producer: takes the name, sends the last batch again, and the next."""
        if len(self.lives) < MOST:
            self.start(Life("n", Driven(self.store, self._named()), expects=(Fenced,)), pace)

    def _named(self) -> Steps[None]:
        log = self.logs["t0", 1]
        item = yield from named_producer.start("n")
        epoch = item["epoch"]
        first = max(1, item["seq"])
        for seq in (first, first + 1):
            at, value = ("t0", seq % 2), b"n.%d" % seq
            self.sent.add((at, value))
            make = lambda at=at, value=value: place(log, chunk((at[1], value)))  # noqa: E731
            appended, item = yield from named_producer.send(log, "n", epoch, item, seq, make)
            self.acknowledge({at: [value]}, {"t0": appended})

    @rule(topic=TOPIC, q=st.integers(0, 1), max_bytes=st.sampled_from([1, 10_000]), pace=PACE)
    def read(self, topic: str, q: int, max_bytes: int, pace: str | int) -> None:
        """A reader that goes on from where it is."""
        at = (topic, q)
        if self.free(f"reader {at}"):
            life = Life(f"reader {at}", Driven(self.store, self.readers[at].poll(max_bytes)))
            life.finish = lambda fetched: self.fetched(at, fetched)
            self.start(life, pace)

    @rule(topic=TOPIC, what=st.sampled_from(["roll", "clean", "merge", "retain"]), n=st.integers(0, 3), pace=PACE)
    def tidy(self, topic: str, what: str, n: int, pace: str | int) -> None:
        """Upkeep of any kind."""
        if self.free(what):
            self.start(Life(what, Driven(self.store, _tidy(view(self.store, topic), what, n))), pace)

    # --- lives go on, or not
    def some(self, i: int) -> Life:
        return self.lives[i % len(self.lives)]

    @precondition(lambda self: self.lives)
    @rule(i=st.integers(0, MOST), calls=st.sampled_from([1, 2, 3, 5, 8, 1000]))
    def step(self, i: int, calls: int) -> None:
        """One of them makes some calls."""
        life = self.some(i)
        for _ in range(calls):
            if not life.steps.done:
                life.steps.step()
        self.settle(life)

    @precondition(lambda self: any(isinstance(life.steps.call, WRITES) for life in self.lives))
    @rule(i=st.integers(0, MOST), how=st.sampled_from(["landed", "late", "lost"]))
    def lose(self, i: int, how: str) -> None:
        """A write has no answer: it has happened, will yet, or never does."""
        able = [life for life in self.lives if isinstance(life.steps.call, WRITES)]
        self.without_answer(able[i % len(able)], how)

    def without_answer(self, life: Life, how: str) -> None:
        sent = life.steps.call
        assert sent is not None
        if how == "landed":
            land(self.store, sent)
        elif how == "late":
            self.late.append(sent)
        life.lost = life.lost or isinstance(sent, Write)
        life.steps.fail(TimedOut("sent, no answer"))
        self.settle(life)

    @precondition(lambda self: any(isinstance(life.steps.call, READS + WRITES) for life in self.lives))
    @rule(i=st.integers(0, MOST))
    def refuse(self, i: int) -> None:
        """A call is refused for now, or a read has no answer."""
        able = [life for life in self.lives if isinstance(life.steps.call, READS + WRITES)]
        life = able[i % len(able)]
        error = TimedOut("no answer") if isinstance(life.steps.call, READS) and i % 2 else Throttled("refused for now")
        life.steps.fail(error)
        self.settle(life)

    @precondition(lambda self: self.lives)
    @rule(i=st.integers(0, MOST), sent=st.booleans())
    def crash(self, i: int, sent: bool) -> None:
        """A life ends anywhere; what it was about to ask for may be on its way."""
        life = self.some(i)
        if sent and isinstance(life.steps.call, WRITES):
            self.late.append(life.steps.call)
        life.steps.steps.close()
        self.lives.remove(life)
        self.dies(life)

    @precondition(lambda self: self.late)
    @rule(i=st.integers(0, 100))
    def arrive(self, i: int) -> None:
        """Something that was sent long ago arrives."""
        land(self.store, self.late.pop(i % len(self.late)))

    def settle(self, life: Life) -> None:
        """If a life has come to its end: believe what it was told."""
        if not life.steps.done:
            return
        self.lives.remove(life)
        error = life.steps.error
        if error is None:
            life.finish(life.steps.result)
        elif isinstance(error, OutcomeUnknown):
            assert life.lost, "OutcomeUnknown, and every answer came"
            assert any(self.head(id).first > 0 or self.forgot(id) for id in TOPICS), (
                "OutcomeUnknown, and no page was removed"
            )
            self.dies(life)
        elif isinstance(error, life.expects):
            self.never |= {(at, value) for at, values in life.sends.items() for value in values}
        else:
            raise error

    # --- what must hold
    def head(self, id: str) -> Head:
        return Head(self.store.table.items[heads.head_key(id)])  # type: ignore[attr-defined]

    def forgot(self, id: str) -> bool:
        items = self.store.table.items  # type: ignore[attr-defined]
        return any(Page.of(items[k]).forgot for k in items if k.p == heads.head_key(id).p and k.i < LAST)

    def acknowledge(self, sends: dict[Place, list[bytes]], appended: dict[str, Appended]) -> None:
        for (id, q), values in sends.items():
            offsets = appended[id].offsets
            for n, value in enumerate(values):
                self.acked[(id, q), value] = None if offsets is None else offsets[q] + n

    def fetched(self, at: Place, runs: list[Any]) -> None:
        self.look()
        for run in runs:
            floor = self.head(at[0]).floor[at[1]]
            assert run.offset == self.due[at] or run.offset <= floor, "a reader skipped records"
            self.due[at] = run.end
            values = run.data.column("value").to_pylist()
            assert values == self.known[at][run.offset : run.end], "a reader was given other records"

    @invariant()
    def look(self) -> None:
        """Read everything, as anyone could; nobody's death or delay may stop this."""
        if hasattr(self, "store"):
            version = (self.store.table.version, self.store.objects.version)  # type: ignore[attr-defined]
            if version != self.seen:
                self.read_all()
            self.seen = version
            self.judge()

    def read_all(self) -> None:
        for id in TOPICS:
            head = self.head(id)
            reader = Reader(view(self.store, id), dict.fromkeys(range(PARTITIONS), 0), from_floor=True)
            before = self.clock.monotonic()
            while fetched := self.store.run(reader.poll()):
                for run in fetched:
                    self.compare((id, run.partition), run.offset, run.data.column("value").to_pylist())
            assert reader.positions == {q: head.next[q] for q in range(PARTITIONS)}, "not all could be read"
            assert self.clock.monotonic() - before < 1, "a reader had to wait"

    def compare(self, at: Place, offset: int, values: list[bytes]) -> None:
        known = self.known[at]
        if len(known) < offset:  # only what is below the floor may never have been seen
            assert offset <= self.head(at[0]).floor[at[1]]
            known += [None] * (offset - len(known))
        for n, value in enumerate(values, offset):
            if n < len(known):
                assert known[n] in (value, None), "what was read once has changed"
            else:
                known.append(value)

    def judge(self) -> None:
        for at, known in self.known.items():
            there = [value for value in known if value is not None]
            assert len(there) == len(set(there)), f"a record twice in {at}"
            assert {(at, value) for value in there} <= self.sent, "a record that nobody sent"
            assert not {(at, value) for value in there} & self.never, "it was said that this did not happen"
            last: dict[bytes, int] = {}
            for who, _, number in (value.partition(b".") for value in there):
                assert last.get(who, 0) < int(number), f"the order of {who!r} in {at}"
                last[who] = int(number)
        for (at, value), offset in self.acked.items():
            known = self.known[at]
            if offset is not None and offset < len(known):
                assert known[offset] in (value, None), f"{value!r} was answered {offset}, where {known[offset]!r} is"
            elif offset is not None:
                assert offset < self.head(at[0]).floor[at[1]], f"{value!r} was acknowledged and is not there"
            else:
                assert value in known or self.head(at[0]).first > 0 or self.forgot(at[0])

    def teardown(self) -> None:
        """Everything arrives, everyone comes to an end, and all is still well."""
        if not hasattr(self, "store"):
            return
        try:
            for life in list(self.lives):
                for _ in range(3000):
                    if not life.steps.done:
                        life.steps.step()
                assert life.steps.done, f"{life.name} does not come to an end"
                self.settle(life)
            while self.late:
                land(self.store, self.late.pop())
            self.look()
        finally:
            self.small.stop()


def _appends(call: Call | None) -> bool:
    return isinstance(call, Write) and any(action.key.p.startswith("$Log-") for action in call.actions)


def _append(log: TopicLog, records: list[tuple[int, bytes]], expected: Any = None) -> Steps[list[Appended]]:
    placed = yield from place(log, chunk(*records), expected)
    return (yield from commit([placed]))


def _both(logs: list[TopicLog], records: list[tuple[int, bytes]]) -> Steps[list[Appended]]:
    placed = []
    for log, record in zip(logs, records, strict=True):
        placed.append((yield from place(log, chunk(record))))
    return (yield from commit(placed))


def _tidy(log: TopicLog, what: str, n: int) -> Steps[None]:
    if what == "clean":
        for _ in range(1 + n % 2):
            yield from clean(log)
        return
    head = yield from log.head()
    if what == "roll" and head.own.packed:
        yield from roll(log, head)
    found = (yield from guard.read_range(heads.head_key(log.id).p, 0, LAST - 1)).items
    pages = [Page.of(item) for item in found]
    if what == "merge" and len(pages) > 1:
        yield from merge(log, pages[n % (len(pages) - 1) :][:2])
    if what == "retain" and pages:
        yield from raise_floor(log, pages[min(n, len(pages) - 1)].end)
        yield from drop_pages(log)


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=QUIET)


class Long(Machine):
    """The same, for longer."""


@pytest.mark.soak
class TestLongMachine(Long.TestCase):
    settings = settings(max_examples=3000, stateful_step_count=100, deadline=None, suppress_health_check=QUIET)
