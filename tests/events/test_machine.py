"""A state machine: cached and uncached writers against plain lists, through calves, prunes, conflicts, lost answers."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tailrace.errors import OutcomeUnknown, VersionConflict
from tailrace.events import AllowStale, AnyCachedValue, AssumeEmpty, Cache, Event, Events, RequireLatest
from tailrace.events.tip import TIP
from tailrace.storage.calls import Store
from tailrace.storage.tables import Key
from tailrace.testing import Faults, ManualClock, SimulatedObjects, SimulatedTable
from tests.events.counting import CODEC, EXACT, STRATEGIES, ZERO, Added, fold

STREAMS = ("Counter-1", "Counter-2")
LOADS = (RequireLatest(), AnyCachedValue(), AllowStale(1.0), AssumeEmpty())
streams = st.sampled_from(STREAMS)
counts = st.integers(1, 4)


class Machine(RuleBasedStateMachine):
    """Two streams, and for each the list of numbers that were added to it, as far as it is known."""

    @initialize(seed=st.integers(0, 1000), lost=st.sampled_from([0.0, 0.1]), max_events=st.sampled_from([1, 3, 7]))
    def begin(self, seed: int, lost: float, max_events: int) -> None:
        faults = Faults(seed, landed=lost, lost=lost, late=lost, throttled=lost, unread=lost, delay=4)
        clock = ManualClock()
        self.table = SimulatedTable(answers=bool(seed % 2), faults=faults)
        self.store = Store(self.table, SimulatedObjects(), clock.monotonic, clock.move)
        self.events = Events(self.store, max_events=max_events)
        self.handles = {name: self.events.stream(name) for name in STREAMS}
        self.caches = Cache(clock=clock.monotonic), Cache(1, clock=clock.monotonic), None
        self.known: dict[str, list[int]] = {name: [] for name in STREAMS}
        self.floor = dict.fromkeys(STREAMS, 0)
        self.next = 0

    def fresh(self, count: int) -> list[int]:
        self.next += count
        return [*range(self.next - count, self.next)]

    def encoded(self, numbers: list[int]) -> list[Event]:
        return [CODEC.encode("", Added(n)) for n in numbers]

    @rule(name=streams, count=counts, own=st.booleans())
    def append_to_the_end(self, name: str, count: int, own: bool) -> None:
        new = self.fresh(count)
        stream = self.handles[name] if own else self.events.stream(name)
        try:
            version = stream.append(self.encoded(new))
        except OutcomeUnknown:
            self._look(name, new)
            return
        self.known[name] += new
        assert version == len(self.known[name])

    @rule(name=streams, count=counts, off=st.integers(-2, 1), own=st.booleans())
    def append_expecting(self, name: str, count: int, off: int, own: bool) -> None:
        new, expected = self.fresh(count), max(0, len(self.known[name]) + off)
        stream = self.handles[name] if own else self.events.stream(name)
        try:
            stream.append(self.encoded(new), expected=expected)
        except OutcomeUnknown:
            self._look(name, new)
            return
        except VersionConflict as conflict:
            at = conflict.version
        else:
            at = expected
            self.known[name] += new
        assert at == len(self.known[name]) - (len(new) if at == expected else 0)

    @rule(
        name=streams, strategy=st.sampled_from(EXACT), cache=st.integers(0, 2), load=st.sampled_from(LOADS),
        count=st.integers(0, 3),
    )  # fmt: skip
    def decide(self, name: str, strategy: str, cache: int, load: Any, count: int) -> None:
        if self.floor[name] and strategy == "unoptimized":
            return  # what was pruned is not in its state
        new, states = self.fresh(count), list[Any]()

        def decide(state: Any) -> list[Any]:
            states.append(state)
            return [Added(n) for n in new]

        decider = self.events.decider(name, CODEC, fold, ZERO, strategy=STRATEGIES[strategy], cache=self.caches[cache])
        try:
            state = decider.transact(decide, load)
        except OutcomeUnknown:
            self._look(name, new)
            return
        self.known[name] += new
        if count and not self.floor[name]:
            assert states[-1] == (sum(self.known[name][: -len(new)]), len(self.known[name]) - len(new))
            assert state == (sum(self.known[name]), len(self.known[name]))

    @rule(first=st.booleans(), counts=st.tuples(counts, counts))
    def append_to_both(self, first: bool, counts: tuple[int, int]) -> None:
        names = STREAMS if first else STREAMS[::-1]
        new = [self.fresh(count) for count in counts]
        changes = [self.handles[name].change(self.encoded(some)) for name, some in zip(names, new, strict=True)]
        self.events.append(*changes)
        for name, some in zip(names, new, strict=True):
            self.known[name] += some

    @rule(name=streams, until=st.integers(-1, 12))
    def prune(self, name: str, until: int) -> None:
        pruned = self.handles[name].prune(until)
        assert self.floor[name] <= pruned.lowest <= max(self.floor[name], until + 1)
        self.floor[name] = pruned.lowest

    @rule(name=streams, start=st.integers(0, 20), stop=st.none() | st.integers(0, 20), backwards=st.booleans())
    def read(self, name: str, start: int, stop: int | None, backwards: bool) -> None:
        found = [(e.index, e.data) for e in self.handles[name].read(start, stop, backwards=backwards)]
        wanted = [*enumerate(self.encoded(self.known[name]))][max(start, self.floor[name]) : stop]
        assert found == [(n, e.data) for n, e in (wanted[::-1] if backwards else wanted)]

    @invariant()
    def all_is_there(self) -> None:
        if hasattr(self, "known"):
            for name in STREAMS:
                found = [e.data for e in self.events.stream(name).read()]
                assert found == [e.data for e in self.encoded(self.known[name])[self.floor[name] :]]

    def _look(self, name: str, new: list[int]) -> None:
        """After an outcome unknown (an answer lost on a state that was too old, and pruned since) the version tells."""
        if self.table.items[Key(name, TIP)]["n"] > len(self.known[name]):
            self.known[name] += new


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
