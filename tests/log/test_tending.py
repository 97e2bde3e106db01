"""Whole upkeeps under the simulator: any interleaving with producers and readers, with faults and deaths."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.coordination.rules import without
from tailrace.testing import check_schedules, one_schedule
from tests.log.scenarios import TABLES, TORN, small_pages
from tests.log.tending import SCENARIOS

SEEDS = 40


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_loses_doubles_or_reorders(scenario: str, kept: str) -> None:
    with small_pages():
        check_schedules(SCENARIOS[scenario], range(SEEDS), table=TABLES[kept], torn=TORN[kept])


MUTANTS = {
    "look.forgot": ("forget", 1000),
    "upkeep.held": ("pending", 0),
    "compact.in_order": ("tombstones", 0),
    "compact.taken": ("compact2", 0),
}
"""A rule taken away, the scenario in which that shows, and where to start looking."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_taken_away_is_missed(mutant: str) -> None:
    scenario, first = MUTANTS[mutant]
    with small_pages(), without(mutant):
        for seed, kept in product(range(first, first + 3000), TABLES):
            calm = {"refusals": 0, "unread": 0, "jumps": 0, "torn": 0}
            _, violation = one_schedule(SCENARIOS[scenario], seed, table=TABLES[kept], **calm)
            if violation is not None:
                print(f"{kept}, seed {seed}: {violation.what}")
                return
    pytest.fail(f"no schedule fails without {mutant}")
