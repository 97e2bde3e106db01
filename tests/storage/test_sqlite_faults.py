"""What a SQLite database does when the disk, another process or the file itself is in trouble."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.faults.vfs import WatchedVFS, io_error

from tailrace.errors import Broken, Conflict, Damaged, DiskFull, HomeError, Unavailable
from tailrace.storage.database import Database, check_sqlite
from tailrace.storage.journal import FRAME, PAGE
from tailrace.storage.sqlite import SqliteTable
from tailrace.storage.tables import Absent, Add, Check, Key, Put, Set, Update


class Disk:
    """Fails operations on files whose names end so."""

    def __init__(self) -> None:
        self.fail: dict[tuple[str, str], Exception] = {}

    def told(self, what: str, path: Path, _details: Any) -> None:
        for (which, ending), error in self.fail.items():
            if which == what and path.name.endswith(ending):
                raise error


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def vfs(disk: Disk) -> Iterator[str]:
    vfs = WatchedVFS(disk.told)
    yield vfs.name
    vfs.unregister()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home.db"


@pytest.fixture
def table(path: Path, vfs: str, disk: Disk) -> Iterator[SqliteTable]:
    table = SqliteTable(Database(path, vfs=vfs))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    yield table
    disk.fail = {}
    table.close()


def counted(path: Path) -> int:
    table = SqliteTable(Database(path))
    item = table.get(Key("p"))
    table.close()
    assert item is not None
    return int(item["n"])


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.51.3", "3.51.10", "3.52.0", "4.0.0"):
        check_sqlite(version)
    for version in ("3.51.2", "3.9.4", "3.40.1"):
        with pytest.raises(HomeError, match=re.escape(version)):
            check_sqlite(version)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.0")
    with pytest.raises(HomeError, match=r"pip install 'apsw>=3\.51\.3'"):
        Database(path)
    assert not path.exists()


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"dear diary, " * 1000)
    with pytest.raises(HomeError, match=re.escape(f"{path} is not a database")):
        Database(path)
    assert path.read_bytes() == b"dear diary, " * 1000


def test_a_database_of_another_application(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE diary (entry)")
    connection.close()
    with pytest.raises(HomeError, match="another application"):
        Database(path)


def test_a_database_of_a_newer_tailrace(path: Path) -> None:
    Database(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=3")
    connection.close()
    with pytest.raises(HomeError, match="newer tailrace"):
        Database(path)


def test_a_database_with_checksums_is_not_opened_by_who_cannot_keep_them(path: Path) -> None:
    """As with an apsw that was built without them: what it wrote would be damage to all others."""
    table = SqliteTable(Database(path))
    table.write(Put(Key("p"), {"n": 7}, (Absent(),)))
    table.close()
    with pytest.raises(HomeError, match="has checksums, which this installation of apsw cannot keep"):
        Database(path, vfs="unix")
    assert counted(path) == 7


def test_a_last_commit_that_is_missing_after_a_kill_is_told_though_it_is_one_page(path: Path, tmp_path: Path) -> None:
    """The shared memory, which outlives a killed process, says how much of the WAL was committed."""
    wal, image = path.with_name(path.name + "-wal"), tmp_path / "image"
    table = SqliteTable(Database(path))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    before = wal.stat().st_size
    table.write(Update(Key("p"), (Add("n", 1),)))
    assert wal.stat().st_size == before + FRAME + PAGE
    image.mkdir()
    for file in path.parent.glob("home.db*"):
        shutil.copy(file, image)
    table.close()
    assert counted(shutil.copytree(image, tmp_path / "whole") / path.name) == 1
    os.truncate(image / wal.name, before)
    with pytest.raises(Damaged, match="1 pages of commits that were acknowledged"):
        Database(image / path.name)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HomeError, match=re.escape(str(tmp_path / "file"))):
        Database(tmp_path / "file" / "home.db")


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match=re.escape(str(tmp_path))):
        Database(tmp_path)


def test_a_damaged_file(path: Path) -> None:
    table = SqliteTable(Database(path))
    for i in range(50):
        table.write(Put(Key("p", i), {"a": os.urandom(3000)}, (Absent(),)))
    table.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    table = SqliteTable(Database(path))
    for call in (lambda: table.query("p"), lambda: table.write(Update(Key("p", 3), (Set("a", 1),)))):
        with pytest.raises(Damaged, match=re.escape(str(path))) as caught:
            call()
        assert caught.value.where == str(path)
    table.close()


def test_a_lock_that_another_process_keeps(path: Path) -> None:
    table = SqliteTable(Database(path, patience=0.2))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=re.escape(str(path))):
        table.write(Put(Key("p"), {}, (Absent(),)))
    assert 0.15 < time.monotonic() - began < 5
    assert table.get(Key("p")) is None
    other.execute("ROLLBACK")
    table.write(Put(Key("p"), {}, (Absent(),)))
    other.close()
    table.close()


@pytest.mark.parametrize("where", [("write", "-wal"), ("sync", "-wal")])
def test_a_full_disk(table: SqliteTable, path: Path, disk: Disk, where: tuple[str, str]) -> None:
    disk.fail = {where: apsw.FullError("injected")}
    for _ in range(3):
        with pytest.raises(DiskFull, match="disk full"):
            table.write(Update(Key("p"), (Add("n", 1), Set("a", b"x" * 20_000))))
        assert table.get(Key("p")) == {"p": "p", "i": 0, "n": 0}
    with pytest.raises(Conflict):
        table.write(Check(Key("none")))
    disk.fail = {}
    table.write(Update(Key("p"), (Add("n", 1),)))
    table.close()
    assert counted(path) == 1


@pytest.mark.parametrize(
    ("what", "code"), [("sync", apsw.SQLITE_IOERR_FSYNC), ("write", apsw.SQLITE_IOERR_WRITE)], ids=["sync", "write"]
)
def test_a_failing_disk_breaks_the_handle_for_good(
    table: SqliteTable, path: Path, disk: Disk, what: str, code: int
) -> None:
    table.write(Update(Key("p"), (Add("n", 1),)))
    disk.fail = {(what, "-wal"): io_error(code)}
    with pytest.raises(Broken, match=re.escape(str(path))):
        table.write(Update(Key("p"), (Add("n", 1),)))
    disk.fail = {}
    for call in (
        lambda: table.write(Update(Key("p"), (Add("n", 1),))),
        lambda: table.get(Key("p")),
        lambda: table.query("p"),
        table.data_version,
    ):
        with pytest.raises(Broken):
            call()
    table.close()
    assert counted(path) in (1, 2)


@pytest.mark.parametrize("half", ["beside commits", "between commits"])
def test_a_checkpoint_that_fails_breaks_the_handle(
    path: Path, vfs: str, disk: Disk, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    monkeypatch.setattr("tailrace.storage.checkpointer.LIMIT", 64 * 1024)
    table = SqliteTable(Database(path, vfs=vfs))
    if half == "beside commits":
        monkeypatch.setattr(table.database._checkpointer, "_between", lambda work: None)
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    disk.fail = {("sync", ".db"): io_error(apsw.SQLITE_IOERR_FSYNC)}
    answered, end = 0, time.monotonic() + 20
    with pytest.raises(Broken):
        while time.monotonic() < end:
            table.write(Update(Key("p"), (Add("n", 1), Set("a", os.urandom(5000)))))
            answered += 1
    assert answered > 0
    disk.fail = {}
    table.close()
    assert counted(path) >= answered


def test_a_checkpoint_on_a_full_disk_is_tried_again(
    path: Path, vfs: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.storage.checkpointer.LIMIT", 64 * 1024)
    table = SqliteTable(Database(path, vfs=vfs))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    disk.fail = {("write", ".db"): apsw.FullError("injected")}
    for n in range(60):
        if n == 40:
            disk.fail = {}
        table.write(Update(Key("p"), (Add("n", 1), Set("a", os.urandom(5000)))))
    table.close()
    assert counted(path) == 60
