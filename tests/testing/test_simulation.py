"""The simulation: every fault does what it says, actors die and live again, and everything comes to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tailrace.errors import Conflict, ObjectMissing, StorageError, Throttled, TimedOut
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Equals, Include, Key, NotIn, Put, Update
from tailrace.testing import Life, SimulatedTable, Simulation, Violation, one_schedule

COUNT, OTHER = Key("count"), Key("count", 1)
ONE_MORE = Update(COUNT, (Add("n", 1),))


def counter(sim: Simulation) -> None:
    sim.do(calls.write(Put(COUNT, {"n": 0}, (Absent(),)), Put(OTHER, {"n": 0}, (Absent(),))))


def once(call: Callable[[], Steps[object]]) -> Callable[[Life], Steps[object]]:
    """An actor that makes one call, and answers its answer or its error; then it looks at the counter."""

    def steps(life: Life) -> Steps[object]:
        try:
            answer = yield from call()
        except (StorageError, Conflict, ObjectMissing) as error:
            answer = error
        yield from calls.get(COUNT)
        return answer

    return steps


def simulation(call: Callable[[], Steps[object]], **settings: object) -> Simulation:
    sim = Simulation(**settings)  # type: ignore[arg-type]
    counter(sim)
    sim.budget = dict.fromkeys(sim.budget, 9)
    sim.spawn("a", once(call), restarts=1)
    return sim


def add_one() -> Steps[object]:
    return (yield from calls.write(ONE_MORE))


def add_both() -> Steps[object]:
    return (yield from calls.write(ONE_MORE, Update(OTHER, (Add("n", 1),))))


class TestFaultsOfAWrite:
    @pytest.mark.parametrize(
        ("move", "error", "now", "in_the_end"),
        [
            ("landed", TimedOut, 1, 1),
            ("in flight", TimedOut, 0, 1),
            ("lost", TimedOut, 0, 0),
            ("refused", Throttled, 0, 0),
        ],
    )
    def test_what_the_actor_hears_and_what_happens(self, move, error, now, in_the_end):
        sim = simulation(add_one)
        sim.apply((move, "a"))
        assert sim.table.items[COUNT]["n"] == now
        sim.finish()
        assert isinstance(sim.results["a"], error)
        assert sim.table.items[COUNT]["n"] == in_the_end

    def test_what_is_in_flight_lands_at_any_later_step(self):
        sim = simulation(add_one)
        sim.apply(("in flight", "a"))
        sim.apply(("step", "a"))
        assert sim.history[-1][2]["n"] == 0
        (late,) = [move for move in sim.moves() if move[0] == "lands"]
        sim.apply(late)
        assert sim.table.items[COUNT]["n"] == 1

    def test_a_late_write_is_what_was_sent(self):
        values = [1]
        sim = simulation(lambda: calls.write(Put(Key("x"), {"v": values}, (Absent(),))))
        sim.apply(("in flight", "a"))
        values.append(2)
        sim.finish()
        assert sim.table.items[Key("x")]["v"] == [1]

    def test_a_late_write_whose_condition_no_longer_holds_does_nothing(self):
        sim = simulation(lambda: calls.write(Put(Key("x"), {"v": 1}, (Absent(),))))
        sim.apply(("in flight", "a"))
        sim.do(calls.write(Put(Key("x"), {"v": 2}, (Absent(),))))
        sim.finish()
        assert sim.table.items[Key("x")]["v"] == 2

    def test_a_conflict_is_thrown_in(self):
        sim = simulation(lambda: calls.write(Put(COUNT, {}, (Absent(),))))
        sim.finish()
        assert isinstance(sim.results["a"], Conflict)
        assert sim.results["a"].item["n"] == 0

    def test_a_write_that_arrives_twice_is_answered_the_second_time(self):
        sim = simulation(lambda: calls.write(Update(COUNT, (Add("n", 1),), (Equals("n", 0),))))
        assert ("twice", "a") in sim.moves()
        sim.apply(("twice", "a"))
        sim.finish()
        assert isinstance(sim.results["a"], Conflict)
        assert sim.results["a"].item["n"] == sim.table.items[COUNT]["n"] == 1

    def test_a_torn_transaction_shows_later(self):
        sim = simulation(add_both)
        assert {m[0] for m in sim.moves()} >= {"torn 0", "torn 1"}
        sim.apply(("torn 0", "a"))
        sim.apply(("step", "a"))
        assert sim.history[-1][2]["n"] == 0
        assert sim.table.items[COUNT]["n"] == sim.table.items[OTHER]["n"] == 1
        sim.apply(("shows", COUNT))
        assert sim.do(calls.get(COUNT))["n"] == 1

    @pytest.mark.parametrize("answers", [True, False])
    def test_a_transaction_answers_as_the_table_does(self, answers):
        sim = simulation(add_both, table=SimulatedTable(answers=answers))
        sim.finish()
        assert (sim.results["a"] is None) == (not answers)


class TestFaultsOfOtherCalls:
    def test_a_read_without_an_answer(self):
        sim = simulation(lambda: calls.get(COUNT))
        assert {m[0] for m in sim.moves()} == {"step", "unread", "refused", "crash", "zombie"}
        sim.apply(("unread", "a"))
        sim.finish()
        assert isinstance(sim.results["a"], TimedOut)

    def test_a_put_that_arrives_late(self):
        sim = simulation(lambda: calls.put_object("o/1", [b"by", b"tes"]))
        sim.apply(("in flight", "a"))
        assert sim.objects.items == {}
        sim.finish()
        assert sim.objects.items == {"o/1": b"bytes"}

    def test_a_delete_of_several_may_arrive_in_part(self):
        sim = simulation(lambda: calls.delete_objects(["o/1", "o/2"]))
        sim.do(calls.put_object("o/1", [b"1"]))
        sim.do(calls.put_object("o/2", [b"2"]))
        sim.apply(("in flight", "a"))
        sim.apply(next(m for m in sim.moves() if m[0] == "lands"))
        assert sim.objects.items == {"o/2": b"2"}
        sim.finish()
        assert sim.objects.items == {}

    def test_objects_are_read_and_listed(self):
        sim = simulation(lambda: calls.get_object("o/1", ((1, 2), (0, 1))))
        sim.do(calls.put_object("o/1", [b"abc"]))
        sim.finish()
        assert sim.results["a"] == [b"bc", b"a"]
        assert [info.name for info in sim.do(calls.list_objects("o/"))] == ["o/1"]

    def test_a_missing_object_is_thrown_in(self):
        sim = simulation(lambda: calls.get_object("o/1", ((0, 1),)))
        sim.finish()
        assert isinstance(sim.results["a"], ObjectMissing)

    def test_items_are_queried(self):
        sim = simulation(lambda: calls.query("count", descending=True, limit=1))
        sim.finish()
        found = sim.results["a"]
        assert ([item["i"] for item in found.items], found.more) == ([1], 1)


class TestTime:
    def test_a_pause_takes_time_and_now_tells_it(self):
        def steps(life: Life) -> Steps[float]:
            before = yield from calls.now()
            yield from calls.pause(20)
            return (yield from calls.now()) - before

        sim = Simulation()
        sim.spawn("a", steps)
        sim.finish()
        assert 2.0 <= sim.results["a"] < 2.1

    def test_the_clock_of_a_stalled_actor_jumps(self):
        sim = simulation(calls.now, jump_seconds=30)
        sim.apply(("jump", "a"))
        sim.finish()
        assert sim.results["a"] >= 30

    def test_in_the_end_who_pauses_waits_while_others_move(self):
        """So a lease that is beaten for in time is not lost to a scheduler's whim."""
        moved: list[str] = []

        def sleeper(life: Life) -> Steps[None]:
            yield from calls.pause(20)
            moved.append("slept")

        def worker(life: Life) -> Steps[None]:
            for _ in range(50):
                yield from calls.get(COUNT)
            moved.append("worked")

        sim = Simulation()
        sim.spawn("s", sleeper)
        sim.spawn("w", worker)
        sim.finish()
        assert moved == ["worked", "slept"]


