"""The log under the simulator: any interleaving of producers, readers and upkeep, with faults and deaths."""

from __future__ import annotations

import os
from itertools import product

import pytest

from tailrace.testing import check_schedules, one_schedule
from tests.events import test_schedules as of_events
from tests.log import tending, test_tending
from tests.log.many import run_many
from tests.log.mutants import MUTANTS
from tests.log.scenarios import SCENARIOS, TABLES, TORN, small_pages
from tests.log.upkeep_mutants import UPKEEP_MUTANTS

SEEDS = 165
REPEATED_SEEDS = 10
ALL_MUTANTS = {**MUTANTS, **UPKEEP_MUTANTS}
CALM = {"refusals": 0, "unread": 0, "jumps": 0}
"""Only the faults that change what is stored: missing answers, torn transactions, deaths."""


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_loses_doubles_or_reorders(scenario: str, kept: str) -> None:
    with small_pages():
        check_schedules(SCENARIOS[scenario], range(SEEDS), table=TABLES[kept], torn=TORN[kept])


@pytest.mark.parametrize("kept", TABLES)
def test_a_write_that_arrives_twice_happens_once(kept: str) -> None:
    arrived = 0
    with small_pages():
        for name, scenario in {**SCENARIOS, **tending.SCENARIOS}.items():
            for seed in range(REPEATED_SEEDS):
                sim, violation = one_schedule(scenario, seed, table=TABLES[kept], torn=TORN[kept], repeats=3)
                assert violation is None, f"{name}, seed {seed}: {violation}"
                arrived += sum(move[0] == "twice" for move, _, _ in sim.history)
    assert arrived > REPEATED_SEEDS


@pytest.mark.parametrize("mutant", ALL_MUTANTS)
def test_a_rule_taken_away_is_missed(mutant: str) -> None:
    broken, scenarios = ALL_MUTANTS[mutant]
    with small_pages(), broken():
        assert _caught(scenarios.split(), FIRST.get(mutant, 0)), f"no schedule fails without {mutant}"


def test_ten_thousand_schedules_are_run_with_every_test_run() -> None:
    upkeep = len(tending.SCENARIOS) * len(TABLES) * test_tending.SEEDS
    events = len(of_events.SCENARIOS) * len(of_events.TABLES) * of_events.SEEDS
    assert len(SCENARIOS) * len(TABLES) * SEEDS + upkeep + events >= 10_000


@pytest.mark.soak
def test_soak_a_million_schedules() -> None:
    """TAILRACE_SCHEDULES and TAILRACE_SEED take it in parts."""
    wanted, first = os.environ.get("TAILRACE_SCHEDULES", "1000000"), os.environ.get("TAILRACE_SEED", "1000")
    run_many(int(wanted), {**SCENARIOS, **tending.SCENARIOS}, int(first))


FIRST = {
    "read.skip_missing": 410,
    "text.missing_is_gone": 535,
    "append.page": 140,
    "append.ids": 155,
    "text.refs_without_join": 190,
    "text.gc_not_monotone": 36,
}
"""Where to start looking for mutants that few schedules catch."""


def _caught(scenarios: list[str], first: int) -> bool:
    for seed in range(first, first + 3000):
        for scenario, kept, calm in product(scenarios, TABLES, (CALM, {})):
            settings = {"torn": TORN[kept], **calm}
            _, violation = one_schedule(SCENARIOS[scenario], seed, table=TABLES[kept], **settings)
            if violation is not None:
                print(f"{scenario}, {kept}, seed {seed} {'calm' if calm else ''}: {violation.what}")
                return True
    return False
