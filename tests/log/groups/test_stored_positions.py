"""Positions stored without a member: forward only, never under a member, and once, whatever becomes of the answers."""

from __future__ import annotations

import pytest

from tailrace.errors import BadInput, OutOfRange, TailraceError, UnknownGroup
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.groups.stored_positions import positions, store
from tailrace.storage.calls import Write
from tailrace.storage.tables import Add, Set, Update
from tailrace.testing import Faults
from tests.log.driving import Driven, simulated_home


@pytest.fixture
def home() -> Home:
    return simulated_home("objects")[0]


def filled(home: Home) -> Group:
    topic = home.topic("t", partitions=2)
    for q in (0, 1):
        with topic.producer() as out:
            for _ in range(10):
                out.send(None, b"x", partition=q)
    group = Group("billing", topic.log, 2)
    home.store.run(groups.make(group, "earliest"))
    return group


def test_positions_go_forward(home: Home) -> None:
    group = filled(home)
    assert home.store.run(store(group, {0: 3})) == {0: 3, 1: 0}
    assert home.store.run(store(group, {0: 3, 1: 10})) == {0: 3, 1: 10}
    with pytest.raises(BadInput, match="a reset moves it back"):
        home.store.run(store(group, {0: 2}))
    with pytest.raises(OutOfRange):
        home.store.run(store(group, {0: 11}))
    with pytest.raises(UnknownGroup):
        home.store.run(store(Group("none", group.log, 2), {0: 1}))
    assert home.store.run(positions(group)) == {0: 3, 1: 10}


def test_a_member_that_is_gone_loses_its_partition(home: Home) -> None:
    group = filled(home)
    taken = Update(group.shard(0), (Set("owner", 77), Add("epoch", 1), Set("position", 2)))
    home.store.run(_written(taken))
    before = home.store.run(groups.shards(group))[0]
    assert home.store.run(store(group, {0: 4}))[0] == 4
    after = home.store.run(groups.shards(group))[0]
    assert (after["owner"], after["epoch"]) == (0, before["epoch"] + 1)  # a commit of that member's is refused


def _written(action: Update) -> object:
    yield Write((action,))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_becomes_of_the_answers(home: Home, seed: int) -> None:
    group = filled(home)
    table = home.store.table
    table.faults = faults = Faults(seed, landed=0.2, lost=0.2, late=0.2, throttled=0.1, unread=0.1)  # type: ignore[attr-defined]
    for at in range(1, 8):
        assert home.store.run(store(group, {0: at}))[0] == at
    faults.settle()
    table.faults = Faults()  # type: ignore[attr-defined]
    assert home.store.run(positions(group))[0] == 7
    assert sum(faults.counts.values()) > 3


def test_a_late_write_does_not_undo_a_later_one(home: Home) -> None:
    group = filled(home)
    slow = Driven(home.store, store(group, {0: 3})).until(Write)
    late = slow.lose()
    assert home.store.run(store(group, {0: 5}))[0] == 5
    with pytest.raises(TailraceError):
        home.store.answer(late)
    with pytest.raises(BadInput):
        slow.run()
    assert home.store.run(positions(group))[0] == 5
