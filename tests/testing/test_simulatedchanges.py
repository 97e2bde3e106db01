"""Shards split as DynamoDB's do: one item, one line of descent; iterators, views and trimming."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tailrace.errors import BadInput, NotThere
from tailrace.storage.changes import Change
from tailrace.storage.tables import Key, Table
from tailrace.testing import ManualClock, SimulatedChanges, SimulatedTable
from tailrace.testing.changescontract import ChangesContract


class TestSimulatedChanges(ChangesContract):
    @pytest.fixture
    def changes(self) -> SimulatedChanges:
        return SimulatedChanges()

    @pytest.fixture
    def table(self, changes: SimulatedChanges) -> Table:
        return SimulatedTable(changes=changes)


class TestSimulatedChangesOfSeveralShards(TestSimulatedChanges):
    @pytest.fixture
    def changes(self) -> SimulatedChanges:
        made = SimulatedChanges(shards=3)
        made.split()
        made.roll()
        return made


def item(n: int) -> dict[str, int]:
    return {"n": n}


def read_all(changes: SimulatedChanges, shard: str) -> list[Change]:
    """Everything in a shard, up to where it is closed or nothing more is there."""
    out, at = [], changes.iterator(shard, "TRIM_HORIZON")
    for _ in range(100):
        read = changes.read(at, limit=3)
        out += read.changes
        if read.next is None or (not read.changes and not changes.empty):
            return out
        at = read.next
    return out


def test_a_change_says_what_happened():
    changes = SimulatedChanges(clock=ManualClock(wall=1_700_000_000.7))
    changes.capture(Key("a", 1), None, item(1))
    changes.capture(Key("a", 1), item(1), item(2))
    changes.capture(Key("a", 1), item(2), item(2))
    changes.capture(Key("a", 1), item(2), None)
    changes.capture(Key("a", 2), {"n": 1}, {"n": True})
    found = read_all(changes, changes.shards()[0].id)
    assert [(c.kind, c.old, c.new) for c in found] == [
        ("INSERT", None, item(1)),
        ("MODIFY", item(1), item(2)),
        ("REMOVE", item(2), None),
        ("MODIFY", {"n": 1}, {"n": True}),
    ]
    assert {c.created_at.timestamp() for c in found} == {1_700_000_000.0}
    assert len({c.id for c in found}) == 4
    assert [c.sequence for c in found] == sorted(c.sequence for c in found)


@pytest.mark.parametrize(
    ("view", "old", "new"),
    [("keys", None, None), ("new", None, item(2)), ("old", item(1), None), ("both", item(1), item(2))],
)
def test_parts_that_the_view_leaves_out(view, old, new):
    changes = SimulatedChanges(view=view)
    changes.capture(Key("a"), item(1), item(2))
    (change,) = read_all(changes, changes.shards()[0].id)
    assert (change.key, change.old, change.new) == (Key("a"), old, new)


def test_a_split_closes_the_parent_and_opens_two_children():
    changes = SimulatedChanges()
    (parent,) = changes.shards()
    left, right = changes.split()
    shards = {s.id: s for s in changes.shards()}
    assert shards[parent.id].last is not None
    assert [shards[c].parent for c in (left, right)] == [parent.id] * 2
    assert [shards[c].last for c in (left, right)] == [None, None]
    with pytest.raises(NotThere):
        changes.split(parent.id)


@pytest.mark.parametrize("seed", range(20))
def test_one_item_has_one_line_of_descent_in_order(seed):
    rng, changes = random.Random(seed), SimulatedChanges(shards=2, empty=0.3, seed=seed)
    for n in range(200):
        changes.capture(Key(f"stream-{rng.randrange(12)}"), None, item(n))
        if rng.random() < 0.05:
            open_shards = [s.id for s in changes.shards() if s.last is None]
            rng.choice((changes.split, changes.roll))(rng.choice(open_shards))
    parents = {s.id: s.parent for s in changes.shards()}
    order = list(parents)
    assert all(parent is None or order.index(parent) < order.index(child) for child, parent in parents.items())
    of_item: dict[Key, list[tuple[str, int]]] = {}
    for shard in parents:
        for change in read_all(changes, shard):
            of_item.setdefault(change.key, []).append((shard, change.new["n"]))
    assert sum(map(len, of_item.values())) == 200
    for found in of_item.values():
        assert [n for _, n in found] == sorted(n for _, n in found)
        for (older, _), (newer, _) in pairwise(found):
            assert older in lineage(newer, parents)


def lineage(shard: str | None, parents: dict[str, str | None]) -> list[str]:
    out = []
    while shard is not None:
        out.append(shard)
        shard = parents[shard]
    return out


def test_where_an_iterator_starts():
    changes = SimulatedChanges()
    shard = changes.shards()[0].id
    for n in range(4):
        changes.capture(Key("a"), None, item(n))
    sequence = read_all(changes, shard)[1].sequence

    def numbers(*start: str) -> list[int]:
        return [c.new["n"] for c in changes.read(changes.iterator(shard, *start)).changes]  # type: ignore[arg-type]

    assert numbers("TRIM_HORIZON") == [0, 1, 2, 3]
    assert numbers("AT_SEQUENCE_NUMBER", sequence) == [1, 2, 3]
    assert numbers("AFTER_SEQUENCE_NUMBER", sequence) == [2, 3]
    latest = changes.iterator(shard, "LATEST")
    assert changes.read(latest).changes == []
    changes.capture(Key("a"), None, item(4))
    assert [c.new["n"] for c in changes.read(latest).changes] == [4]


def test_a_closed_shard_ends_after_its_last_page():
    changes = SimulatedChanges()
    shard = changes.shards()[0].id
    for n in range(4):
        changes.capture(Key("a"), None, item(n))
    at = changes.iterator(shard, "TRIM_HORIZON")
    first = changes.read(at, limit=4)
    assert first.next is not None
    changes.roll(shard)
    assert changes.read(first.next).next is None
    assert changes.read(at, limit=4).next is None
    assert changes.read(at, limit=3).next is not None


def test_iterators_expire():
    clock = ManualClock()
    changes = SimulatedChanges(clock=clock)
    at = changes.iterator(changes.shards()[0].id, "TRIM_HORIZON")
    clock.move(15 * 60)
    changes.read(at)
    clock.move(1)
    with pytest.raises(NotThere, match="expired"):
        changes.read(at)


def test_what_is_older_than_a_day_is_trimmed():
    clock = ManualClock()
    changes = SimulatedChanges(clock=clock)
    old = changes.shards()[0].id
    changes.capture(Key("a"), None, item(0))
    child = changes.roll()
    clock.move(24 * 60 * 60 + 1)
    changes.capture(Key("a"), None, item(1))
    changes.trim()
    assert [(s.id, s.parent) for s in changes.shards()] == [(child, old)]
    assert [c.new["n"] for c in read_all(changes, child)] == [1]
    with pytest.raises(NotThere):
        changes.iterator(old, "TRIM_HORIZON")


def test_a_place_that_was_trimmed_is_an_error_never_a_skip():
    clock = ManualClock()
    changes = SimulatedChanges(clock=clock)
    shard = changes.shards()[0].id
    for n in range(3):
        changes.capture(Key("a"), None, item(n))
    old = [c.sequence for c in read_all(changes, shard)]
    clock.move(24 * 60 * 60 + 1)
    changes.capture(Key("a"), None, item(3))
    place = changes.iterator(shard, "AFTER_SEQUENCE_NUMBER", old[0])
    changes.trim()
    with pytest.raises(NotThere, match="trimmed"):
        changes.read(place)
    with pytest.raises(NotThere, match="trimmed"):
        changes.iterator(shard, "AFTER_SEQUENCE_NUMBER", old[0])
    assert [c.new["n"] for c in read_all(changes, shard)] == [3]


def test_what_cannot_be_asked():
    changes = SimulatedChanges()
    shard = changes.shards()[0].id
    with pytest.raises(NotThere):
        changes.iterator("shardId-no", "TRIM_HORIZON")
    with pytest.raises(BadInput):
        changes.iterator(shard, "AT_SEQUENCE_NUMBER")
    with pytest.raises(BadInput):
        changes.iterator(shard, "LATEST", "1")
    with pytest.raises(NotThere):
        changes.iterator(shard, "AFTER_SEQUENCE_NUMBER", "0")
    with pytest.raises(BadInput):
        changes.read("no iterator")
