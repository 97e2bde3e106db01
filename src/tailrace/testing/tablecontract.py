"""TableContract: the tests that every table backend passes, ours and yours.

Subclass it in a test module and define one fixture, `table`, that yields a fresh handle on a `Table`:

    class TestMyTable(TableContract):
        @pytest.fixture
        def table(self, tmp_path):
            table = MyTable(tmp_path / "home.db")
            yield table
            table.close()

Tests may share the storage that the handle opens: each test uses its own hash keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import BadInput, Closed, Conflict
from tailrace.storage.tables import (
    Absent,
    Action,
    Add,
    Append,
    Change,
    Check,
    Condition,
    Delete,
    Equals,
    Exists,
    Include,
    Item,
    Key,
    NotIn,
    Put,
    Set,
    Table,
    Update,
)
from tailrace.testing.tablecases import (
    BAD_CHANGES,
    CHANGES,
    FAIL,
    HOLD,
    STORED,
    VALUES,
    exactly,
    label,
    there,
)
from tailrace.testing.tablelimits import TableLimits
from tailrace.testing.tablequeries import TableQueries
from tailrace.testing.tableraces import TableRaces


class TableContract(TableLimits, TableQueries, TableRaces):
    """The tests of a table; subclass it with a fixture `table`, as the module's docstring shows."""

    # --- one item ---
    def test_put_makes_an_item_that_get_gives_back(self, table: Table, p: str) -> None:
        assert table.get(Key(p, 7)) is None
        assert table.write(Put(Key(p, 7), {"a": 1}, (Absent(),))) == ({"p": p, "i": 7, "a": 1},)
        assert table.get(Key(p, 7)) == {"p": p, "i": 7, "a": 1}
        assert table.get(Key(p, 8)) is None

    def test_put_of_an_item_that_is_there_conflicts_under_absent(self, table: Table, key: Key) -> None:
        with pytest.raises(Conflict) as caught:
            table.write(Put(key, {"a": 2}, (Absent(),)))
        assert caught.value.index == 0
        assert caught.value.item == table.get(key) == {**STORED, "p": key.p, "i": key.i}

    def test_put_replaces_the_whole_item(self, table: Table, key: Key) -> None:
        table.write(Put(key, {"a": 2}, (Equals("n", 5),)))
        assert table.get(key) == {"p": key.p, "i": key.i, "a": 2}

    def test_the_key_of_the_action_is_the_key_of_the_item(self, table: Table, p: str) -> None:
        table.write(Put(Key(p, 3), {"p": "other", "i": 9, "a": 1}, (Absent(),)))
        assert table.get(Key(p, 3)) == {"p": p, "i": 3, "a": 1}

    def test_update_answers_the_new_item(self, table: Table, key: Key) -> None:
        answer = table.write(Update(key, (Add("n", 1), Set("t", "new"))))
        assert answer == (table.get(key),) == ({**STORED, "n": 6, "t": "new", "p": key.p, "i": key.i},)

    def test_update_under_absent_makes_an_item_from_its_changes(self, table: Table, p: str) -> None:
        changes = (Set("a", [1]), Add("n", 2), Include("s", frozenset({"x"})))
        table.write(Update(Key(p, 1), changes, (Absent(),)))
        assert table.get(Key(p, 1)) == {"p": p, "i": 1, "a": [1], "n": 2, "s": frozenset({"x"})}
        with pytest.raises(Conflict):
            table.write(Update(Key(p, 1), changes, (Absent(),)))

    def test_delete_removes_and_answers_nothing(self, table: Table, key: Key) -> None:
        with pytest.raises(Conflict):
            table.write(Delete(key, (Equals("n", 6),)))
        assert table.write(Delete(key, (Equals("n", 5),))) == (None,)
        assert table.get(key) is None

    def test_check_changes_nothing(self, table: Table, key: Key) -> None:
        before = table.get(key)
        assert table.write(Check(key, (Equals("n", 5),))) == (None,)
        assert table.write(Check(Key(key.p, 99), (Absent(),))) == (None,)
        with pytest.raises(Conflict):
            table.write(Check(key, (Equals("n", 6),)))
        assert table.get(key) == before

    def test_what_was_given_and_what_was_got_can_be_changed_afterwards(self, table: Table, p: str) -> None:
        given = {"list": [1], "map": {"a": 1}}
        table.write(Put(Key(p), given, (Absent(),)))
        given["list"].append(2)  # type: ignore[attr-defined]
        there(table, Key(p))["map"]["a"] = 2
        assert table.get(Key(p)) == {"p": p, "i": 0, "list": [1], "map": {"a": 1}}

    # --- conditions ---
    @pytest.mark.parametrize("condition", HOLD, ids=label)
    def test_condition_holds(self, table: Table, key: Key, condition: Condition) -> None:
        table.write(Update(key, (Set("hit", True),), (condition,)))
        assert there(table, key)["hit"] is True
        table.write(Check(key, (condition,)))

    @pytest.mark.parametrize("condition", FAIL, ids=label)
    def test_condition_fails(self, table: Table, key: Key, condition: Condition) -> None:
        before = table.get(key)
        for action in (Update(key, (Set("hit", True),), (condition,)), Check(key, (condition,))):
            with pytest.raises(Conflict) as caught:
                table.write(action)
            assert caught.value.index == 0
            assert caught.value.item == before
        assert table.get(key) == before

    def test_all_conditions_must_hold(self, table: Table, key: Key) -> None:
        table.write(Update(key, (Set("hit", 1),), (Equals("n", 5), Exists("t"))))
        with pytest.raises(Conflict):
            table.write(Update(key, (Set("hit", 2),), (Equals("n", 5), Absent("t"))))
        assert there(table, key)["hit"] == 1

    @pytest.mark.parametrize("when", [(), (Absent("a"),), (NotIn("ids", "a"),), (Equals("a", 1),)], ids=label)
    def test_nothing_is_made_by_accident(self, table: Table, p: str, when: tuple[Condition, ...]) -> None:
        key = Key(p, 1)
        for action in (
            Put(key, {"a": 1}, when),
            Update(key, (Set("a", 1),), when),
            Delete(key, when),
            Check(key, when),
        ):
            with pytest.raises(Conflict) as caught:
                table.write(action)
            assert (caught.value.index, caught.value.item) == (0, None)
        assert table.get(key) is None

    # --- changes ---
    @pytest.mark.parametrize(("change", "look", "expected"), CHANGES, ids=[label(c[0]) for c in CHANGES])
    def test_change(self, table: Table, key: Key, change: Change, look: Callable[[Item], Any], expected: Any) -> None:
        answer = table.write(Update(key, (change,)))
        assert answer is not None
        item = there(table, key)
        assert item == answer[0]
        assert exactly(look(item), expected)

    @pytest.mark.parametrize("change", BAD_CHANGES, ids=label)
    def test_a_change_that_does_not_fit_is_refused(self, table: Table, key: Key, change: Change) -> None:
        before = table.get(key)
        with pytest.raises(BadInput):
            table.write(Update(key, (Set("other", 1), change)))
        assert table.get(key) == before

    @pytest.mark.parametrize("value", VALUES, ids=lambda v: label(v)[:40])
    def test_values_come_back_as_they_were(self, table: Table, p: str, value: Any) -> None:
        table.write(Put(Key(p, 1), {"v": value}, (Absent(),)))
        table.write(Update(Key(p, 2), (Set("v", value),), (Absent(),)))
        items = [table.get(Key(p, 1)), *table.query(p).items]
        assert len(items) == 3
        for item in items:
            assert item is not None
            assert exactly(item["v"], value), repr(item["v"])[:80]

    # --- several actions ---
    def test_all_actions_are_done(self, table: Table, key: Key) -> None:
        p = key.p
        table.write(Put(Key(p, 2), {"a": 1}, (Absent(),)), Put(Key(p, 3), {"a": 1}, (Absent(),)))
        answer = table.write(
            Put(Key(p, 4), {"a": 4}, (Absent(),)), Update(key, (Add("n", 1),)), Delete(Key(p, 2)), Check(Key(p, 3))
        )
        items = {item["i"]: item for item in table.query(p).items}
        assert sorted(items) == [1, 3, 4]
        assert items[1]["n"] == 6
        assert answer in (None, (items[4], items[1], None, None))

    @pytest.mark.parametrize("bad", [0, 1, 2, 3])
    def test_all_or_nothing(self, table: Table, key: Key, bad: int) -> None:
        p = key.p
        before = table.get(key)
        good = [Put(Key(p, i), {"a": i}, (Absent(),)) for i in (10, 11, 12)]
        actions: list[Action] = [*good[:bad], Update(key, (Add("n", 1),), (Equals("n", 6),)), *good[bad:]]
        with pytest.raises(Conflict) as caught:
            table.write(*actions)
        assert caught.value.index == bad
        assert caught.value.item == before
        assert table.query(p).items == [before]

    def test_one_failed_check_fails_all(self, table: Table, key: Key) -> None:
        with pytest.raises(Conflict) as caught:
            table.write(Delete(key), Check(Key(key.p, 2)))
        assert (caught.value.index, caught.value.item) == (1, None)
        assert table.get(key) is not None

    def test_a_change_that_does_not_fit_fails_all(self, table: Table, key: Key) -> None:
        with pytest.raises(BadInput):
            table.write(Put(Key(key.p, 2), {}, (Absent(),)), Update(key, (Append("t", [1]),)))
        assert [item["i"] for item in table.query(key.p).items] == [1]

    # --- the end ---
    def test_calls_after_close_are_refused(self, table: Table, p: str) -> None:
        table.close()
        for call in (
            lambda: table.get(Key(p)),
            lambda: table.query(p),
            lambda: table.write(Check(Key(p), (Absent(),))),
        ):
            with pytest.raises(Closed):
                call()
        table.close()
