"""The queue's protocol holds in every schedule tried, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.model.queue.scenarios import MUTANTS, SCENES, SURVIVORS, one

SCHEDULES = 60


@pytest.mark.parametrize("scenario", SCENES)
def test_the_protocol_holds_in_random_schedules(scenario: str) -> None:
    for seed in range(SCHEDULES):
        assert one(seed, scenario).why is None, f"seed {seed}"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    scenario, seed, harm = MUTANTS[mutant]
    assert seed is not None
    assert one(seed, scenario, [mutant]).why == harm
    assert one(seed, scenario).why is None


@pytest.mark.parametrize("mutant", SURVIVORS)
def test_owner_and_epoch_each_make_up_for_the_other(mutant: str) -> None:
    for scenario in SURVIVORS[mutant].scenarios.split():
        assert {one(seed, scenario, [mutant]).why for seed in range(SCHEDULES)} == {None}


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENES)
def test_soak_random_schedules(scenario: str) -> None:
    for seed in range(20_000):
        assert one(seed, scenario).why is None, f"seed {seed}"
