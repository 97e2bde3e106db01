"""Tables in SQLite: the contract, one file for several tables, and many processes on it."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tailrace.errors import BadName, Closed, Conflict
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Add, Check, Key, Put, Set, Update
from tailrace.testing.tablecases import at_once
from tailrace.testing.tablecontract import TableContract
from tests.faults.vfs import WatchedVFS

COUNT = """
import sys
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Add, Key, Update

table = SqliteTable(SqliteDatabase(sys.argv[1]))
me, times = int(sys.argv[2]), int(sys.argv[3])
for _ in range(times):
    table.write(Update(Key("shared"), (Add("n", 1),)), Update(Key("own", me), (Add("n", 1),)))
    print("done", flush=True)
"""


class TestContract(TableContract):
    @pytest.fixture
    def table(self, tmp_path: Path) -> Iterator[SqliteTable]:
        table = SqliteTable(SqliteDatabase(tmp_path / "home.db"))
        yield table
        table.close()


class TestContractWithCapture(TableContract):
    @pytest.fixture
    def table(self, tmp_path: Path) -> Iterator[SqliteTable]:
        table = SqliteTable(SqliteDatabase(tmp_path / "home.db"), "captured")
        table.capture("both")
        yield table
        table.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "home.db"


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    table = SqliteTable(SqliteDatabase(path))
    yield table
    table.close()


def counter(path: Path, worker: int, times: int) -> subprocess.Popen[str]:
    """A process that counts."""
    arguments = [sys.executable, "-c", COUNT, str(path), str(worker), str(times)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> int:
    """How often it was answered."""
    out, err = process.communicate(timeout=120)
    assert not err, err
    return out.count("done\n")


def killed_after(process: subprocess.Popen[str], answers: int) -> int:
    """How often it was answered before it was killed, which is some time after this many."""
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [process.stdout.readline() for _ in range(answers)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60) == -signal.SIGKILL
    return lines.count("done\n")


def integrity(path: Path) -> object:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute("PRAGMA integrity_check").fetchall()
    finally:
        connection.close()


def test_what_it_makes_is_for_its_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        table = SqliteTable(SqliteDatabase(path))
        table.write(Put(Key("p"), {}, (Absent(),)))
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"home.db": 0o600, "home.db-wal": 0o600, "home.db-shm": 0o600, "home.db-mark": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    table.close()
    assert {file.name for file in path.parent.iterdir()} == {"home.db", "home.db-mark"}


def test_items_are_there_when_it_is_opened_again(path: Path) -> None:
    for n in range(3):
        table = SqliteTable(SqliteDatabase(path))
        assert len(table.query("p").items) == n
        table.write(Put(Key("p", n), {"n": n}, (Absent(),)))
        table.close()


def test_tables_share_a_database_until_the_last_is_closed(path: Path) -> None:
    database = SqliteDatabase(path)
    one, two = SqliteTable(database, "one"), SqliteTable(database, "two")
    one.write(Put(Key("p"), {"of": "one"}, (Absent(),)))
    two.write(Put(Key("p"), {"of": "two"}, (Absent(),)))
    assert [table.get(Key("p"))["of"] for table in (one, two)] == ["one", "two"]  # type: ignore[index]
    one.close()
    one.close()
    with pytest.raises(Closed, match="one"):
        one.get(Key("p"))
    two.write(Update(Key("p"), (Set("of", "both"),)))
    two.close()
    with pytest.raises(Closed, match=re.escape(str(path))):
        database.data_version()


@pytest.mark.parametrize("name", ["", "Items", "a-b", "sqlite_x", "a;drop", "1a", "a" * 64, "items_key"])
def test_names_of_tables(path: Path, name: str) -> None:
    database = SqliteDatabase(path)
    with pytest.raises(BadName):
        SqliteTable(database, name)
    database.close()


def test_a_read_holds_no_snapshot(table: SqliteTable, path: Path) -> None:
    for i in range(5):
        table.write(Put(Key("p", i), {"a": b"x" * 300_000}, (Absent(),)))
    assert table.query("p").more is not None
    assert table.get(Key("p", 1))
    other = apsw.Connection(str(path))
    assert other.execute("SELECT count(*) FROM items").fetchall() == [(5,)]
    assert other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
    other.close()


def test_the_data_version_tells_of_any_commit(table: SqliteTable, path: Path) -> None:
    seen = [table.data_version()]
    assert table.data_version() == seen[0]
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    seen.append(table.data_version())
    other = SqliteTable(SqliteDatabase(path))
    other.write(Update(Key("p"), (Add("n", 1),)))
    other.close()
    seen.append(table.data_version())
    with pytest.raises(Conflict):
        table.write(Check(Key("none")))
    assert table.data_version() == seen[-1]
    assert len(set(seen)) == 3


def test_many_open_a_new_database_at_once(path: Path) -> None:
    def work(worker: int) -> None:
        table = SqliteTable(SqliteDatabase(path))
        table.write(Put(Key("p", worker), {}, (Absent(),)))
        table.close()

    at_once(8, work)
    table = SqliteTable(SqliteDatabase(path))
    assert [item["i"] for item in table.query("p").items] == list(range(8))
    table.close()


def test_many_processes_open_a_new_database_and_count(path: Path) -> None:
    script = COUNT.replace("me, times", "from tailrace.storage.tables import *\nme, times").replace(
        "for _ in range(times):",
        "for key in (Key('shared'), Key('own', me)):\n"
        "    try: table.write(Put(key, {'n': 0}, (Absent(),)))\n"
        "    except Exception as error: assert type(error).__name__ == 'Conflict', error\n"
        "for _ in range(times):",
    )
    arguments = [[sys.executable, "-c", script, str(path), str(worker), "50"] for worker in range(4)]
    processes = [subprocess.Popen(a, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for a in arguments]
    assert [finished(process) for process in processes] == [50] * 4
    table = SqliteTable(SqliteDatabase(path))
    assert table.get(Key("shared")) == {"p": "shared", "i": 0, "n": 200}
    assert [item["n"] for item in table.query("own").items] == [50] * 4
    table.close()


def test_killed_processes_lose_nothing_they_were_answered(path: Path) -> None:
    table = SqliteTable(SqliteDatabase(path))
    table.write(*(Put(key, {"n": 0}, (Absent(),)) for key in (Key("shared"), *(Key("own", i) for i in range(4)))))
    processes = [counter(path, worker, 1_000_000 if worker < 3 else 300) for worker in range(4)]
    answered = [killed_after(process, 30) for process in processes[:3]] + [finished(processes[3])]
    counted = [item["n"] for item in table.query("own").items]
    for worker in range(3):
        assert answered[worker] <= counted[worker] <= answered[worker] + 1
    assert counted[3] == answered[3] == 300
    assert table.get(Key("shared")) == {"p": "shared", "i": 0, "n": sum(counted)}
    table.close()
    assert integrity(path) == [("ok",)]


FORK = """
import os, sys
from tailrace.errors import HomeError
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Add, Key, Put, Update

