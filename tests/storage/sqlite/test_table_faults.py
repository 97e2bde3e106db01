"""What a SQLite database does when the disk, another process or the file itself is in trouble."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from tailrace.errors import Broken, Conflict, Damaged, DiskFull, HomeError, TooManyFiles, Unavailable
from tailrace.storage.local.files import Files, SyncFailed
from tailrace.storage.sqlite import watermark
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.database_file import check_sqlite
from tailrace.storage.sqlite.journal import PAGE_BYTES
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.sqlite.watermark import FRAME_HEADER_BYTES
from tailrace.storage.tables import Absent, Add, Check, Key, Put, Set, Update
from tests.descriptors import limit_for
from tests.faults.vfs import WatchedVFS, io_error


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
    table = SqliteTable(SqliteDatabase(path, vfs=vfs))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    yield table
    disk.fail = {}
    table.close()


def counted(path: Path) -> int:
    table = SqliteTable(SqliteDatabase(path))
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
        SqliteDatabase(path)
    assert not path.exists()


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"dear diary, " * 1000)
    with pytest.raises(HomeError, match=re.escape(f"{path} is not a database")):
        SqliteDatabase(path)
    assert path.read_bytes() == b"dear diary, " * 1000


def test_a_database_of_another_application(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE diary (entry)")
    connection.close()
    with pytest.raises(HomeError, match="another application"):
        SqliteDatabase(path)


def test_a_database_of_a_newer_tailrace(path: Path) -> None:
    SqliteDatabase(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=3")
    connection.close()
    with pytest.raises(HomeError, match="newer tailrace"):
        SqliteDatabase(path)


def test_a_database_with_checksums_is_not_opened_by_who_cannot_keep_them(path: Path) -> None:
    """As with an apsw that was built without them: what it wrote would be damage to all others."""
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("p"), {"n": 7}, (Absent(),)))
    table.close()
    with pytest.raises(HomeError, match="has checksums, which this installation of apsw cannot keep"):
        SqliteDatabase(path, vfs="unix")
    assert counted(path) == 7


def test_a_last_commit_that_is_missing_after_a_kill_is_told_though_it_is_one_page(path: Path, tmp_path: Path) -> None:
    """The shared memory, which outlives a killed process, says how much of the WAL was committed."""
    wal, image = path.with_name(path.name + "-wal"), tmp_path / "image"
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    before = wal.stat().st_size
    table.write(Update(Key("p"), (Add("n", 1),)))
    assert wal.stat().st_size == before + FRAME_HEADER_BYTES + PAGE_BYTES
    image.mkdir()
    for file in path.parent.glob("home.db*"):
        shutil.copy(file, image)
    table.close()
    assert counted(shutil.copytree(image, tmp_path / "whole") / path.name) == 1
    os.truncate(image / wal.name, before)
    with pytest.raises(Damaged, match="1 pages of commits that were acknowledged"):
        SqliteDatabase(image / path.name)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HomeError, match=re.escape(str(tmp_path / "file"))):
        SqliteDatabase(tmp_path / "file" / "home.db")


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match=re.escape(str(tmp_path))):
        SqliteDatabase(tmp_path)


def test_a_damaged_file(path: Path) -> None:
    table = SqliteTable(SqliteDatabase(path))
    for i in range(50):
        table.write(Put(Key("p", i), {"a": os.urandom(3000)}, (Absent(),)))
    table.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    table = SqliteTable(SqliteDatabase(path))
    for call in (lambda: table.query("p"), lambda: table.write(Update(Key("p", 3), (Set("a", 1),)))):
        with pytest.raises(Damaged, match=re.escape(str(path))) as caught:
            call()
        assert caught.value.where == str(path)
    table.close()


def test_a_lock_that_another_process_keeps(path: Path) -> None:
    table = SqliteTable(SqliteDatabase(path, patience=0.2))
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
    monkeypatch.setattr("tailrace.storage.sqlite.checkpointer.CHECKPOINT_BYTES", 64 * 1024)
    table = SqliteTable(SqliteDatabase(path, vfs=vfs))
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
    monkeypatch.setattr("tailrace.storage.sqlite.checkpointer.CHECKPOINT_BYTES", 64 * 1024)
    table = SqliteTable(SqliteDatabase(path, vfs=vfs))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    disk.fail = {("write", ".db"): apsw.FullError("injected")}
    for n in range(60):
        if n == 40:
            disk.fail = {}
        table.write(Update(Key("p"), (Add("n", 1), Set("a", os.urandom(5000)))))
    table.close()
    assert counted(path) == 60


class NamesLost(Files):
    """From now on the folder's next sync fails, whoever asks for it first, and the one after it succeeds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.failing = folder, False

    def sync_folder(self, folder: Path) -> None:
        if folder == self.folder and self.failing:
            self.failing = False
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO), str(folder))
        super().sync_folder(folder)