class TestLives:
    def test_a_crash_loses_memory_and_the_next_life_begins_again(self):
        sim = simulation(add_one)
        sim.apply(("step", "a"))
        sim.apply(("crash", "a"))
        assert sim.running() == ["a.2"]
        sim.finish()
        assert sim.table.items[COUNT]["n"] == 2
        assert list(sim.results) == ["a.2"]

    def test_a_zombie_lives_on_beside_the_next_life(self):
        sim = simulation(add_one)
        sim.apply(("zombie", "a"))
        assert sim.running() == ["a", "a.2"]
        assert not any(m[0] in ("crash", "zombie") for m in sim.moves())
        sim.finish()
        assert sim.table.items[COUNT]["n"] == 2
        assert set(sim.results) == {"a", "a.2"}

    def test_who_dies_without_restarts_is_gone(self):
        sim = Simulation()
        counter(sim)
        sim.budget = dict.fromkeys(sim.budget, 9)
        sim.spawn("a", once(add_one), dies=True)
        sim.spawn("b", once(add_one))
        assert not sim.can(("crash", "b"))
        assert not sim.can(("zombie", "a"))
        sim.apply(("crash", "a"))
        assert sim.running() == ["b"]

    def test_a_dead_life_makes_no_calls(self):
        def tidy(life: Life) -> Steps[None]:
            try:
                yield from calls.get(COUNT)
            finally:
                yield from calls.write(ONE_MORE)

        sim = Simulation()
        counter(sim)
        sim.budget = dict.fromkeys(sim.budget, 9)
        sim.spawn("a", tidy, dies=True)
        sim.apply(("crash", "a"))
        sim.finish()
        assert sim.table.items[COUNT]["n"] == 0

    def test_each_life_has_its_own_name_and_randomness(self):
        def drawn(seed: int) -> list[tuple[str, float]]:
            out: list[tuple[str, float]] = []

            def steps(life: Life) -> Steps[None]:
                out.append((life.name, life.rng.random()))
                yield from calls.now()

            sim = Simulation(seed)
            sim.budget["crash"] = 1
            sim.spawn("a", steps, restarts=1)
            sim.apply(("crash", "a"))
            return out

        assert [name for name, _ in drawn(1)] == ["a", "a.2"]
        assert len({number for _, number in drawn(1)}) == 2
        assert drawn(1) == drawn(1) != drawn(2)

    def test_an_expected_error_is_an_end_and_another_a_violation(self):
        def fails(life: Life) -> Steps[None]:
            yield from calls.now()
            raise LookupError("gone")

        sim = Simulation()
        sim.spawn("a", fails, expects=(LookupError,))
        sim.finish()
        assert isinstance(sim.results["a"], LookupError)
        sim.spawn("b", fails)
        with pytest.raises(Violation, match=r"b failed.*gone"):
            sim.finish()


