"""Limits of `TableContract`: the most actions, bytes and terms, the longest keys, and what is refused beyond them."""

from __future__ import annotations

import pytest

from tailrace.errors import BadInput, TooLarge
from tailrace.storage.limits import MAX_ACTIONS, MAX_DEPTH, MAX_ITEM_BYTES, MAX_NAME_BYTES
from tailrace.storage.tables import (
    LAST,
    Absent,
    Add,
    Append,
    Change,
    Check,
    Delete,
    Equals,
    Item,
    Key,
    Put,
    Set,
    Table,
    Update,
)
from tailrace.testing.tablecases import (
    FORBIDDEN,
    label,
    there,
)
from tailrace.testing.tableitems import TableItems

MANY_TERMS = 500
"""More conditions or changes than an expression of DynamoDB can hold."""


def nested(levels: int) -> list[object]:
    """Return lists nested this many levels deep, the innermost included."""
    value: list[object] = [1]
    for _ in range(levels - 2):
        value = [value]
    return value


class TableLimits(TableItems):
    """Tests of how large a write, an item and a key may be."""

    counts_items = True
    """Whether the backend counts the whole items that a write touches, and not only the bytes that it adds.  DynamoDB
    does; servers that imitate it may not."""

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

    def test_the_items_of_a_write_have_four_megabytes_and_no_more(self, table: Table, p: str) -> None:
        if not self.counts_items:
            pytest.skip("this server counts only the bytes that a write brings")
        for i in range(12):
            table.write(Put(Key(p, i), {"a": b"x" * 390_000, "n": 0}, (Absent(),)))
        for action in (Update(Key(p, 11), (Add("n", 1),)), Check(Key(p, 11)), Delete(Key(p, 11))):
            with pytest.raises(TooLarge):
                table.write(*(Update(Key(p, i), (Add("n", 1),)) for i in range(11)), action)
        assert [item["n"] for i in range(12) for item in table.query(p, i, i).items] == [0] * 12
        table.write(*(Update(Key(p, i), (Add("n", 1),)) for i in range(10)), Check(Key(p, 99), (Absent(),)))
        assert there(table, Key(p, 9))["n"] == 1

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

    def test_conditions_and_changes_that_fit_into_an_expression_and_no_more(self, table: Table, p: str) -> None:
        def written(count: int) -> tuple[Item | None, ...] | None:
            equal = tuple(Equals(("m", str(n)), n) for n in range(count))
            more = tuple(Add(("m", str(n)), 1) for n in range(count))
            return table.write(Update(Key(p), more, equal))

        table.write(Put(Key(p), {"m": {str(n): n for n in range(MANY_TERMS)}}, (Absent(),)))
        before = table.get(Key(p))
        for count in (160, MANY_TERMS):
            with pytest.raises(TooLarge, match=r"too many (conditions|changes) in one action"):
                written(count)
        assert table.get(Key(p)) == before
        written(140)
        assert there(table, Key(p))["m"]["139"] == 140

    def test_every_kind_of_action_has_that_limit(self, table: Table, key: Key) -> None:
        before = table.get(key)
        when = tuple(Equals(f"attribute{n}", n) for n in range(MANY_TERMS))
        changes = tuple(Set(f"attribute{n}", n) for n in range(MANY_TERMS))
        for action in (Update(key, changes), Check(key, when), Delete(key, when), Put(key, {}, when)):
            with pytest.raises(TooLarge, match="too many"):
                table.write(action)
            with pytest.raises(TooLarge, match="too many"):
                table.write(action, Put(Key(key.p, 77), {}, (Absent(),)))
        assert table.get(key) == before

    def test_values_are_nested_so_deep_and_no_deeper(self, table: Table, p: str) -> None:
        table.write(Put(Key(p), {"a": nested(MAX_DEPTH), "m": {}}, (Absent(),)))
        assert there(table, Key(p))["a"] == nested(MAX_DEPTH)
        for levels in (MAX_DEPTH + 1, 2000):
            for write in (
                Put(Key(p, 1), {"a": nested(levels)}, (Absent(),)),
                Update(Key(p), (Set("a", nested(levels)),)),
                Update(Key(p), (Set(("m", "x"), nested(levels - 1)),)),
            ):
                with pytest.raises(TooLarge, match="levels"):
                    table.write(write)
        assert [item["i"] for item in table.query(p).items] == [0]

    def test_names_of_attributes(self, table: Table, key: Key) -> None:
        before = table.get(key)
        for name in ("", "x" * (MAX_NAME_BYTES + 1), "é" * MAX_NAME_BYTES):
            with pytest.raises(BadInput, match="name"):
                table.write(Put(key, {name: 1}, ()))
            with pytest.raises(BadInput, match="name"):
                table.write(Update(key, (Set(name, 1),)))
        assert table.get(key) == before

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