def test_a_wal_whose_name_could_not_be_made_durable(path: Path, disk: Disk) -> None:
    """SQLite syncs the folder of a new WAL with the first commit, and does not look at the answer."""
    files, vfs = NamesLost(path.parent), WatchedVFS(disk.told)
    SqliteTable(SqliteDatabase(path, files=files)).close()

    def told(what: str, file: Path, _details: Any) -> None:
        if what == "create" and file.name.endswith("-wal"):
            files.failing = True
        if what == "sync" and file.name.endswith("-wal"):
            files.failing = False

    vfs.told = told
    with pytest.raises(Broken, match=r"Input/output error.*open the home again"):
        SqliteTable(SqliteDatabase(path, files=files, vfs=vfs.name)).write(Put(Key("p"), {"n": 1}, (Absent(),)))
    table = SqliteTable(SqliteDatabase(path))
    assert table.get(Key("p")) is None
    table.close()
    vfs.unregister()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(options: str) -> Path:
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("cannot mount a small disk here")
        return folder

    yield mounted
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)  # nothing there is still open


@pytest.mark.parametrize("pages", range(0, 16, 2))
def test_a_database_opened_on_a_full_disk(small_disk: Callable[[str], Path], pages: int) -> None:
    """However many pages are free, it is the disk that is full: the database is neither broken nor away."""
    folder = small_disk("size=1m")
    path = folder / "home.db"
    SqliteTable(SqliteDatabase(path)).close()
    with (folder / "filling").open("wb", buffering=0) as file:
        with suppress(OSError):
            while file.write(bytes(4096)):
                pass
        file.truncate(file.tell() - pages * 4096)
    with pytest.raises(DiskFull, match="free some space"), closing(SqliteTable(SqliteDatabase(path))) as table:
        for n in range(10):
            table.write(Put(Key("p", n), {"a": os.urandom(60_000)}, (Absent(),)))
    (folder / "filling").unlink()
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("q"), {}, (Absent(),)))
    table.close()


@pytest.mark.parametrize("inodes", range(1, 4))
def test_a_database_opened_where_no_inode_is_left(small_disk: Callable[[str], Path], inodes: int) -> None:
    """The folder has one; the database, its journal and the shared memory need three."""
    folder = small_disk(f"size=1m,nr_inodes={inodes}")
    with pytest.raises(DiskFull, match="free some space"):
        SqliteDatabase(folder / "home.db")


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    """Leaves a process so many file descriptors."""
    taken: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(count: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, limit_for(50)), hard))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())

    yield leave
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", range(3))
def test_no_descriptor_left_to_open_a_database(path: Path, few_descriptors: Callable[[int], None], left: int) -> None:
    SqliteTable(SqliteDatabase(path)).close()
    few_descriptors(left)
    with pytest.raises(TooManyFiles, match="ulimit -n"):
        SqliteDatabase(path)


def test_no_descriptor_left_to_read_with(path: Path, few_descriptors: Callable[[int], None]) -> None:
    table = SqliteTable(SqliteDatabase(path))
    table.database._drain()
    few_descriptors(0)
    with pytest.raises(TooManyFiles):
        table.get(Key("p"))
    table.write(Put(Key("p"), {"n": 1}, (Absent(),)))  # the writer has its connection
    table.close()


# --- a WAL that was cut while its shared memory is gone
def image_of(path: Path, to: Path) -> Path:
    """The files as a kill would leave them, without the shared memory; gives the database's path."""
    to.mkdir()
    for end in ("", "-wal", "-mark"):
        shutil.copy(path.with_name(path.name + end), to)
    return to / path.name