class TestChecks:
    def test_a_check_runs_after_every_step_and_at_the_end(self):
        sim = simulation(add_one)
        seen: list[int] = []
        sim.check.append(lambda sim: seen.append(sim.table.items[COUNT]["n"]))
        sim.at_end.append(lambda sim: seen.append(-1))
        sim.apply(("step", "a"))
        sim.finish()
        assert seen == [1, 1, -1]

    def test_who_never_ends_is_a_livelock(self):
        def poll(life: Life) -> Steps[None]:
            while True:
                yield from calls.get(COUNT)

        sim = Simulation()
        sim.spawn("a", poll)
        with pytest.raises(Violation, match="livelock: a") as caught:
            sim.finish(steps=100)
        assert caught.value.what == "livelock"

    def test_an_actor_can_wait_for_the_end(self):
        sim = Simulation(refusals=0, unread=0)

        def reader(life: Life) -> Steps[int]:
            while True:
                item = yield from calls.get(COUNT)
                if sim.finishing and sim.running() == [life.name]:
                    return int(item["n"])
                yield from calls.pause(0)

        counter(sim)
        sim.spawn("reader", reader)
        sim.spawn("a", once(add_one))
        sim.run(20)
        sim.finish()
        assert sim.results["reader"] == 1


def careful(life: Life) -> Steps[None]:
    """Adds one to both counters, under its own id, however often it must try."""
    mine = frozenset({life.actor})
    while True:
        try:
            yield from calls.now()
            yield from calls.get(COUNT)
            more = Update(COUNT, (Add("n", 1), Include("ids", mine)), (NotIn("ids", life.actor),))
            yield from calls.write(more, Update(OTHER, (Add("n", 1),)))
            return
        except Conflict:
            return
        except StorageError:
            yield from calls.pause(0)


def both_alike(sim: Simulation) -> None:
    counter(sim)
    for name in "abc":
        sim.spawn(name, careful, restarts=1)

    def check(sim: Simulation) -> None:
        if sim.table.items[COUNT]["n"] != sim.table.items[OTHER]["n"]:
            raise Violation("the counters differ")

    sim.check.append(check)


def test_every_kind_of_move_is_made():
    made: Counter[str] = Counter()
    for seed in range(300):
        sim, violation = one_schedule(both_alike, seed)
        assert violation is None
        assert sim.table.items[COUNT]["n"] == 3
        made.update(move[0] for move, _, _ in sim.history)
    kinds = {"step", "landed", "in flight", "lost", "refused", "unread", "torn 0", "torn 1", "crash", "zombie", "jump"}
    assert set(made) == kinds | {"lands", "shows"}
    assert min(made.values()) >= 10


def test_what_is_late_or_unseen_comes_during_the_random_phase_too():
    made: Counter[str] = Counter()
    for seed in range(200):
        sim = Simulation(seed)
        both_alike(sim)
        sim.run(40)
        made.update(move[0] for move, _, _ in sim.history)
    assert made["shows"] >= 10
    assert made["lands"] >= 10


def test_a_seed_is_a_schedule():
    def moves(seed: int) -> list[object]:
        return [move for move, _, _ in one_schedule(both_alike, seed)[0].history]

    assert moves(11) == moves(11)
    assert len({tuple(moves(seed)) for seed in range(50)}) > 40
