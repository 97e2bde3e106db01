"""The simulated table keeps the contract, whatever it answers; what only a simulation asks of it; and its counters."""

from __future__ import annotations

import pytest

from tailrace.errors import Conflict
from tailrace.storage.memory.admission import admit
from tailrace.storage.tables import Absent, Add, Delete, Equals, Key, Put, Set, Table, Update
from tailrace.testing import SimulatedChanges, SimulatedTable
from tailrace.testing.tablecontract import TableContract

A, B = Key("t", 1), Key("t", 2)


class TestSimulatedTable(TableContract):
    @pytest.fixture
    def table(self) -> Table:
        return SimulatedTable()


class TestSimulatedTableThatAnswersAsDynamoDBDoes(TableContract):
    @pytest.fixture
    def table(self) -> Table:
        return SimulatedTable(answers=False, inline_bytes=8 * 1024, joins_inline=False)


@pytest.fixture
def table() -> SimulatedTable:
    made = SimulatedTable()
    made.write(Put(A, {"n": 1}, (Absent(),)))
    return made


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_write_of_several_answers(answers):
    table = SimulatedTable(answers=answers)
    several = table.write(Put(A, {}, (Absent(),)), Put(B, {}, (Absent(),)))
    assert several == (({"p": "t", "i": 1}, {"p": "t", "i": 2}) if answers else None)
    assert table.write(Update(A, (Add("n", 1),))) == ({"p": "t", "i": 1, "n": 1},)


def test_the_item_of_a_conflict_is_a_copy(table):
    table.write(Update(A, (Set("list", [1]),)))
    with pytest.raises(Conflict) as caught:
        table.write(Put(A, {}, (Absent(),)))
    caught.value.item["list"].append(2)
    assert table.get(A)["list"] == [1]


def test_calls_are_counted_by_kind(table):
    table.get(A)
    table.query("t")
    table.query("t")
    with pytest.raises(Conflict):
        table.write(Delete(B))
    assert table.calls == {"write": 2, "get": 1, "query": 2}


def test_the_version_rises_with_changes_alone(table):
    before = table.version
    table.get(A)
    with pytest.raises(Conflict):
        table.write(Delete(B))
    assert table.version == before
    table.write(Delete(A))
    assert table.version == before + 1


class TestTorn:
    """After a torn transaction plain reads do not show one of its items, until a write meets it."""

    MOVE = (Update(A, (Add("n", -1),)), Put(B, {"n": 1}, (Absent(),)))

    def test_an_item_is_not_shown_yet(self, table):
        table.apply(admit(self.MOVE), torn=1)
        assert table.get(A)["n"] == 0
        assert table.get(B) is None
        assert [item["i"] for item in table.query("t").items] == [1]
        assert table.items[B]["n"] == 1
        table.show(B)
        assert table.get(B)["n"] == 1

    def test_the_old_state_is_shown_instead(self, table):
        table.apply(admit(self.MOVE), torn=0)
        assert table.get(A)["n"] == 1
        assert [item["n"] for item in table.query("t").items] == [1, 1]

    def test_a_deleted_item_is_still_shown(self, table):
        table.apply(admit((Delete(A), Put(B, {}, (Absent(),)))), torn=0)
        assert table.get(A)["n"] == 1
        assert [item["i"] for item in table.query("t").items] == [1, 2]
        assert [item["i"] for item in table.query("t", descending=True, limit=1).items] == [2]

    def test_a_write_sees_the_truth_and_makes_it_show(self, table):
        table.apply(admit(self.MOVE), torn=1)
        with pytest.raises(Conflict) as caught:
            table.write(Put(B, {}, (Absent(),)))
        assert caught.value.item["n"] == 1
        assert table.get(B)["n"] == 1

    def test_a_transaction_that_fails_is_not_torn(self, table):
        with pytest.raises(Conflict):
            table.apply(admit((Update(A, (Add("n", 1),), (Equals("n", 5),)), Put(B, {}, (Absent(),)))), torn=1)
        assert table.veil == {}


def test_changes_are_captured(table):
    table.changes = SimulatedChanges()
    table.write(Update(A, (Add("n", 1),)), Put(B, {}, (Absent(),)))
    table.write(Delete(B))
    changes = table.changes
    read = changes.read(changes.iterator(changes.shards()[0].id, "TRIM_HORIZON"))
    assert [(c.kind, c.key) for c in read.changes] == [("MODIFY", A), ("INSERT", B), ("REMOVE", B)]
