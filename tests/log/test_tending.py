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


FIRST = {"look.forgot": 1000}
"""Where to start looking for mutants that few schedules catch."""


@pytest.mark.parametrize("mutant", FIRST)
def test_a_rule_taken_away_is_missed(mutant: str) -> None:
    with small_pages(), without(mutant):
        for seed, kept in product(range(FIRST[mutant], FIRST[mutant] + 3000), TABLES):
            calm = {"refusals": 0, "unread": 0, "jumps": 0, "torn": 0}
            _, violation = one_schedule(SCENARIOS["forget"], seed, table=TABLES[kept], **calm)
            if violation is not None:
                print(f"{kept}, seed {seed}: {violation.what}")
                return
    pytest.fail(f"no schedule fails without {mutant}")
