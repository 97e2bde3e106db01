"""Group commit: who leads, who shares, who is told what when a commit fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from tailrace.errors import Broken, Conflict, DiskFull, TimedOut
from tailrace.storage.sqlite.committer import SqliteCommitter
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Add, Equals, Key, Put, Set, Update
from tailrace.testing.tablecases import at_once
from tests.faults.vfs import WatchedVFS, io_error


class Disk:
    """What the VFS tells: counts the WAL's syncs, and fails them on demand."""

    def __init__(self) -> None:
        self.syncs = 0
        self.slow = 0.0
        self.error: Callable[[], Exception] | None = None

    def told(self, what: str, path: Path, _details: Any) -> None:
        if what == "sync" and path.name.endswith("-wal"):
            self.syncs += 1
            time.sleep(self.slow)
            if self.error is not None:
                raise self.error()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def table(tmp_path: Path, disk: Disk) -> Iterator[SqliteTable]:
    vfs = WatchedVFS(disk.told)
    table = SqliteTable(SqliteDatabase(tmp_path / "home.db", vfs=vfs.name))
    table.write(*(Put(Key("p", i), {"n": 0}, (Absent(),)) for i in range(20)))
    disk.syncs = 0
    yield table
    disk.error = None
    table.close()
    vfs.unregister()


class Together:
    """Several writes in one commit: they queue up behind one that waits."""

    def __init__(self, table: SqliteTable, count: int) -> None:
        self._table, self._count = table, count
        self._go = threading.Event()
        self._pool = ThreadPoolExecutor(count + 1)

    def run(self, *writes: Callable[[], Any]) -> list[Future[Any]]:
        committer = self._table.database._committer
        first = self._pool.submit(self._table.database.write, lambda _cursor: self._go.wait(30))
        while not committer._led:
            time.sleep(0.001)
        time.sleep(0.02)
        futures = []
        for number, write in enumerate(writes, 1):
            futures.append(self._pool.submit(write))
            while len(committer._queue) < number:
                time.sleep(0.001)
        self._go.set()
        first.result(30)
        self._pool.shutdown()
        return futures


def test_alone_a_write_is_one_sync(table: SqliteTable, disk: Disk) -> None:
    for _ in range(10):
        table.write(Update(Key("p", 0), (Add("n", 1),)))
    assert disk.syncs == 10


def test_sixteen_threads_share_syncs(table: SqliteTable, disk: Disk) -> None:
    disk.slow = 0.003
    at_once(16, lambda i: [table.write(Update(Key("p", i), (Add("n", 1),))) for _ in range(20)])
    assert [item["n"] for item in table.query("p").items[:16]] == [20] * 16
    assert disk.syncs < 320 / 4


def test_a_conflict_undoes_only_itself(table: SqliteTable, disk: Disk) -> None:
    def write(i: int, expected: int) -> Callable[[], Any]:
        return lambda: table.write(
            Update(Key("p", i), (Add("n", 1),)), Update(Key("p", i + 10), (Add("n", 1),), (Equals("n", expected),))
        )

    writes = [write(i, expected=7 if i % 3 == 1 else 0) for i in range(9)]
    futures = Together(table, 9).run(*writes)
    for i, future in enumerate(futures):
        assert isinstance(future.exception(30), Conflict if i % 3 == 1 else type(None))
    counted = {item["i"]: item["n"] for item in table.query("p").items}
    for i in range(9):
        assert (counted[i], counted[i + 10]) == ((0, 0) if i % 3 == 1 else (1, 1))
    assert disk.syncs == 1


def test_writes_of_one_commit_see_each_other_in_order(table: SqliteTable, disk: Disk) -> None:
    def write(n: int) -> Callable[[], Any]:
        return lambda: table.write(Update(Key("p", 0), (Set("n", n + 1),), (Equals("n", n),)))

    futures = Together(table, 5).run(*(write(n) for n in range(5)))
    assert [future.result(30)[0]["n"] for future in futures] == [1, 2, 3, 4, 5]
    assert disk.syncs == 1


