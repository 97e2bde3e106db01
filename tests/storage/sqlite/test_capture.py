"""Change capture on SQLite: the contract, views, rolling shards, 24 hours, and who switched it on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from tailrace.errors import BadInput, BadSetting, NotThere
from tailrace.storage.changes import View
from tailrace.storage.sqlite.capture import Capture
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Add, Delete, Key, Put, Update
from tailrace.testing.changescontract import ChangesContract, all_of

HOUR = 3600.0


class Clock:
    """Moved by hand, in seconds."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now


class TestContract(ChangesContract):
    @pytest.fixture
    def table(self, tmp_path: Path) -> Iterator[SqliteTable]:
        table = SqliteTable(SqliteDatabase(tmp_path / "home.db"))
        table.capture("both")
        yield table
        table.close()

    @pytest.fixture
    def changes(self, table: SqliteTable) -> Capture:
        return table.capture("both")


class TestContractInSmallShards(TestContract):
    @pytest.fixture
    def table(self, tmp_path: Path) -> Iterator[SqliteTable]:
        table = SqliteTable(SqliteDatabase(tmp_path / "home.db"))
        table.capture("both", roll_records=7)
        yield table
        table.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home.db"


@pytest.fixture
def table(path: Path, clock: Clock) -> Iterator[SqliteTable]:
    table = SqliteTable(SqliteDatabase(path, clock=clock))
    yield table
    table.close()


def put(table: SqliteTable, *numbers: int) -> None:
    for i in numbers:
        table.write(Put(Key("p", i), {"n": i}, (Absent(),)))


def numbers(changes: Capture) -> list[list[int]]:
    """Which items each shard tells of."""
    return [[c.key.i for c in all_of(changes, shard)] for shard in changes.shards()]


@pytest.mark.parametrize("view", ["keys", "new", "old", "both"])
def test_views(table: SqliteTable, view: View) -> None:
    changes = table.capture(view)
    put(table, 1)
    table.write(Update(Key("p", 1), (Add("n", 1),)))
    table.write(Delete(Key("p", 1)))
    found = list(all_of(changes, changes.shards()[0]))
    images = [None, {"p": "p", "i": 1, "n": 1}, {"p": "p", "i": 1, "n": 2}, None]
    assert [c.key for c in found] == [Key("p", 1)] * 3
    assert [c.old for c in found] == (images[:-1] if view in ("old", "both") else [None] * 3)
    assert [c.new for c in found] == (images[1:] if view in ("new", "both") else [None] * 3)


