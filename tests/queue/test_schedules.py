"""The queue's real code under the simulator: joins, deaths, stolen leases, late writes, lost answers, clock jumps.

Nothing is lost, no acknowledgement counts twice, keys are in order, transactional effects happen once, and the stats
add up after every step.  Without any one of its rules some schedule fails.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import pytest

from tailrace.coordination.rules import without
from tailrace.testing import check_schedules, one_schedule
from tests.queue.scenarios import SCENARIOS, TABLES, TORN

SEEDS = 8
FAULTS: dict[str, dict[str, Any]] = {
    "all": {},
    "calm": {"timeouts": 8, "refusals": 0, "unread": 0, "jumps": 0, "crashes": 0},
    "late": {"timeouts": 30, "refusals": 0, "unread": 0, "jumps": 0, "crashes": 0, "torn": 0},
    "jumpy": {"timeouts": 3, "refusals": 0, "unread": 0, "jumps": 3, "crashes": 1},
}


class Mutant(NamedTuple):
    """Where the loss of a rule shows: a scenario, how small chunks are kept, which faults, and a seed."""

    scenario: str
    kept: str
    faults: str
    seed: int


MUTANTS = {
    "queue.owner queue.epoch": Mutant("plain", "items", "jumpy", 175),
    "queue.v": Mutant("exact", "items", "calm", 197),
    "queue.paused": Mutant("pause", "items", "all", 74),
    "queue.heeded": Mutant("pause", "items", "all", 0),
    "queue.paused_by_first": Mutant("pause_and_grow", "items", "calm", 33),
    "queue.takes": Mutant("kills", "items", "all", 0),
    "queue.isolation": Mutant("kills", "items", "all", 12),
    "queue.dedup": Mutant("dedup", "items", "all", 0),
    "queue.low": Mutant("delay", "items", "jumpy", 1),
    "queue.delay": Mutant("delay", "items", "jumpy", 33),
    "queue.pause_seen": Mutant("play", "items", "late", 116),
    "queue.move": Mutant("move", "items", "calm", 3),
    "queue.move_together": Mutant("move", "items", "all", 1),
    "queue.replay": Mutant("alone", "items", "late", 613),
    "queue.replay_fence": Mutant("again", "items", "jumpy", 175),
    "queue.bury_together": Mutant("fails", "items", "all", 0),
}


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_loses_doubles_or_reorders(scenario: str, kept: str) -> None:
    check_schedules(SCENARIOS[scenario], range(SEEDS), table=TABLES[kept], torn=TORN[kept])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_taken_away_is_missed(mutant: str) -> None:
    scenario, kept, faults, first = MUTANTS[mutant]
    settings = {"table": TABLES[kept], "torn": TORN[kept], **FAULTS[faults]}
    with without(*mutant.split()):
        found = (one_schedule(SCENARIOS[scenario], seed, **settings)[1] for seed in range(first, first + 300))
        assert any(violation is not None for violation in found), f"no schedule fails without {mutant}"


@pytest.mark.soak
def test_soak_many_schedules() -> None:
    """TAILRACE_SCHEDULES and TAILRACE_SEED take it in parts."""
    wanted, first = int(os.environ.get("TAILRACE_SCHEDULES", "1000000")), int(os.environ.get("TAILRACE_SEED", "1000"))
    each = wanted // (len(SCENARIOS) * len(TABLES)) + 1
    for scenario in SCENARIOS.values():
        for kept, table in TABLES.items():
            check_schedules(scenario, range(first, first + each), table=table, torn=TORN[kept])
