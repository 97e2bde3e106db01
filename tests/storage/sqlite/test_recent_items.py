"""What the writer remembers of its last changes: it saves reading, and never stands for what is no longer there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tailrace.errors import Conflict, TailraceError
from tailrace.storage.sqlite.codec import pack
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.recent_items import MAX_RECENT_ITEM_BYTES, MAX_RECENT_ITEMS
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Add, Check, Delete, Equals, Key, Put, Set, Update

KEY = Key("p", 1)
ONE_MORE = Update(KEY, (Add("n", 1),))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[SqliteTable]:
    with closing(SqliteTable(SqliteDatabase(tmp_path / "home.db"))) as table:
        table.write(Put(KEY, {"n": 0}, (Absent(),)))
        table.write(ONE_MORE)
        yield table


def statements(table: SqliteTable, work: Callable[[], Any]) -> list[str]:
    seen: list[str] = []
    writer = table.database._writer
    writer.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: seen.append(event["sql"].split()[0]))
    work()
    writer.trace_v2(0, None)
    return seen


def test_what_was_changed_last_is_not_read_again(table: SqliteTable) -> None:
    assert statements(table, lambda: table.write(ONE_MORE)) == ["BEGIN", "UPDATE", "COMMIT"]


def test_a_conflict_forgets_nothing(table: SqliteTable) -> None:
    with pytest.raises(Conflict):
        table.write(Update(KEY, (Add("n", 1),), (Absent("n"),)))
    assert statements(table, lambda: table.write(ONE_MORE)) == ["BEGIN", "UPDATE", "COMMIT"]


def test_another_connection_s_change_is_seen(table: SqliteTable) -> None:
    with closing(SqliteTable(SqliteDatabase(table.database.path))) as other:
        for n in range(2, 20, 2):
            assert table.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": n}
            assert other.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": n + 1}


def test_another_table_of_the_same_name_and_database_knows_the_same(table: SqliteTable) -> None:
    with closing(SqliteTable(table.database)) as other:
        other.write(ONE_MORE)
        assert table.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": 3}


def test_tables_of_other_names_know_nothing_of_it(table: SqliteTable) -> None:
    with closing(SqliteTable(table.database, "others")) as other, pytest.raises(Conflict):
        other.write(ONE_MORE)


def test_what_was_deleted_is_gone(table: SqliteTable) -> None:
    table.write(Delete(KEY))
    with pytest.raises(Conflict):
        table.write(ONE_MORE)
    table.write(Put(KEY, {"n": 7}, (Absent(),)))
    assert table.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": 8}


def test_a_change_made_in_another_way_is_seen(table: SqliteTable) -> None:
    body = pack({"p": "p", "i": 1, "n": 40})
    table.database.write(lambda cursor: cursor.execute("UPDATE items SET body = ?", (body,)) and None)
    assert table.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": 41}


def test_of_a_write_that_failed_nothing_is_known(table: SqliteTable) -> None:
    with pytest.raises(Conflict):
        table.write(ONE_MORE, Put(Key("p", 2), {}, (Absent(),)), Update(Key("p", 3), (Set("a", 1),)))
    with pytest.raises(Conflict):
        table.write(ONE_MORE, Put(Key("p", 2), {}, (Absent(),)), Put(Key("p", 1_000), {}, (Absent("a"),)))
    assert table.get(Key("p", 2)) is None
    assert table.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": 2}


def test_of_two_that_must_be_new_both_are_or_none(table: SqliteTable) -> None:
    with pytest.raises(Conflict) as caught:
        table.write(Put(Key("p", 2), {}, (Absent(),)), Put(KEY, {}, (Absent(),)), Put(Key("p", 3), {}, (Absent(),)))
    assert caught.value.index == 1
    assert [item["i"] for item in table.query("p").items] == [1]


def test_a_snapshot_is_of_its_moment(table: SqliteTable) -> None:
    with table.snapshot() as then:
        with pytest.raises(TailraceError):
            then.write(Put(Key("p", 2), {}, (Absent(),)))
        table.write(ONE_MORE)
        then.write(Check(KEY, (Equals("n", 1),)))
        with pytest.raises(Conflict) as caught:
            then.write(Check(KEY, (Equals("n", 2),)))
        assert caught.value.item == {"p": "p", "i": 1, "n": 1}
        for change in ONE_MORE, Delete(KEY):
            with pytest.raises(TailraceError):
                then.write(change)
    assert [item["n"] for item in table.query("p").items] == [2]


def test_it_stays_small(table: SqliteTable) -> None:
    for i in range(2, MAX_RECENT_ITEMS + 20):
        table.write(Put(Key("p", i), {"n": 0}, (Absent(),)))
        table.write(Update(Key("p", i), (Add("n", 1),)))
    table.write(Update(KEY, (Set("blob", bytes(MAX_RECENT_ITEM_BYTES + 1)),)))
    known = table.database.recent("items")
    assert len(known) <= MAX_RECENT_ITEMS
    assert KEY not in known
    assert table.write(ONE_MORE)[0] == {"p": "p", "i": 1, "n": 2, "blob": bytes(MAX_RECENT_ITEM_BYTES + 1)}
