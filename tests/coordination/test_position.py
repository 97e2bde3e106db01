"""Positions: what becomes of a commit whose answer was lost, when it has landed, lands late, or meets a newer owner."""

from __future__ import annotations

import pytest

from tailrace.coordination.lease import HeldLease
from tailrace.coordination.position import PositionMove, commit, commit_with
from tailrace.errors import Conflict, Fenced
from tailrace.storage.calls import Store, Write
from tailrace.storage.tables import Absent, Add, Key, Put, Set, Update
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable
from tests.log.driving import Driven

SHARD, COUNT = Key("$Group-billing_t", 3), Key("count")
HELD = HeldLease(SHARD, owner=7, epoch=2)
ONE_MORE = Update(COUNT, (Add("n", 1),))


@pytest.fixture
def store() -> Store:
    """A shard at 5, held, and something that is counted with it."""
    clock = ManualClock()
    store = Store(SimulatedTable(answers=False), SimulatedObjects(), clock.monotonic, clock.move)
    store.table.write(Put(SHARD, {"owner": 7, "epoch": 2, "position": 5}, (Absent(),)))
    store.table.write(Put(COUNT, {"n": 0}, (Absent(),)))
    return store


def position(store: Store) -> int:
    item = store.table.get(SHARD)
    assert item is not None
    return int(item["position"])


def count(store: Store) -> int:
    item = store.table.get(COUNT)
    assert item is not None
    return int(item["n"])


def sent(store: Store, to: int) -> Write:
    """A commit on its way, of which nobody will hear."""
    call = Driven(store, commit([PositionMove(HELD, 5, to)])).until(Write).lose()
    assert isinstance(call, Write)
    return call


def test_a_commit_that_has_landed_is_not_made_again(store: Store) -> None:
    one = Driven(store, commit([PositionMove(HELD, 5, 9)])).until(Write)
    store.answer(one.call)  # type: ignore[arg-type]
    one.lose()
    writes = store.table.calls["write"]  # type: ignore[attr-defined]
    assert one.run() == {}
    assert position(store) == 9
    assert store.table.calls["write"] == writes  # type: ignore[attr-defined]


def test_a_commit_goes_on_from_an_earlier_one_that_landed_late(store: Store) -> None:
    late = sent(store, 7)
    one = Driven(store, commit([PositionMove(HELD, 5, 9)])).until(Write)
    store.answer(late)
    assert one.run() == {}
    assert position(store) == 9
    with pytest.raises(Conflict):
        store.answer(late)
    assert position(store) == 9, "and never back"


def test_what_goes_with_a_commit_is_written_with_it_and_once(store: Store) -> None:
    one = Driven(store, commit_with(PositionMove(HELD, 5, 9), [ONE_MORE])).until(Write)
    store.answer(one.call)  # type: ignore[arg-type]
    one.lose()
    assert one.run() == 9
    assert (position(store), count(store)) == (9, 1)


def test_what_goes_with_a_commit_is_not_written_where_an_earlier_one_landed_late(store: Store) -> None:
    """What it is may depend on where the position was: whoever asked looks again, and decides."""
    late = sent(store, 7)
    one = Driven(store, commit_with(PositionMove(HELD, 5, 9), [ONE_MORE])).until(Write)
    store.answer(late)
    assert one.run() == 7
    assert (position(store), count(store)) == (7, 0)


@pytest.mark.parametrize("answered", [True, False])
def test_a_newer_owner_is_told_and_nothing_written(store: Store, answered: bool) -> None:
    one = Driven(store, commit_with(PositionMove(HELD, 5, 9), [ONE_MORE])).until(Write)
    other = Driven(store, commit([PositionMove(HELD, 5, 9)])).until(Write)
    store.table.write(Update(SHARD, (Set("owner", 8), Add("epoch", 1))))
    if not answered:
        one.lose()
        other.lose()
    with pytest.raises(Fenced, match=r"a newer owner has it \(epoch 3\)"):
        one.run()
    assert list(other.run()) == [SHARD]
    assert (position(store), count(store)) == (5, 0)


def test_another_write_that_is_refused_is_named(store: Store) -> None:
    taken = Put(COUNT, {"n": 5}, (Absent(),))
    with pytest.raises(Conflict, match="count/0 was not as expected") as caught:
        store.run(commit_with(PositionMove(HELD, 5, 9), [taken]))
    assert caught.value.index == 0
    assert (position(store), count(store)) == (5, 0)
