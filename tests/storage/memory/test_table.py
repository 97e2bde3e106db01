"""The table in memory keeps the contract of tables, whatever it answers, and its change stream that of changes."""

from __future__ import annotations

import pytest

from tailrace.errors import Closed
from tailrace.storage.memory.changes import MemoryChanges
from tailrace.storage.memory.table import MemoryTable
from tailrace.storage.tables import Absent, Add, Delete, Key, Put, Table, Update
from tailrace.testing.changescontract import ChangesContract
from tailrace.testing.tablecontract import TableContract

A, B = Key("t", 1), Key("t", 2)


class TestMemoryTable(TableContract):
    @pytest.fixture
    def table(self) -> Table:
        return MemoryTable()


class TestMemoryTableThatAnswersAsDynamoDBDoes(TableContract):
    @pytest.fixture
    def table(self) -> Table:
        return MemoryTable(answers=False, inline_bytes=8 * 1024, joins_inline=False)


class TestMemoryChanges(ChangesContract):
    @pytest.fixture
    def table(self) -> MemoryTable:
        return MemoryTable()

    @pytest.fixture
    def changes(self, table: MemoryTable) -> MemoryChanges:
        return table.capture("both")


def test_a_reader_that_begins_at_the_latest_change_misses_none_after_it():
    table = MemoryTable()
    changes = table.capture("keys")
    table.write(Put(A, {}, (Absent(),)))
    shard = changes.shards()[0].id
    start, sequence = changes.latest(shard)
    table.write(Update(A, (Add("n", 1),)), Put(B, {}, (Absent(),)))
    table.write(Delete(B))
    read = changes.read(changes.iterator(shard, start, sequence))
    assert [(c.kind, c.key) for c in read.changes] == [("MODIFY", A), ("INSERT", B), ("REMOVE", B)]


def test_calls_after_close_are_refused():
    table = MemoryTable()
    table.close()
    for call in (lambda: table.get(A), table.scan, lambda: table.write(Delete(A))):
        with pytest.raises(Closed):
            call()
