"""Schedules: a fault in a protocol is found, shrunk to its point, told in words and made again."""

from __future__ import annotations

import pytest

from tailrace.errors import Throttled, TimedOut
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Key, Put, Update
from tailrace.testing import (
    Life,
    SimulatedTable,
    Simulation,
    Violation,
    check_schedules,
    explore,
    one_schedule,
    replay,
    shrink,
)
from tests.testing.test_simulation import both_alike

COUNT = Key("count")


def careless(life: Life) -> Steps[None]:
    """Adds one, and again when it had no answer."""
    while True:
        try:
            yield from calls.write(Update(COUNT, (Add("n", 1),)))
            return
        except (Throttled, TimedOut):
            yield from calls.pause(0)


def at_most_three(sim: Simulation) -> None:
    if sim.table.items[COUNT]["n"] > 3:
        raise Violation("counted too often", sim.table.items[COUNT]["n"])


def counting(sim: Simulation) -> None:
    sim.do(calls.write(Put(COUNT, {"n": 0}, (Absent(),))))
    for name in "abc":
        sim.spawn(name, careless)
    sim.check.append(at_most_three)


def stuck(sim: Simulation) -> None:
    """Ends only if no write was refused: a schedule with a refusal never does."""

    def steps(life: Life) -> Steps[None]:
        try:
            yield from calls.write(Put(COUNT, {}, (Absent(),)))
        except (Throttled, TimedOut):
            while True:
                yield from calls.pause(0)

    sim.spawn("a", steps)


def failing(scenario) -> tuple[int, Simulation, Violation]:
    for seed in range(200):
        sim, violation = one_schedule(scenario, seed)
        if violation is not None:
            return seed, sim, violation
    raise AssertionError("nothing found")


def test_a_good_protocol_has_only_good_schedules():
    assert check_schedules(both_alike, range(200)) == 200


def test_settings_are_handed_on_and_storage_is_made_anew_for_each():
    made: list[SimulatedTable] = []

    def table() -> SimulatedTable:
        made.append(SimulatedTable(answers=False))
        return made[-1]

    assert check_schedules(both_alike, range(5), table=table, timeouts=0) == 5
    assert len(set(map(id, made))) == 5


def test_a_bad_one_is_told_in_its_shortest_story():
    with pytest.raises(Violation) as caught:
        check_schedules(counting, range(200))
    assert caught.value.what == "counted too often"
    lines = str(caught.value).splitlines()
    assert "seed" in lines[0]
    assert sum("update count/0" in line and ", lands" not in line for line in lines) == 4
    assert sum("no answer" in line for line in lines) == 1
    assert len(lines) <= 8


def test_a_failing_schedule_is_made_again_from_its_moves():
    seed, sim, violation = failing(counting)
    moves = [move for move, _, _ in sim.history]
    again, same = replay(counting, seed, moves)
    assert same is not None
    assert same.what == violation.what
    assert again.story() == sim.story()


def test_shrinking_keeps_only_what_matters():
    seed, sim, violation = failing(counting)
    moves = shrink(counting, seed, [move for move, _, _ in sim.history], violation)
    for n in range(len(moves)):
        _, again = replay(counting, seed, moves[:n] + moves[n + 1 :])
        assert again is None or again.what != violation.what
    assert any(move[0] in ("landed", "in flight") for move in moves)


def counting_without_refusals(sim: Simulation) -> None:
    """Goes wrong in two ways."""

    def not_refused(sim: Simulation) -> None:
        if sim.history[-1][0][0] == "refused":
            raise Violation("refused")

    counting(sim)
    sim.check.append(not_refused)


def test_shrinking_keeps_to_its_violation():
    tried = 0
    for seed in range(300):
        sim, violation = one_schedule(counting_without_refusals, seed, timeouts=9)
        if violation is not None and violation.what == "refused":
            moves = shrink(counting_without_refusals, seed, [move for move, _, _ in sim.history], violation)
            assert [what for what, _ in moves] == ["refused"]
            tried += len(sim.history) > 3
    assert tried > 5


def test_a_livelock_is_found_and_shrunk_to_the_fault():
    seed, sim, violation = failing(stuck)
    assert violation.what == "livelock"
    moves = shrink(stuck, seed, [move for move, _, _ in sim.history][:50], violation)
    assert len(moves) == 1
    assert moves[0][0] in ("refused", "landed", "lost", "in flight")


def test_every_schedule_of_a_good_small_scenario():
    found = explore(both_alike, {"timeout": 1}, states=100_000)
    assert found.complete
    assert found.violation is None
    assert found.states > 500


def test_the_shortest_schedule_that_fails():
    found = explore(counting)
    assert found.violation is not None
    assert len(found.moves) == 5
    assert [what for what, _ in found.moves].count("step") == 4


def test_exploring_stops_at_a_number_of_states_and_says_so():
    found = explore(both_alike, states=50)
    assert not found.complete
    assert 50 <= found.states < 100
    assert not explore(both_alike, {}, depth=3).complete
