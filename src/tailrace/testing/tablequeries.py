"""Queries and scans of `TableContract`: reads of several items, in order, page after page."""

from __future__ import annotations

import pytest

from tailrace.storage.limits import MAX_ITEM_BYTES, item_size
from tailrace.storage.tables import (
    LAST,
    PAGE_BYTES,
    Absent,
    Key,
    Put,
    Table,
)
from tailrace.testing.tablecases import (
    pages,
    scanned,
)
from tailrace.testing.tableitems import TableItems


class TableQueries(TableItems):
    """Tests that reads are complete and in order, and go on where a page ended."""

    @pytest.fixture
    def ten(self, table: Table, p: str) -> str:
        """Store items 0, 10, … 90 of one hash, with neighbours under other hashes; returns the hash."""
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
