"""ChangesContract: the tests that every backend's change capture passes, ours and yours.

Subclass it in a test module and define two fixtures: `table`, a fresh handle on a `Table` that captures "both" images,
and `changes`, the table's `Changes`:

    class TestMyChanges(ChangesContract):
        @pytest.fixture
        def table(self, tmp_path): ...

        @pytest.fixture
        def changes(self, table):
            return table.capture("both")

Tests may share the storage that the fixtures open: each test uses its own hash keys.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tailrace.errors import BadInput, Conflict, NotThere
from tailrace.storage.changes import Change, Changes, Shard
from tailrace.storage.tables import Absent, Add, Check, Delete, Equals, Key, Put, Remove, Set, Table, Update
from tailrace.testing.tablecases import STORED, at_once, exactly, insist


def all_of(changes: Changes, shard: Shard, limit: int = 1000) -> Iterator[Change]:
    """Yield the changes that a shard has now, from its beginning."""
    place: str | None = changes.iterator(shard.id, "TRIM_HORIZON")
    silent = 0
    while place is not None and silent < 5:
        read = changes.read(place, limit)
        yield from read.changes
        place, silent = read.next, 0 if read.changes else silent + 1


def of_hash(changes: Changes, p: str, count: int, seconds: float = 10.0) -> list[Change]:
    """Return the changes of one hash's items, parents' before children's, once there are `count`, or after
    `seconds`."""
    end = time.monotonic() + seconds
    while True:
        found = [c for shard in changes.shards() for c in all_of(changes, shard) if c.key.p == p]
        if len(found) >= count or time.monotonic() > end:
            return found
        time.sleep(0.1)


class ChangesContract:
    """The tests of change capture; subclass it with fixtures `table` and `changes`, as the module's docstring shows."""

    @pytest.fixture
    def p(self) -> str:
        """Return a hash key that no other test uses."""
        return f"contract-{uuid.uuid4().hex}"

    def test_a_life_of_an_item(self, table: Table, changes: Changes, p: str) -> None:
        key, item = Key(p, 1), {**STORED, "p": p, "i": 1}
        table.write(Put(key, STORED, (Absent(),)))
        table.write(Update(key, (Add("n", 1),)))
        table.write(Put(key, {"n": 7}, (Equals("n", 6),)))
        table.write(Delete(key))
        found = of_hash(changes, p, 4)
        assert [(c.kind, c.key) for c in found] == [(k, key) for k in ("INSERT", "MODIFY", "MODIFY", "REMOVE")]
        states = [None, item, {**item, "n": 6}, {"p": p, "i": 1, "n": 7}, None]
        assert [c.old for c in found] == states[:-1]
        assert [c.new for c in found] == states[1:]
        assert exactly(found[0].new, item)

    def test_changes_of_an_item_are_in_order(self, table: Table, changes: Changes, p: str) -> None:
        table.write(Put(Key(p), {"n": 0}, (Absent(),)))
        for _ in range(20):
            table.write(Update(Key(p), (Add("n", 1),)))
        found = of_hash(changes, p, 21)
        assert [c.new and c.new["n"] for c in found] == list(range(21))
        assert len({c.id for c in found}) == 21
        for shard in changes.shards():
            sequences = [int(c.sequence) for c in all_of(changes, shard)]
            assert sequences == sorted(set(sequences))
        assert all(c.created_at.utcoffset() == timedelta(0) for c in found)

    def test_what_changes_nothing_is_not_recorded(self, table: Table, changes: Changes, p: str) -> None:
        key = Key(p, 1)
        table.write(Put(key, {"n": 1, "s": frozenset({"a", "b"}), "m": {"x": 1, "y": 2}}, (Absent(),)))
        table.write(Update(key, (Set("n", 1),)))
        table.write(Update(key, (Add("n", 0), Remove("gone"), Set("m", {"y": 2, "x": 1}))))
        table.write(Put(key, {"m": {"x": 1, "y": 2}, "s": frozenset({"b", "a"}), "n": 1}, ()))
        table.write(Check(key))
        table.write(Check(Key(p, 2), (Absent(),)))
        table.write(Put(Key(p, 3), {}, (Absent(),)))
        assert [(c.kind, c.key.i) for c in of_hash(changes, p, 2)] == [("INSERT", 1), ("INSERT", 3)]

    def test_what_failed_is_not_recorded(self, table: Table, changes: Changes, p: str) -> None:
        table.write(Put(Key(p, 1), {"n": 1}, (Absent(),)))
        with pytest.raises(Conflict):
            table.write(Update(Key(p, 1), (Set("n", 2),), (Equals("n", 9),)))
        with pytest.raises(Conflict):
            table.write(Put(Key(p, 2), {}, (Absent(),)), Delete(Key(p, 1), (Equals("n", 9),)))
        table.write(Put(Key(p, 3), {}, (Absent(),)))
        assert [(c.kind, c.key.i) for c in of_hash(changes, p, 2)] == [("INSERT", 1), ("INSERT", 3)]

    def test_a_transaction_gives_a_change_of_each_item(self, table: Table, changes: Changes, p: str) -> None:
        table.write(*(Put(Key(p, i), {"n": i}, (Absent(),)) for i in range(3)))
        table.write(
            Update(Key(p, 0), (Set("n", 9),)), Delete(Key(p, 1)), Check(Key(p, 2)), Put(Key(p, 3), {}, (Absent(),))
        )
        found = of_hash(changes, p, 6)
        assert sorted((c.kind, c.key.i) for c in found) == [
            *(("INSERT", i) for i in range(4)),
            ("MODIFY", 0),
            ("REMOVE", 1),
        ]

    def test_one_can_go_on_after_any_change(self, table: Table, changes: Changes, p: str) -> None:
        for i in range(10):
            table.write(Put(Key(p, i), {}, (Absent(),)))
        of_hash(changes, p, 10)
        for shard in changes.shards():
            found = [c for c in all_of(changes, shard) if c.key.p == p]
            for n, change in enumerate(found):
                at = changes.read(changes.iterator(shard.id, "AT_SEQUENCE_NUMBER", change.sequence))
                after = changes.read(changes.iterator(shard.id, "AFTER_SEQUENCE_NUMBER", change.sequence))
                assert [c for c in at.changes if c.key.p == p] == found[n:]
                assert [c for c in after.changes if c.key.p == p] == found[n + 1 :]

    def test_an_iterator_can_be_read_again_and_in_small_steps(self, table: Table, changes: Changes, p: str) -> None:
        for i in range(5):
            table.write(Put(Key(p, i), {}, (Absent(),)))
        of_hash(changes, p, 5)
        for shard in changes.shards():
            whole = [c.id for c in all_of(changes, shard)]
            assert [c.id for c in all_of(changes, shard, limit=2)] == whole
            place = changes.iterator(shard.id, "TRIM_HORIZON")
            assert changes.read(place, 3).changes == changes.read(place, 3).changes

    def test_latest_gives_what_comes_after(self, table: Table, changes: Changes, p: str) -> None:
        table.write(Put(Key(p, 1), {}, (Absent(),)))
        of_hash(changes, p, 1)
        places = [changes.iterator(s.id, "LATEST") for s in changes.shards() if s.last is None]
        table.write(Put(Key(p, 2), {}, (Absent(),)))
        of_hash(changes, p, 2)
        found = [c for place in places for c in changes.read(place).changes if c.key.p == p]
        assert [c.key.i for c in found] == [2]

    def test_shards_come_after_their_parents(self, table: Table, changes: Changes, p: str) -> None:
        table.write(Put(Key(p), {}, (Absent(),)))
        seen: set[str] = set()
        shards = changes.shards()
        for shard in shards:
            assert shard.parent is None or shard.parent in seen or shard.parent not in {s.id for s in shards}
            seen.add(shard.id)
        assert any(shard.last is None for shard in shards)

    def test_places_that_are_not_there(self, changes: Changes) -> None:
        shard = changes.shards()[-1].id
        with pytest.raises(NotThere):
            changes.iterator("shardId-00000000000000000000-nosuchshard", "TRIM_HORIZON")
        for start, sequence in (("AT_SEQUENCE_NUMBER", None), ("AFTER_SEQUENCE_NUMBER", "x"), ("LATEST", "1")):
            with pytest.raises(BadInput):
                changes.iterator(shard, start, sequence)  # type: ignore[arg-type]

    def test_many_writers(self, table: Table, changes: Changes, p: str) -> None:
        table.write(*(Put(Key(p, i), {"n": 0}, (Absent(),)) for i in range(4)))
        at_once(4, lambda i: [insist(table, Update(Key(p, (i + n) % 4), (Add("n", 1),))) for n in range(20)])
        found = of_hash(changes, p, 84)
        assert len(found) == 84
        for i in range(4):
            assert [c.new and c.new["n"] for c in found if c.key.i == i] == list(range(21))
