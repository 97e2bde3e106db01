"""The protocol holds in every schedule tried, and each of its rules is needed: without it, something is lost."""

from __future__ import annotations

import pytest

from tests.model.explore import explore, hunt, one, replay, shrink, story
from tests.model.scenarios import MUTANTS, SCENARIOS, SMALL, SURVIVORS

SCHEDULES = 150
TIMEOUT, TORN = (1, 0, 0), (0, 0, 1)
SLOW = {
    (TIMEOUT, "s.gc"),
    (TIMEOUT, "s.two"),
    (TIMEOUT, "s.forget"),
    (TIMEOUT, "s.merge"),
    (TIMEOUT, "s.group"),
    (TORN, "s.two"),
}
QUICK = [(faults, scenario) for faults in (TIMEOUT, TORN) for scenario in SMALL if (faults, scenario) not in SLOW]


@pytest.mark.parametrize("scenario", [*SCENARIOS, *SMALL])
def test_the_protocol_holds_in_random_schedules(scenario: str) -> None:
    for seed in range(SCHEDULES):
        why, moves = one(seed, scenario)
        assert why is None, f"seed {seed}\n{story(scenario, (), moves, why)}"


@pytest.mark.parametrize(("faults", "scenario"), QUICK)
def test_the_protocol_holds_in_every_schedule_of_a_small_scenario(faults: tuple[int, int, int], scenario: str) -> None:
    found = explore(scenario, seconds=100, faults=faults)
    assert found.why is None, story(scenario, (), list(found.moves), found.why)
    assert found.complete


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    scenarios, seed, harm = MUTANTS[mutant]
    scenario = scenarios.split()[0]
    assert seed is not None
    assert one(seed, scenario, [mutant]).why == harm, (
        f"`python -m tests.model.protocol show {mutant}` finds another seed"
    )
    assert one(seed, scenario).why is None


@pytest.mark.parametrize("mutant", SURVIVORS)
def test_three_rules_are_kept_though_the_model_does_not_need_them(mutant: str) -> None:
    for scenario in SURVIVORS[mutant].scenarios.split():
        assert {one(seed, scenario, [mutant]).why for seed in range(SCHEDULES)} == {None}


def test_there_are_fifty_one_mutants() -> None:
    assert (len(MUTANTS), len(SURVIVORS)) == (48, 3)
    assert not MUTANTS.keys() & SURVIVORS.keys()


# --- the tools --------------------------------------------------------------------------------------------------------
def test_a_seed_is_a_schedule() -> None:
    assert one(5, "all") == one(5, "all")
    assert one(5, "all") != one(6, "all")


def test_exploring_finds_a_shortest_schedule() -> None:
    found = explore("s.append", ["append.ids"], faults=TIMEOUT)
    assert found.why == "a record twice"
    assert len(found.moves) == 6


def test_a_failing_schedule_is_made_again_shrunk_and_told() -> None:
    why, moves = one(0, "append", ["append.ids"])
    assert why == "a record twice"
    assert replay("append", ["append.ids"], moves).why == why
    shorter = shrink("append", ["append.ids"], moves, why)
    assert len(shorter) < len(moves)
    told = story("append", ["append.ids"], moves, why)
    assert told.splitlines()[0] == "append: a record twice"
    assert "APPEND (landed, answer lost)" in told or "APPEND lands late" in told
    assert len(told.splitlines()) <= 8


# --- the full hunt ----------------------------------------------------------------------------------------------------
@pytest.mark.soak
@pytest.mark.parametrize("scenario", [*SCENARIOS, *SMALL])
def test_soak_random_schedules(scenario: str) -> None:
    for seed in range(20_000):
        why, moves = one(seed, scenario)
        assert why is None, f"seed {seed}\n{story(scenario, (), moves, why)}"


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SMALL)
def test_soak_every_schedule_with_one_fault_of_each_kind(scenario: str) -> None:
    found = explore(scenario, seconds=120)
    print(f"{scenario}: {found.states} states, {'complete' if found.complete else 'cut off'}")
    assert found.why is None, story(scenario, (), list(found.moves), found.why)


@pytest.mark.soak
@pytest.mark.parametrize("mutant", [*MUTANTS, *SURVIVORS])
def test_soak_hunt(mutant: str) -> None:
    scenarios = {**MUTANTS, **SURVIVORS}[mutant].scenarios.split()
    harm, told = hunt(mutant, scenarios, 20_000)
    assert bool(harm) == (mutant in MUTANTS), told
