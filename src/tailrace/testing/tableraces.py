"""Races of `TableContract`: many threads write at once, nothing is lost, and one of them wins."""

from __future__ import annotations

from tailrace.errors import Conflict
from tailrace.storage.tables import (
    Absent,
    Add,
    Key,
    Put,
    Set,
    Table,
    Update,
)
from tailrace.testing.tablecases import (
    at_once,
    insist,
    there,
)
from tailrace.testing.tableitems import TableItems


class TableRaces(TableItems):
    """Tests of writers that race each other."""

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
