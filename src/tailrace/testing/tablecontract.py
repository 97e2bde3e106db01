"""TableContract: the tests that every table backend passes, ours and yours.

Subclass it in a test module and give one fixture, `table`, that yields a fresh handle on a `Table`:

    class TestMyTable(TableContract):
        @pytest.fixture
        def table(self, tmp_path):
            table = MyTable(tmp_path / "home.db")
            yield table
            table.close()

What the handle opens may be shared between tests: each test uses hash keys of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import BadInput, Closed, Conflict, TooLarge
from tailrace.storage.limits import MAX_ACTIONS, MAX_ITEM_BYTES, item_size
from tailrace.storage.tables import (
    LAST,
    PAGE_BYTES,
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
    FORBIDDEN,
    HOLD,
    STORED,
    VALUES,
    at_once,
    exactly,
    insist,
    label,
    pages,
    scanned,
    there,
)


class TableContract:
    """Subclass with a fixture `table`; see the module."""

    @pytest.fixture
    def p(self) -> str:
        """A hash key that no other test uses."""
        return f"contract-{uuid.uuid4().hex}"

    @pytest.fixture
    def key(self, table: Table, p: str) -> Key:
        """The key of an item with every kind of value, `STORED`."""
        table.write(Put(Key(p, 1), STORED, (Absent(),)))
        return Key(p, 1)

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

    # --- limits ---
    def test_a_hundred_actions_and_no_more(self, table: Table, p: str) -> None:
        puts = [Put(Key(p, i), {"a": i}, (Absent(),)) for i in range(MAX_ACTIONS + 1)]
        with pytest.raises(TooLarge):
            table.write(*puts)
        with pytest.raises(TooLarge):
            table.write()
        assert table.query(p).items == []
        table.write(*puts[:MAX_ACTIONS])
        assert len(table.query(p).items) == MAX_ACTIONS

    def test_two_actions_on_one_item_are_refused(self, table: Table, key: Key) -> None:
        with pytest.raises(BadInput):
            table.write(Check(key), Update(key, (Add("n", 1),)))
        assert there(table, key)["n"] == 5

    def test_four_megabytes_a_write_and_no_more(self, table: Table, p: str) -> None:
        puts = [Put(Key(p, i), {"a": b"x" * 390_000}, (Absent(),)) for i in range(11)]
        with pytest.raises(TooLarge):
            table.write(*puts)
        assert table.query(p).items == []
        table.write(*puts[:10])
        assert table.get(Key(p, 9)) is not None

    def test_an_item_has_a_limit_when_put(self, table: Table, p: str) -> None:
        with pytest.raises(TooLarge):
            table.write(Put(Key(p), {"a": "x" * MAX_ITEM_BYTES}, (Absent(),)))
        assert table.get(Key(p)) is None
        table.write(Put(Key(p), {"a": "x" * (MAX_ITEM_BYTES - 200)}, (Absent(),)))

    def test_an_item_has_a_limit_when_updated(self, table: Table, p: str) -> None:
        table.write(Put(Key(p), {"a": ["x" * 300_000]}, (Absent(),)))
        before = table.get(Key(p))
        for change in (Append("a", ["y" * 150_000]), Set("b", b"y" * 150_000)):
            with pytest.raises(TooLarge):
                table.write(Update(Key(p), (change,)))
            with pytest.raises(TooLarge):
                table.write(Put(Key(p, 1), {}, (Absent(),)), Update(Key(p), (change,)))
        assert table.query(p).items == [before]

    def test_keys_at_their_limits(self, table: Table, p: str) -> None:
        long = p + "é" * ((2048 - len(p)) // 2)
        for key in (Key(p, 0), Key(p, LAST), Key(long, 1)):
            table.write(Put(key, {"a": 1}, (Absent(),)))
            assert table.get(key) == {"p": key.p, "i": key.i, "a": 1}

    @pytest.mark.parametrize(
        "key", [Key("", 1), Key("x" * 2049, 1), Key("é" * 1025, 1), Key("x", -1), Key("x", LAST + 1)]
    )
    def test_keys_beyond_their_limits_are_refused(self, table: Table, key: Key) -> None:
        with pytest.raises(BadInput):
            table.write(Put(key, {}, (Absent(),)))
        with pytest.raises(BadInput):
            table.get(key)

    @pytest.mark.parametrize("changes", FORBIDDEN, ids=label)
    def test_an_update_keeps_its_hands_off(self, table: Table, key: Key, changes: tuple[Change, ...]) -> None:
        with pytest.raises(BadInput):
            table.write(Update(key, changes))

    # --- queries ---
    @pytest.fixture
    def ten(self, table: Table, p: str) -> str:
        """The hash of items 0, 10, … 90, with neighbours under other hashes."""
        table.write(*(Put(Key(p, i * 10), {"a": i}, (Absent(),)) for i in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7)))
        table.write(*(Put(Key(other, 50), {}, (Absent(),)) for other in (p + "0", p[:-1], p.upper())))
        return p

    def test_query_gives_items_in_order(self, table: Table, ten: str) -> None:
        assert [item["i"] for item in table.query(ten).items] == list(range(0, 100, 10))
        assert [item["i"] for item in table.query(ten, descending=True).items] == list(range(90, -1, -10))
        assert table.query(ten).items[3] == {"p": ten, "i": 30, "a": 3}
        assert table.query(ten).more is None

    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [
            (0, LAST, 10),
            (20, 40, 3),
            (21, 39, 1),
            (21, 29, 0),
            (90, LAST, 1),
            (91, LAST, 0),
            (40, 20, 0),
            (LAST + 1, LAST, 0),
            (0, -1, 0),
        ],
    )
    def test_query_bounds_are_inclusive(self, table: Table, ten: str, low: int, high: int, expected: int) -> None:
        for descending in (False, True):
            found = [item["i"] for item in table.query(ten, low, high, descending=descending).items]
            assert found == sorted((i for i in range(0, 100, 10) if low <= i <= high), reverse=descending)
            assert len(found) == expected

    @pytest.mark.parametrize("limit", [1, 3, 10, 11])
    def test_query_goes_on_where_a_limit_stopped_it(self, table: Table, ten: str, limit: int) -> None:
        up = pages(table, ten, limit=limit)
        down = pages(table, ten, descending=True, limit=limit)
        assert all(len(page.items) <= limit for page in up + down)
        assert [item["i"] for page in up for item in page.items] == list(range(0, 100, 10))
        assert [item["i"] for page in down for item in page.items] == list(range(90, -1, -10))

    def test_query_gives_one_megabyte_a_page(self, table: Table, p: str) -> None:
        for i in range(9):
            table.write(Put(Key(p, i), {"a": b"x" * 300_000}, (Absent(),)))
        for descending in (False, True):
            found = pages(table, p, descending=descending)
            assert 3 <= len(found) <= 5
            assert all(page.more in (None, page.items[-1]["i"]) for page in found if page.items)
            assert all(sum(map(item_size, page.items)) <= PAGE_BYTES + MAX_ITEM_BYTES for page in found)
            numbers = [item["i"] for page in found for item in page.items]
            assert numbers == sorted(range(9), reverse=descending)

    def test_scan_gives_every_item_once(self, table: Table, p: str) -> None:
        made = [Key(f"{p}-{h}", i) for h in range(3) for i in (0, 7, 70_000, LAST)]
        for key in made:
            table.write(Put(key, {"a": key.i % 97}, (Absent(),)))
        table.write(Put(Key(p, 1), {"d": bytes(300_000)}, (Absent(),)))
        found = [item for item in scanned(table) if item["p"].startswith(p)]
        keys = [Key(item["p"], item["i"]) for item in found]
        assert sorted(keys) == sorted([*made, Key(p, 1)])
        assert all(item["a"] == item["i"] % 97 for item in found if "a" in item)
        for h in range(3):
            assert [key for key in keys if key.p == f"{p}-{h}"] == [key for key in made if key.p == f"{p}-{h}"]

    # --- many at once ---
    def test_counters_lose_nothing(self, table: Table, p: str) -> None:
        table.write(Put(Key(p), {"n": 0}, (Absent(),)))
        at_once(8, lambda _: [insist(table, Update(Key(p), (Add("n", 1),))) for _ in range(20)])
        assert there(table, Key(p))["n"] == 160

    def test_transfers_keep_the_sum(self, table: Table, p: str) -> None:
        table.write(*(Put(Key(p, i), {"n": 0}, (Absent(),)) for i in range(3)))

        def move(worker: int) -> None:
            a, b = Key(p, worker % 3), Key(p, (worker + 1) % 3)
            for _ in range(8):
                insist(table, Update(a, (Add("n", -1),)), Update(b, (Add("n", 1),)))

        at_once(6, move)
        assert [item["n"] for item in table.query(p).items] == [0, 0, 0]

    def test_one_of_many_racing_writers_wins(self, table: Table, p: str) -> None:
        table.write(Put(Key(p), {"n": 0}, (Absent(),)))

        def take(worker: int) -> int | None:
            try:
                insist(table, Update(Key(p), (Set("owner", worker),), (Absent("owner"),)))
            except Conflict as conflict:
                return int((conflict.item or {})["owner"])
            return None

        answers = at_once(8, take)
        item = there(table, Key(p))
        assert answers.count(None) == 1
        assert answers[item["owner"]] is None
        assert {a for a in answers if a is not None} == {item["owner"]}

    def test_one_of_many_racing_transactions_wins(self, table: Table, p: str) -> None:
        def make(worker: int) -> bool:
            try:
                insist(table, *(Put(Key(p, i), {"owner": worker}, (Absent(),)) for i in range(3)))
            except Conflict:
                return False
            return True

        answers = at_once(8, make)
        assert answers.count(True) == 1
        assert [item["owner"] for item in table.query(p).items] == [answers.index(True)] * 3

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
