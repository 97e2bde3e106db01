"""The part of `TableContract` on what fits: actions, bytes and keys, and what is refused."""

from __future__ import annotations

import pytest

from tailrace.errors import BadInput, TooLarge
from tailrace.storage.limits import MAX_ACTIONS, MAX_ITEM_BYTES
from tailrace.storage.tables import (
    LAST,
    Absent,
    Add,
    Append,
    Change,
    Check,
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


class TableLimits(TableItems):
    """How much a write, an item and a key may be."""

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