table = SqliteTable(SqliteDatabase(sys.argv[1]))
table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
closed = SqliteDatabase(sys.argv[1] + "-closed")
closed.close()
child = os.fork()
if child == 0:
    def refused(call):
        try:
            call()
        except HomeError as error:
            return "fork" in str(error)
    ok = refused(lambda: table.get(Key("p"))) and refused(lambda: table.write(Update(Key("p"), (Add("n", 1),))))
    ok = ok and refused(lambda: SqliteDatabase(sys.argv[1])) and refused(lambda: table.data_version())
    table.close()
    SqliteDatabase(sys.argv[1] + "-closed").close()
    sys.exit(0 if ok else 3)
assert os.waitpid(child, 0)[1] == 0
table.write(Update(Key("p"), (Add("n", 1),)))
assert table.get(Key("p"))["n"] == 1
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on(path: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, str(path)], check=True, timeout=60)
    assert integrity(path) == [("ok",)]


def test_the_wal_stays_short_under_writers_that_never_pause(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the checkpointer has copied everything, there is one more commit: it can only finish between two."""
    limit = 128 * 1024
    monkeypatch.setattr("tailrace.storage.sqlite.checkpointer.CHECKPOINT_BYTES", limit)
    finishing = False

    def one_more(what: str, file: Path, _details: object) -> None:
        copying = threading.current_thread().name == "tailrace-checkpointer" and not finishing
        if copying and what == "sync" and file == path:
            table.write(Update(Key("p", 2), (Add("n", 1),)))

    def finish(work: Callable[[apsw.Cursor], None]) -> None:
        nonlocal finishing
        finishing = True
        between(work)
        finishing = False

    vfs = WatchedVFS(one_more)
    table = SqliteTable(SqliteDatabase(path, vfs=vfs.name))
    between = table.database._checkpointer._between
    monkeypatch.setattr(table.database._checkpointer, "_between", finish)
    table.write(Put(Key("p", 1), {}, (Absent(),)), Put(Key("p", 2), {"n": 0}, (Absent(),)))
    writes = counted = 0
    while writes < 400 or (counted <= 3 and writes < 10_000):  # on a busy machine the checkpointer's turn comes late
        table.write(Update(Key("p", 1), (Set("body", os.urandom(5000)),)))
        writes, counted = writes + 1, (table.get(Key("p", 2)) or {})["n"]
    length = os.path.getsize(f"{path}-wal")
    table.close()
    vfs.unregister()
    assert counted > 3
    assert length < writes * 5000 / 2
