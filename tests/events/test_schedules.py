"""The event store under the simulator: any interleaving of writers, readers and pruners, with faults and deaths."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.testing import check_schedules, one_schedule
from tests.events.mutants import MUTANTS
from tests.events.scenarios import SCENARIOS, TABLES, TORN

SEEDS = 150


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_loses_doubles_or_reorders(scenario: str, kept: str) -> None:
    check_schedules(SCENARIOS[scenario], range(SEEDS), table=TABLES[kept], torn=TORN[kept])


@pytest.mark.soak
@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_of_many(scenario: str, kept: str) -> None:
    check_schedules(SCENARIOS[scenario], range(10_000), table=TABLES[kept], torn=TORN[kept])


@pytest.mark.parametrize("kept", TABLES)
def test_an_append_that_arrives_twice_happens_once(kept: str) -> None:
    for name, scenario in SCENARIOS.items():
        for seed in range(15):
            _, violation = one_schedule(scenario, seed, table=TABLES[kept], torn=TORN[kept], repeats=3)
            assert violation is None, f"{name}, seed {seed}: {violation}"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_taken_away_is_missed(mutant: str) -> None:
    broken, scenarios = MUTANTS[mutant]
    with broken():
        for seed, scenario, kept in product(range(1000), scenarios.split(), TABLES):
            _, violation = one_schedule(SCENARIOS[scenario], seed, table=TABLES[kept], torn=TORN[kept])
            if violation is not None:
                return
    pytest.fail(f"no schedule fails with {mutant}")
