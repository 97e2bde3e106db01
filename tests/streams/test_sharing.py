"""Shared shards under the simulator: workers die, stall and come back, leases are taken over, commits land late, shards
split, roll and go.  And each rule, taken away, is missed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from tailrace.coordination.rules import without
from tailrace.coordination.sharing import UnitWorker
from tailrace.storage.changes import Shard
from tailrace.streams import sharing
from tailrace.streams.sharing import ShardUnit
from tailrace.streams.token import ShardPlace
from tailrace.testing import Scenario, SimulatedTable, Simulation, check_schedules, one_schedule
from tests.streams import shared

SEEDS = 60


def on_dynamodb() -> SimulatedTable:
    return SimulatedTable(answers=False)


def transactional(start: str = "trim_horizon", restarts: int = 1) -> Scenario:
    def scenario(sim: Simulation) -> None:
        shared.prepare(sim, start)
        sim.spawn("writer", shared.writer(sim))
        for name in ("ann", "bob"):
            sim.spawn(name, shared.consumer(sim, True), restarts=restarts)
        sim.check += [shared.in_order, shared.places_are_true]
        sim.at_end += [shared.everything_came]

    return scenario


def trimmed(sim: Simulation) -> None:
    """Shards are trimmed that were not read to the end."""
    shared.prepare_rolled(sim)
    sim.spawn("trimmer", shared.trimmer(sim))
    for name in ("ann", "bob"):
        sim.spawn(name, shared.consumer(sim, True), restarts=1)
    sim.check += [shared.in_order, shared.places_are_true]
    sim.at_end += [shared.everything_came]


def plain(start: str = "trim_horizon", restarts: int = 1) -> Scenario:
    def scenario(sim: Simulation) -> None:
        shared.prepare(sim, start)
        sim.spawn("writer", shared.writer(sim))
        for name in ("ann", "bob", "cy"):
            sim.spawn(name, shared.consumer(sim, False), restarts=restarts)
        sim.check += [shared.places_are_true, shared.committed_once]
        sim.at_end += [shared.everything_came]

    return scenario


@pytest.mark.parametrize("table", [SimulatedTable, on_dynamodb])
@pytest.mark.parametrize("start", ["trim_horizon", "latest"])
def test_handlers_that_return_writes_are_exactly_once(table: Callable[[], SimulatedTable], start: str) -> None:
    check_schedules(transactional(start), range(SEEDS), table=table)


def test_shards_that_are_trimmed_while_they_are_read_give_way_to_their_children() -> None:
    check_schedules(trimmed, range(SEEDS), table=on_dynamodb)


@pytest.mark.parametrize("start", ["trim_horizon", "latest"])
def test_plain_handlers_lose_nothing_and_repeat_nothing_committed(start: str) -> None:
    check_schedules(plain(start), range(SEEDS), table=on_dynamodb)


@pytest.mark.soak
@pytest.mark.parametrize("start", ["trim_horizon", "latest"])
def test_and_so_for_many_schedules(start: str) -> None:
    first = int(os.environ.get("TAILRACE_SEED", "10000"))
    seeds = range(first, first + int(os.environ.get("TAILRACE_SCHEDULES", "20000")))
    check_schedules(transactional(start, 2), seeds, table=on_dynamodb)
    check_schedules(plain(start, 2), seeds, table=SimulatedTable)


# -- mutants
Mutant = Callable[[], AbstractContextManager[Any]]


def off(*names: str) -> Mutant:
    return lambda: without(*names)


def patched(target: Any, name: str, new: Any) -> Mutant:
    return lambda: patch.object(target, name, new)


def _blind_ready(shards: Any, items: Any, begin: Any, since: Any) -> list[ShardPlace]:
    """Children beside their parents."""
    found = _ready([Shard(s.id, None, s.first, s.last) for s in shards], items, begin, since)
    return [ShardPlace(place.shard, None, since=place.since) for place in found]


def _keep_going(self: UnitWorker[Any], task: Any) -> None:
    """A commit without an answer, and the same lease goes on."""
    if self.member.held.get(task.unit) != task.held:
        _lose(self, task)


def _place_of_what_was_read(self: ShardUnit, last: Any) -> Any:
    return _kept(self, None)


def _ended_too_soon(self: ShardUnit) -> bool:
    return self._reader.exhausted or bool(self._reader.after)


def _remove_at_once(self: sharing.ShardSource) -> Any:
    """What has ended is removed while its shard is still listed."""
    yield from _look(self)
    group = yield from self.units.found()
    for item in (yield from self.units.everything(group["era"])).values():
        if item.get("ended"):
            yield from self.units.remove(item)


def _forget_begin(shards: Any, items: Any, begin: Any, since: Any) -> list[ShardPlace]:
    return _ready(shards, items, {}, since)


def _children_from_latest(parent: Any) -> int | None:
    return 2**50


_ready, _lose, _kept, _look = sharing.ready, UnitWorker._lose, ShardUnit.kept, sharing.ShardSource.look

MUTANTS: dict[str, tuple[Scenario, Mutant]] = {
    "a past owner may commit": (transactional(), off("commit.owner", "commit.epoch")),
    "a commit wherever the position is": (transactional(), off("commit.position")),
    "children beside their parents": (transactional(), patched(sharing, "ready", _blind_ready)),
    "children though their parents may have been begun": (trimmed, off("shard.parent")),
    "the same lease after a commit without an answer": (transactional(), patched(UnitWorker, "_lose", _keep_going)),
    "the place of what was read": (plain(), patched(ShardUnit, "kept", _place_of_what_was_read)),
    "a shard has ended when it has given something": (plain(), patched(ShardUnit, "ended", property(_ended_too_soon))),
    "drained shards are forgotten at once": (transactional(), patched(sharing.ShardSource, "look", _remove_at_once)),
    "latest is forgotten": (transactional("latest"), patched(sharing, "ready", _forget_begin)),
    "children from latest": (transactional(), patched(sharing, "_passed_on", _children_from_latest)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_missed(mutant: str) -> None:
    scenario, broken = MUTANTS[mutant]
    with broken():
        # More answers are lost than usual: some rules are only about those.
        found = any(one_schedule(scenario, seed, table=on_dynamodb, timeouts=12)[1] for seed in range(1000))
    assert found, f"nothing notices: {mutant}"