def test_changes_carry_the_clock(table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("keys")
    clock.now += 1.25
    put(table, 1)
    (change,) = all_of(changes, changes.shards()[0])
    assert change.created_at == datetime.fromtimestamp(clock.now, UTC)


def test_only_what_happens_after_it_was_switched_on(table: SqliteTable) -> None:
    put(table, 1)
    changes = table.capture("both")
    put(table, 2)
    assert numbers(changes) == [[2]]


def test_it_stays_on_and_keeps_its_view(path: Path, table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("new")
    put(table, 1)
    other = SqliteTable(SqliteDatabase(path, clock=clock))
    put(other, 2)
    again = other.capture("new")
    assert again.shards() == changes.shards()
    assert numbers(again) == [[1, 2]]
    with pytest.raises(BadSetting, match="'new', not 'old'"):
        other.capture("old")
    with pytest.raises(BadSetting, match="did you mean 'both'"):
        other.capture("bothh")  # type: ignore[arg-type]
    other.close()


def test_a_writer_that_never_heard_of_it_is_captured(path: Path, table: SqliteTable, clock: Clock) -> None:
    put(table, 1)
    other = SqliteTable(SqliteDatabase(path, clock=clock))
    changes = other.capture("both")
    put(table, 2)
    script = (
        "import sys; from tailrace.storage.sqlite.database import SqliteDatabase;"
        "from tailrace.storage.sqlite.table import SqliteTable;"
        "from tailrace.storage.tables import *;"
        "SqliteTable(SqliteDatabase(sys.argv[1])).write(Put(Key('p', 3), {}, (Absent(),)))"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
    assert numbers(changes) == [[2, 3]]
    other.close()


def test_tables_of_one_database_are_captured_apart(path: Path) -> None:
    database = SqliteDatabase(path)
    one, two, three = (SqliteTable(database, name) for name in ("one", "two", "three"))
    first, second = one.capture("both"), two.capture("keys")
    put(one, 1)
    put(two, 2)
    put(three, 3)
    assert numbers(first) == [[1]]
    assert numbers(second) == [[2]]
    with pytest.raises(NotThere):
        second.iterator(first.shards()[0].id, "TRIM_HORIZON")
    with pytest.raises(NotThere):
        second.read(first.iterator(first.shards()[0].id, "TRIM_HORIZON"))
    for table in (one, two, three):
        table.close()


def test_nobody_else_can_write_behind_its_back(path: Path, table: SqliteTable) -> None:
    table.capture("both")
    put(table, 1)
    stranger = apsw.Connection(str(path))
    with pytest.raises(apsw.SQLError, match="tailrace_now"):
        stranger.execute("DELETE FROM items")
    stranger.close()


def test_a_shard_rolls_by_count(table: SqliteTable) -> None:
    changes = table.capture("both", roll_records=3)
    assert [(s.parent, s.first, s.last) for s in changes.shards()] == [(None, "0" * 19 + "1", None)]
    put(table, *range(8))
    shards = changes.shards()
    assert numbers(changes) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [s.parent for s in shards] == [None, shards[0].id, shards[1].id]
    assert [(int(s.first), s.last and int(s.last)) for s in shards] == [(1, 3), (4, 6), (7, None)]


def test_a_shard_rolls_by_time(table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("both", roll_seconds=4 * HOUR)
    clock.now += 5 * HOUR
    put(table, 1)
    assert numbers(changes) == [[1]]
    clock.now += 1
    put(table, 2)
    assert numbers(changes) == [[1], [2]]
    clock.now += 4 * HOUR - 1
    put(table, 3)
    clock.now += 1
    put(table, 4)
    assert numbers(changes) == [[1], [2, 3], [4]]


def test_the_end_of_a_closed_shard(table: SqliteTable) -> None:
    changes = table.capture("both", roll_records=3)
    put(table, *range(3))
    shard = changes.shards()[0]
    place = changes.iterator(shard.id, "TRIM_HORIZON")
    whole = changes.read(place)
    assert whole.next is not None
    latest = changes.iterator(shard.id, "LATEST")
    put(table, 3)
    assert changes.read(whole.next) == ([], None)
    assert changes.read(latest) == ([], None)
    assert changes.read(changes.iterator(shard.id, "LATEST")) == ([], None)
    last = changes.read(changes.read(place, 2).next or "", 2)
    assert [c.key.i for c in last.changes] == [2]
    assert last.next is None


def test_pages_of_one_megabyte(table: SqliteTable) -> None:
    changes = table.capture("both")
    for i in range(7):
        table.write(Put(Key("p", i), {"a": b"x" * 300_000}, (Absent(),)))
    place = changes.iterator(changes.shards()[0].id, "TRIM_HORIZON")
    first = changes.read(place)
    assert [c.key.i for c in first.changes] == [0, 1, 2]
    assert [c.key.i for c in changes.read(first.next or "").changes] == [3, 4, 5]


def test_changes_are_kept_for_a_day(table: SqliteTable, clock: Clock, path: Path) -> None:
    changes = table.capture("both", roll_records=3)
    for i in range(9):
        put(table, i)
        clock.now += HOUR
    clock.now += 19.5 * HOUR
    assert numbers(changes) == [[5], [6, 7, 8]]
    assert changes.shards()[0].parent is not None
    rows = apsw.Connection(str(path)).execute("SELECT count(*) FROM items_changes").fetchall()
    assert rows == [(4,)]


def test_a_shard_whose_next_record_is_kept_can_be_left_in_order(table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("both", roll_records=2, roll_seconds=48 * HOUR)
    put(table, *range(2))
    (shard,) = changes.shards()
    last = list(all_of(changes, shard))[-1].sequence
    clock.now += 25 * HOUR
    put(table, 2)
    end = changes.read(changes.iterator(shard.id, "AFTER_SEQUENCE_NUMBER", last))
    assert end == ([], None)
    old, young = changes.shards()
    assert (old.id, young.parent) == (shard.id, shard.id)
    assert numbers(changes) == [[], [2]]
    with pytest.raises(NotThere, match="no longer kept"):
        changes.iterator(shard.id, "AFTER_SEQUENCE_NUMBER", shard.first)
    clock.now += 25 * HOUR
    put(table, 3, 4)
    assert shard.id not in {one.id for one in changes.shards()}, "the record behind it is gone, too"


def test_what_is_trimmed_is_told_and_not_skipped(table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("both", roll_records=3, roll_seconds=48 * HOUR)
    put(table, *range(4))
    old, young = changes.shards()
    second = list(all_of(changes, old))[1].sequence
    at = changes.iterator(young.id, "AT_SEQUENCE_NUMBER", young.first)
    horizon = changes.iterator(young.id, "TRIM_HORIZON")
    clock.now += 24 * HOUR - 60
    put(table, 4)
    clock.now += 61
    with pytest.raises(NotThere):
        changes.iterator(old.id, "TRIM_HORIZON")
    with pytest.raises(NotThere):
        changes.iterator(young.id, "AT_SEQUENCE_NUMBER", young.first)
    with pytest.raises(NotThere):
        changes.iterator(young.id, "AFTER_SEQUENCE_NUMBER", second)
    after = changes.iterator(young.id, "AFTER_SEQUENCE_NUMBER", young.first)
    assert [c.key.i for c in changes.read(after).changes] == [4]
    for place in (at, horizon):
        with pytest.raises(NotThere, match="15 minutes"):
            changes.read(place)


def test_a_place_that_was_trimmed_meanwhile(table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("both", roll_seconds=48 * HOUR)
    put(table, 1)
    clock.now += 24 * HOUR - 60
    put(table, 2)
    (shard,) = changes.shards()
    at = changes.iterator(shard.id, "AT_SEQUENCE_NUMBER", shard.first)
    horizon = changes.iterator(shard.id, "TRIM_HORIZON")
    clock.now += 120
    with pytest.raises(NotThere, match="trimmed"):
        changes.read(at)
    assert [c.key.i for c in changes.read(horizon).changes] == [2]


def test_iterators_are_valid_for_a_quarter_of_an_hour(table: SqliteTable, clock: Clock) -> None:
    changes = table.capture("both")
    put(table, 1)
    place = changes.iterator(changes.shards()[0].id, "TRIM_HORIZON")
    clock.now += 15 * 60
    assert len(changes.read(place).changes) == 1
    clock.now += 1
    with pytest.raises(NotThere, match="15 minutes"):
        changes.read(place)
    with pytest.raises(BadInput):
        changes.read("nonsense")


def test_writing_trims_and_sequences_are_never_used_again(table: SqliteTable, clock: Clock, path: Path) -> None:
    changes = table.capture("both", roll_records=4)
    put(table, *range(10))
    clock.now += 25 * HOUR
    assert numbers(changes) == [[]]
    (shard,) = changes.shards()
    assert changes.read(changes.iterator(shard.id, "LATEST")).changes == []
    put(table, *range(10, 16))
    found = [c.sequence for shard in changes.shards() for c in all_of(changes, shard)]
    assert [int(s) for s in found] == list(range(11, 17))
    rows = apsw.Connection(str(path)).execute("SELECT min(n), max(n) FROM items_changes").fetchall()
    assert rows == [(11, 16)]


def test_writing_alone_keeps_it_short(table: SqliteTable, clock: Clock, path: Path) -> None:
    table.capture("both", roll_records=5)
    for i in range(60):
        put(table, i)
        clock.now += HOUR
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM items_changes").fetchall()[0][0] <= 26
    assert connection.execute("SELECT count(*) FROM items_shards").fetchall()[0][0] <= 7
    connection.close()