def test_nobody_is_told_of_a_conflict_with_what_was_not_committed(table: SqliteTable, disk: Disk) -> None:
    def fail() -> Exception:
        return io_error(apsw.SQLITE_IOERR_FSYNC)

    def take(owner: str) -> Callable[[], Any]:
        return lambda: table.write(Update(Key("p", 0), (Set("owner", owner),), (Absent("owner"),)))

    together = Together(table, 2)
    disk.error = fail
    first, second = together.run(take("a"), take("b"))
    assert isinstance(first.exception(30), Broken)
    assert isinstance(second.exception(30), Broken)


def test_who_waits_while_the_disk_breaks_is_not_written(table: SqliteTable, disk: Disk) -> None:
    def break_and_write(cursor: apsw.Cursor) -> None:
        go.wait(30)
        disk.error = lambda: io_error(apsw.SQLITE_IOERR_FSYNC)
        cursor.execute("UPDATE items SET body = x'80' WHERE i = 0")

    go = threading.Event()
    committer = table.database._committer
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(table.database.write, break_and_write)
        while not committer._led:
            time.sleep(0.001)
        time.sleep(0.02)
        waiting = [pool.submit(table.write, Update(Key("p", i), (Add("n", 1),))) for i in (1, 2)]
        while len(committer._queue) < 2:
            time.sleep(0.001)
        go.set()
        assert [type(future.exception(30)) for future in (first, *waiting)] == [Broken] * 3
    assert disk.syncs == 1


def test_all_of_a_commit_are_told_when_the_disk_is_full(table: SqliteTable, disk: Disk) -> None:
    together = Together(table, 3)
    disk.error = lambda: apsw.FullError("injected")
    futures = together.run(*(lambda i=i: table.write(Update(Key("p", i), (Add("n", 1),))) for i in range(3)))
    errors = [future.exception(30) for future in futures]
    assert [type(error) for error in errors] == [DiskFull] * 3
    assert len({id(error) for error in errors}) == 3
    disk.error = None
    assert table.write(Update(Key("p", 0), (Add("n", 1),)))[0] == {"p": "p", "i": 0, "n": 1}


def test_an_interrupted_leader_leaves_nobody_waiting(table: SqliteTable) -> None:
    def interrupted(_cursor: object) -> None:
        raise KeyboardInterrupt

    def lead() -> Any:
        try:
            return table.database.write(interrupted)
        except KeyboardInterrupt:
            return "interrupted"

    futures = Together(table, 3).run(
        lead, *(lambda i=i: table.write(Update(Key("p", i), (Add("n", 1),))) for i in (1, 2))
    )
    assert futures[0].result(30) == "interrupted"
    for future in futures[1:]:
        assert isinstance(future.exception(30), TimedOut)
    table.write(Update(Key("p", 1), (Add("n", 1),)))
    assert [item["n"] for item in table.query("p", 0, 2).items] == [0, 1, 0]


def test_who_waits_too_long_gives_up_and_the_others_go_on(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "x.db"))
    connection.execute("CREATE TABLE t (n)")
    committer = SqliteCommitter(connection, lambda error: error, lambda: None, 0.2)
    go = threading.Event()

    def add(n: int) -> Callable[[apsw.Cursor], None]:
        return lambda cursor: list(cursor.execute("INSERT INTO t VALUES (?)", (n,))) and None

    with ThreadPoolExecutor(3) as pool:
        leader = pool.submit(committer.run, lambda _cursor: go.wait(30))
        while not committer._led:
            time.sleep(0.001)
        time.sleep(0.05)
        late = pool.submit(committer.run, add(1))
        assert isinstance(late.exception(30), TimedOut)
        patient = pool.submit(committer.run, add(2))
        time.sleep(0.05)
        go.set()
        leader.result(30)
        patient.result(30)
    committer.run(add(3))
    assert connection.execute("SELECT n FROM t").fetchall() == [(2,), (3,)]
    connection.close()
