"""Deciders: strategies, conflicts, the cache, decisions over several streams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadEvent, BadInput, BadName, BadSetting, TooManyConflicts, VersionConflict
from tailrace.events import AllowStale, AnyCachedValue, AssumeEmpty, Cache, Decider, Event, Events
from tailrace.events.tip import Tip
from tailrace.storage.calls import Store
from tailrace.testing import ManualClock, SimulatedTable
from tests.events.counting import CODEC, EXACT, STRATEGIES, ZERO, Added, Counted, fold

NAME = "Counter-1"


def counter(store: Store, strategy: str = "unoptimized", name: str = NAME, **more: Any) -> Decider[Any, Any]:
    settings = {n: more.pop(n) for n in ("max_events",) if n in more}
    return Events(store, **settings).decider(name, CODEC, fold, ZERO, strategy=STRATEGIES[strategy], **more)


def calls_of(store: Store) -> dict[str, int]:
    assert isinstance(store.table, SimulatedTable)
    return dict(store.table.calls)


def spent(store: Store, before: dict[str, int]) -> dict[str, int]:
    return {name: n - before.get(name, 0) for name, n in calls_of(store).items() if n > before.get(name, 0)}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("strategy", [*EXACT, "rolling"])
def test_every_strategy_counts(store: Store, strategy: str, cached: bool) -> None:
    cache = Cache() if cached else None
    for n in range(1, 6):
        one = counter(store, strategy, cache=cache, max_events=2)
        assert one.transact(lambda state: [Added(1), Added(10)]) == (11 * n, 2 * n)
        assert one.state() == counter(store, strategy).state() == (11 * n, 2 * n)
    kept = [*Events(store).stream(NAME).read()]
    assert len(kept) == (0 if strategy == "rolling" else 10)


def test_latest_known_event_reads_the_newest_alone(memory: Store) -> None:
    one = counter(memory, "latest", max_events=1)
    for n in range(4):
        one.transact(lambda state, n=n: [Added(n)])
    before = calls_of(memory)
    assert one.state() == (3, 1)
    assert spent(memory, before) == {"get": 1}


def test_strategies_take_turns(store: Store) -> None:
    for n in range(12):
        one = counter(store, EXACT[n % 4], max_events=2)
        assert one.transact(lambda state: [Added(1)]) == (n + 1, n + 1)


@pytest.mark.parametrize("length", [1, 50, 2000])
def test_a_snapshot_is_one_item_whatever_the_length(memory: Store, length: int) -> None:
    one = counter(memory, "snapshot", max_events=10)
    for _ in range(0, length, 50):
        one.transact(lambda state: [Added(1)] * min(50, length))
    before = calls_of(memory)
    assert counter(memory, "snapshot").state()[1] == length
    assert spent(memory, before) == {"get": 1}


def test_a_cached_reload_reads_only_what_is_new(memory: Store) -> None:
    seen: list[Any] = []

    def watched(state: Any, event: Any) -> Any:
        seen.append(event)
        return fold(state, event)

    events, cache = Events(memory, max_events=2), Cache()
    one = events.decider(NAME, CODEC, watched, ZERO, cache=cache)
    one.transact(lambda state: [Added(n) for n in range(5)])
    seen.clear()
    before = calls_of(memory)
    one.state()
    assert (seen, spent(memory, before)) == ([], {"get": 1})
    other = counter(memory, max_events=2)
    other.transact(lambda state: [Added(7)])
    before = calls_of(memory)
    assert one.state() == (17, 6)
    assert (seen, spent(memory, before)) == ([Added(7)], {"get": 1})
    seen.clear()
    for n in range(6):
        other.transact(lambda state, n=n: [Added(n)])
    assert one.state() == (17 + 15, 12)
    assert seen == [Added(n) for n in range(6)]


@pytest.mark.parametrize("strategy", [*EXACT, "rolling"])
def test_a_stale_cache_meets_a_conflict_and_decides_again(store: Store, strategy: str) -> None:
    cache, decided = Cache(), []
    mine, other = counter(store, strategy, cache=cache), counter(store, strategy)
    mine.transact(lambda state: [Added(1)])
    other.transact(lambda state: [Added(10)])

    def decide(state: Any) -> list[Any]:
        decided.append(state)
        return [Added(100)]

    assert mine.transact(decide, AnyCachedValue()) == (111, 3)
    assert decided == [(1, 1), (11, 2)]
    assert other.state() == (111, 3)


def test_how_old_a_state_may_be(memory: Store) -> None:
    clock = ManualClock()
    cache = Cache(clock=clock.monotonic)
    mine, other = counter(memory, cache=cache), counter(memory)
    mine.transact(lambda state: [Added(1)])
    other.transact(lambda state: [Added(1)])
    before = calls_of(memory)
    assert mine.state(AnyCachedValue()) == mine.state(AllowStale(5)) == (1, 1)
    assert spent(memory, before) == {}
    assert mine.state(AssumeEmpty()) == ZERO
    assert spent(memory, before) == {}
    clock.move(5.1)
    assert mine.state(AllowStale(5)) == (2, 2)
    assert spent(memory, before) == {"get": 1}
    other.transact(lambda state: [Added(1)])
    assert mine.state(AllowStale(5)) == (2, 2)
    assert mine.state() == (3, 3)


def test_assume_empty_saves_the_read(memory: Store) -> None:
    one = counter(memory)
    before = calls_of(memory)
    one.transact(lambda state: [Added(1)], AssumeEmpty())
    assert spent(memory, before) == {"write": 1}
    assert one.transact(lambda state: [Added(1)], AssumeEmpty()) == (2, 2)


def test_three_attempts_and_then_an_error(store: Store) -> None:
    one, tries = counter(store, cache=Cache(), attempts=3), []

    def decide(state: Any) -> list[Any]:
        tries.append(state)
        Events(store).stream(NAME).append([CODEC.encode(NAME, Added(1))])
        return [Added(100)]

    with pytest.raises(TooManyConflicts, match="3 attempts to decide on 'Counter-1'") as caught:
        one.transact(decide)
    assert isinstance(caught.value.__cause__, VersionConflict)
    assert len(tries) == 3
    assert one.state() == (3, 3)
    with pytest.raises(BadSetting):
        counter(store, attempts=0)


def test_a_decision_for_nothing_writes_nothing(memory: Store) -> None:
    before = calls_of(memory)
    assert counter(memory).transact(lambda state: []) == ZERO
    assert "write" not in spent(memory, before)


def test_an_answer_comes_with_the_events(memory: Store) -> None:
    assert counter(memory).answer(lambda state: ("yes", [Added(5)])) == "yes"
    assert counter(memory).answer(lambda state: (state[0], [])) == 5


def test_a_transfer_over_two_streams(store: Store) -> None:
    events = Events(store)
    a, b, limit = (counter(store, name=f"Account-{name}") for name in ("a", "b", "limit"))
    a.transact(lambda state: [Added(100)])
    tries = []

    def decide(left: Any, right: Any, most: Any) -> list[list[Any]]:
        tries.append((left, right, most))
        if len(tries) == 1:
            limit.transact(lambda state: [Added(1)])  # a stream that is only read moves: decide again
        return [[Added(-30)], [Added(30)], []]

    states = events.transact(a, b, limit, decide=decide)
    assert [state[0] for state in states] == [70, 30, 1]
    assert len(tries) == 2
    assert (a.state()[0], b.state()[0], limit.state()) == (70, 30, (1, 1))


@pytest.mark.parametrize("moves", ["by an event", "by an unfold"])
def test_a_stream_that_is_only_read_is_as_it_was_when_the_others_are_written(store: Store, moves: str) -> None:
    """Its state may be that of an unfold, which another write replaces without a new version."""
    a, limit = counter(store, name="Account-a"), counter(store, "snapshot", name="Account-limit")
    limit.transact(lambda state: [Added(1)])
    seen = []

    def decide(left: Any, most: Any) -> list[list[Any]]:
        seen.append(most)
        if len(seen) == 1 and moves == "by an event":
            limit.transact(lambda state: [Added(4)])
        elif len(seen) == 1:
            replaced = CODEC.encode("Account-limit", Counted(5, 2))
            Events(store).stream("Account-limit").append([], unfolds=[replaced], expected=1)
        return [[Added(most[0])], []]

    Events(store).transact(a, limit, decide=decide)
    assert seen == [(1, 1), (5, 2)]
    assert a.state() == (5, 1)


def test_an_older_state_that_comes_late_does_not_replace_a_later_one() -> None:
    clock = ManualClock()
    cache = Cache(clock=clock.monotonic)
    cache.put("key", Tip(NAME, version=5), "later")
    clock.move(10)
    cache.put("key", Tip(NAME, version=4), "older")
    found = cache.get("key", AllowStale(5))
    assert found is not None
    assert (found.tip.version, found.state) == (5, "later")
    assert not cache.fresh(found, AllowStale(5)), "nor does it make that one fresh"
    cache.put("key", Tip(NAME, version=5), "seen again")
    assert (found := cache.get("key", AllowStale(5))) is not None
    assert cache.fresh(found, AllowStale(5))


def test_a_cache_has_a_size(memory: Store) -> None:
    cache = Cache(2)
    for n in range(5):
        counter(memory, name=f"Counter-{n}", cache=cache).transact(lambda state: [Added(1)])
    assert len(cache) == 2
    with pytest.raises(BadSetting):
        Cache(0)


def test_a_category_is_projected(store: Store) -> None:
    for n in range(3):
        counter(store, name=f"Counter-{n}").transact(lambda state, n=n: [Added(n)])
    names = [f"Counter-{n}" for n in range(3)]
    assert Events(store).project(names, CODEC, fold, ZERO) == {"0": (0, 1), "1": (1, 1), "2": (2, 1)}


def test_a_category_is_projected_without_a_list_of_its_streams(store: Store) -> None:
    for name in ("Counter-1", "Counter-2_a", "Other-1"):
        counter(store, name=name).transact(lambda state: [Added(5)])
    assert Events(store).project("Counter", CODEC, fold, ZERO) == {"1": (5, 1), "2_a": (5, 1)}
    assert Events(store).project("Nobody", CODEC, fold, ZERO) == {}
    with pytest.raises(BadInput, match="'Other-1' is of another category than 'Counter': project one"):
        Events(store).project(["Counter-1", "Other-1"], CODEC, fold, ZERO)
    with pytest.raises(BadName, match="not 'Counter-1'"):
        Events(store).project("Counter-1", CODEC, fold, ZERO)


@pytest.mark.parametrize(
    ("decide", "said"),
    [
        (lambda state: Added(1), "gave a Added; give a list of events: \\[event\\], \\[\\] for none"),
        (lambda state: None, "gave None; give a list of events, \\[\\] where nothing happens"),
        (lambda state: "Added", "gave a str; give a list of events"),
        (lambda state: ["Added"], "the codec of stream 'Counter-1' has no type 'str'; it has"),
        (lambda state: [3], "has no type 'int'"),
    ],
)
def test_a_decision_of_a_wrong_kind_is_told_as_such(memory: Store, decide: Any, said: str) -> None:
    with pytest.raises(BadEvent, match=said):
        counter(memory).transact(decide)
    with pytest.raises(BadEvent, match=said):
        counter(memory).answer(lambda state: ("yes", decide(state)))
    assert counter(memory).state() == ZERO


def test_answers_and_decisions_over_several_streams_of_a_wrong_shape(memory: Store) -> None:
    with pytest.raises(BadEvent, match="gives \\(answer, \\[event, …\\]\\), not a list"):
        counter(memory).answer(lambda state: [Added(1)])  # type: ignore[arg-type, return-value]
    both = counter(memory), counter(memory, name="Counter-2")
    for wrong in ([[Added(1)]], Added(1), None):
        with pytest.raises(BadEvent, match="a decision over 2 streams gives a list of events for each"):
            Events(memory).transact(*both, decide=lambda *states, wrong=wrong: wrong)


def test_an_unfold_that_is_no_origin_is_passed_over(memory: Store) -> None:
    stream = Events(memory).stream(NAME)
    stream.append([CODEC.encode(NAME, Added(1))], unfolds=[Event("Other", b"{}"), CODEC.encode(NAME, Counted(8, 8))])
    assert counter(memory, "snapshot").state() == (8, 8)
    assert counter(memory, "unoptimized").state() == (1, 1)


def test_eight_threads_all_get_their_decisions_written(tmp_path: Path) -> None:
    """Each meets the others again and again, with pauses in between, so that all get a turn."""
    with tailrace.open(tmp_path) as home:
        one = home.events().decider(NAME, CODEC, fold, ZERO)
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(one.transact, lambda state: [Added(1)]) for _ in range(200)]:
                done.result()
        assert one.state() == (200, 200)


def test_pauses_between_attempts_grow_with_jitter_and_not_for_ever(memory: Store) -> None:
    paused: list[float] = []
    clock = ManualClock()
    store = Store(memory.table, memory.objects, clock.monotonic, paused.append)

    def decide(state: Any) -> list[Any]:
        Events(memory).stream(NAME).append([CODEC.encode(NAME, Added(1))])
        return [Added(100)]

    with pytest.raises(TooManyConflicts, match="20 attempts"):
        counter(store).transact(decide)
    assert 20 <= len(paused) <= 40, "an append pauses, too, before it says that it has lost"
    assert max(paused[:5]) < 0.1
    assert 0.4 < max(paused) < 1.3, "long enough for a busy disk, and not for ever"
    assert len(set(paused)) > 15