def add(table: SqliteTable, size: int = 10) -> None:
    table.write(Update(Key("p"), (Add("n", 1), Set("a", os.urandom(size)))))


def wal_size(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


def cut_images(path: Path, sizes: list[int], folder: Path) -> Iterator[Path]:
    for number, size in enumerate(sizes):
        image = image_of(path, folder / str(number))
        os.truncate(f"{image}-wal", size)
        yield image


@pytest.mark.parametrize("writers", [1, 2])
def test_a_cut_wal_is_told_though_its_shared_memory_is_gone(path: Path, tmp_path: Path, writers: int) -> None:
    """Wherever it is cut, also where a commit ends; with two writers each notes the commits of its own."""
    tables = [SqliteTable(SqliteDatabase(path)) for _ in range(writers)]
    tables[0].write(Put(Key("p"), {"n": 0}, (Absent(),)))
    sizes = [0, 10, 32]
    for n in range(6):
        sizes.append(wal_size(path))
        add(tables[n % writers], 3000 * n)
    assert counted(image_of(path, tmp_path / "whole")) == 6
    for image in cut_images(path, [*sizes, sizes[-1] + 1, wal_size(path) - 1], tmp_path):
        with pytest.raises(Damaged, match=r"pages of commits that were acknowledged.*rm -f .*-mark"):
            SqliteDatabase(image)
    for table in tables:
        table.close()
    assert counted(path) == 6


def test_a_wal_that_has_begun_again(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first commit after that nothing is noted; with the second both are."""
    monkeypatch.setattr("tailrace.storage.sqlite.checkpointer.CHECKPOINT_BYTES", 128 * 1024)
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    done, noted = 0, watermark.read(path)
    deadline = time.monotonic() + 60
    while done < 20 or (now := watermark.read(path)) is None or noted is None or now.salts == noted.salts:
        assert time.monotonic() < deadline
        add(table, 5000)
        done += 1
    assert counted(image_of(path, tmp_path / "whole")) == done
    first = (32, 32 + now.frames // 2 * (FRAME_HEADER_BYTES + PAGE_BYTES))
    for image in cut_images(path, [*first], tmp_path):
        with pytest.raises(Damaged):
            SqliteDatabase(image)
    table.close()


def test_what_was_noted_of_a_wal_that_is_gone_is_forgotten(path: Path, tmp_path: Path) -> None:
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    add(table)
    assert watermark.read(path) is not None
    table.close()
    table = SqliteTable(SqliteDatabase(path))
    assert watermark.read(path) is None
    image = image_of(path, tmp_path / "killed before its first commit")
    assert wal_size(image) == 0
    assert counted(image) == 1
    table.close()


def test_a_damaged_watermark_says_nothing(path: Path) -> None:
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    table.close()
    mark = watermark.path_of(path)
    data = mark.read_bytes()
    for wrong in (b"", data[:20], bytes(24), data[:19] + bytes([data[19] ^ 1]) + data[20:], b"x" * 24):
        mark.write_bytes(wrong)
        assert watermark.read(path) is None
        assert counted(path) == 0


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_database_that_was_taken_away_is_not_written(tmp_path: Path, how: str) -> None:
    path = tmp_path / "home" / "home.db"
    path.parent.mkdir()
    table = SqliteTable(SqliteDatabase(path))
    table.write(Put(Key("p"), {"n": 0}, (Absent(),)))
    path.parent.rename(tmp_path / "elsewhere")
    if how == "removed":
        shutil.rmtree(tmp_path / "elsewhere")
    elif how == "replaced":
        path.parent.mkdir()
        another = SqliteTable(SqliteDatabase(path))
        another.write(Put(Key("p"), {"n": 7}, (Absent(),)))
    with pytest.raises(Broken, match=r"home\.db was removed, moved or replaced while it was open.*restore"):
        table.write(Update(Key("p"), (Add("n", 1),)))
    with pytest.raises(Broken):
        table.get(Key("p"))
    table.close()
    if how == "replaced":
        assert path.with_name("home.db-wal").exists(), "the WAL of the one in its place was removed"
        another.close()
        assert counted(path) == 7
