"""Members under the simulator: deaths, zombies, lost answers, late commits; and the rules that keep them apart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from tailrace.coordination import lease
from tailrace.coordination.rules import without
from tailrace.testing import Scenario, SimulatedTable, Simulation, check_schedules, one_schedule
from tests.log import group_actors as groups

SEEDS = 150
FAULTLESS = {"timeouts": 0, "refusals": 0, "unread": 0, "torn": 0, "crashes": 0, "jumps": 0}


def on_dynamodb() -> SimulatedTable:
    return SimulatedTable(answers=False)


def transactional(*names: str, adopts: bool = False, restarts: int = 1) -> Scenario:
    def scenario(sim: Simulation) -> None:
        groups.prepare(sim)
        for name in names or ("ann", "bob"):
            sim.spawn(name, groups.transactional(sim, adopts), restarts=restarts)
        sim.check.append(groups.exactly_once)

    return scenario


def plain(*at_end: Callable[[Simulation], None], restarts: int = 1) -> Scenario:
    def scenario(sim: Simulation) -> None:
        groups.prepare(sim)
        for name in ("ann", "bob"):
            sim.spawn(name, groups.plain(sim), restarts=restarts)
        sim.check.append(groups.at_least_once)
        sim.at_end += at_end

    return scenario


@pytest.mark.parametrize("table", [SimulatedTable, on_dynamodb])
def test_a_transactional_handler_is_exactly_once(table: Callable[[], SimulatedTable]):
    check_schedules(transactional(), range(SEEDS), table=table)


@pytest.mark.parametrize("table", [SimulatedTable, on_dynamodb])
def test_a_plain_handler_is_at_least_once(table: Callable[[], SimulatedTable]):
    check_schedules(plain(groups.all_handled), range(SEEDS), table=table)


@pytest.mark.soak
@pytest.mark.parametrize("table", [SimulatedTable, on_dynamodb])
def test_and_so_for_many_schedules(table: Callable[[], SimulatedTable]):
    check_schedules(transactional(restarts=2), range(20_000), table=table)
    check_schedules(plain(groups.all_handled, restarts=2), range(20_000), table=table)


def test_without_faults_each_record_is_handled_once():
    """A second member comes while the first is handling; what it is given, it has alone."""
    handed_over = 0
    with patch.object(groups, "TTL", 60.0):
        for seed in range(SEEDS):
            sim = Simulation(seed, **FAULTLESS)
            groups.prepare(sim)
            sim.ghosts["eager"] = True
            sim.spawn("ann", groups.plain(sim))
            sim.spawn("bob", groups.plain(sim, pauses=seed % 5))
            sim.finish()
            groups.handled_once(sim)
            handed_over += len({life for life, _, q, _ in sim.ghosts["handled"] if q == 1}) == 2
    assert handed_over > SEEDS / 10


def never_mine(item: Any, me: int, gone: bool) -> bool:
    return gone or item["owner"] == lease.NOBODY


MUTANTS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Scenario]] = {
    "commit.owner": (lambda: without("commit.owner"), transactional()),
    "commit.epoch": (lambda: without("commit.epoch"), transactional("ann")),
    "text.commit_without_position": (lambda: without("commit.position"), transactional()),
    "text.own_take_ignored": (lambda: patch.object(lease, "takable", never_mine), transactional()),
    "text.same_member_id": (without, transactional(adopts=True)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_taken_away_is_missed(mutant: str):
    broken, scenario = MUTANTS[mutant]
    with broken():
        for seed in range(5000):
            _, violation = one_schedule(scenario, seed, timeouts=8, unread=0, refusals=0)
            if violation is not None:
                print(seed, violation)
                return
    pytest.fail(f"no schedule fails without {mutant}")


def test_taking_only_what_was_seen_is_a_courtesy():
    """As in the model: without it, takes fence each other more often, and still nothing is handled twice."""
    with without("take.seen"):
        check_schedules(transactional(), range(SEEDS))
