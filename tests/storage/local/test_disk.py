"""Objects on disk: the contract, names, rights, and what a failing disk does."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tailrace.errors import (
    AlreadyThere,
    BadName,
    Broken,
    Closed,
    Damaged,
    DiskFull,
    ObjectMissing,
    TooManyFiles,
    Unavailable,
)
from tailrace.storage.local.disk import BYTES_PER_STEP, DiskObjects, SharedSync, in_steps
from tailrace.storage.local.files import Files
from tailrace.storage.objects import Bytes
from tailrace.testing.objectscontract import ObjectsContract
from tailrace.testing.tablecases import at_once


class Failing(Files):
    """Fails where it is told to, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.fail: dict[str, int] = {}
        self.asked: list[str] = []
        self.synced: list[Path] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if code := self.fail.get(what):
            raise OSError(code, os.strerror(code))

    def create(self, path: Path) -> int:
        self._ask("create")
        return super().create(path)

    def write(self, descriptor: int, parts: Sequence[Bytes]) -> None:
        if "write" in self.fail:
            super().write(descriptor, parts[:1])
        self._ask("write")
        super().write(descriptor, parts)

    def push(self, descriptor: int, at: int, size: int) -> None:
        self._ask("push")
        super().push(descriptor, at, size)

    def sync(self, descriptor: int) -> None:
        self._ask("sync_folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync")
        super().sync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        self.synced.append(folder)
        self._ask(f"sync {folder}")
        self.asked.pop()
        super().sync_folder(folder)

    def make_folder(self, folder: Path) -> bool:
        self._ask("make_folder")
        return super().make_folder(folder)


@pytest.fixture
def files() -> Failing:
    return Failing()


@pytest.fixture
def disk(tmp_path: Path, files: Failing) -> DiskObjects:
    return DiskObjects(tmp_path / "objects", files=files)


class TestContract(ObjectsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> Iterator[DiskObjects]:
        objects = DiskObjects(tmp_path / "objects")
        yield objects
        objects.close()


def test_bytes_are_durable_before_their_name_and_both_before_the_answer(disk: DiskObjects, files: Failing) -> None:
    disk.put("7/a", [b"x"])
    assert files.asked[:4] == ["make_folder", "make_folder", "sync_folder", "sync_folder"]
    assert files.asked[-4:] == ["create", "write", "sync", "sync_folder"]
    files.asked.clear()
    disk.put("7/b", [b"x"])
    assert files.asked == ["create", "write", "sync", "sync_folder"]


def test_a_folder_that_somebody_else_has_just_made_is_made_durable(
    disk: DiskObjects, files: Failing, tmp_path: Path
) -> None:
    (tmp_path / "objects" / "7").mkdir(parents=True)
    disk.put("7/a", [b"x"])
    assert files.synced[:2] == [tmp_path / "objects", tmp_path]
    assert files.synced[-1] == tmp_path / "objects" / "7"


def test_folders_above_that_cannot_be_synced_are_not_ours(disk: DiskObjects, files: Failing) -> None:
    files.fail = {"sync /": errno.EACCES}
    disk.put("7/a", [b"x"])
    assert Path("/") in files.synced


def test_what_it_makes_is_for_its_owner_alone(disk: DiskObjects, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk.put("7/a", [b"x"])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "objects").rglob("*")}
    assert modes == {"7": 0o700, "a": 0o600}
    assert stat.S_IMODE((tmp_path / "objects").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "..", "a/../b", "../a", "./a", "a/.", "nul\0"])
def test_names_that_lead_elsewhere_are_refused(disk: DiskObjects, name: str) -> None:
    for call in (lambda: disk.put(name, [b"x"]), lambda: disk.get(name), lambda: disk.delete([name])):
        with pytest.raises(BadName):
            call()
    with pytest.raises(BadName):
        list(disk.list(name + "x"))


def test_a_name_is_used_once(disk: DiskObjects) -> None:
    disk.put("a", [b"first"])
    with pytest.raises(AlreadyThere, match="'a'"):
        disk.put("a", [b"second"])
    assert disk.get("a") == b"first"


def test_a_folder_is_not_an_object(disk: DiskObjects) -> None:
    disk.put("a/b", [b"x"])
    for name in ("a", "a/b/c"):
        with pytest.raises(ObjectMissing):
            disk.get(name)


def test_more_parts_than_one_call_takes(disk: DiskObjects) -> None:
    disk.put("a", [b"%d," % n for n in range(5000)])
    assert disk.get("a") == b"".join(b"%d," % n for n in range(5000))


def test_a_write_that_stops_half_way_goes_on(disk: DiskObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: writev(fd, [memoryview(parts[0])[:3]]))
    disk.put("a", [b"hello ", b"", memoryview(b"world"), bytearray(b"!")])
    assert disk.get("a") == b"hello world!"


def test_a_folder_removed_meanwhile_is_made_again(disk: DiskObjects, tmp_path: Path) -> None:
    disk.put("7/a", [b"x"])
    disk.delete(["7/a"])
    (tmp_path / "objects" / "7").rmdir()
    disk.put("7/b", [b"y"])
    assert disk.get("7/b") == b"y"


@pytest.mark.parametrize("where", ["create", "write", "sync", "sync_folder", "make_folder"])
def test_a_full_disk(disk: DiskObjects, files: Failing, tmp_path: Path, where: str) -> None:
    files.fail = {where: errno.ENOSPC}
    with pytest.raises(DiskFull, match=r"disk full.*'7/a'"):
        disk.put("7/a", [b"first", b"second"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    files.fail = {}
    disk.put("7/a", [b"first", b"second"])
    assert disk.get("7/a") == b"firstsecond"


@pytest.mark.parametrize("where", ["write", "sync", "sync_folder"])
def test_a_failing_disk_breaks_the_handle_for_good(
    disk: DiskObjects, files: Failing, tmp_path: Path, where: str
) -> None:
    disk.put("7/before", [b"x"])
    files.fail = {where: errno.EIO}
    with pytest.raises(Broken, match="objects"):
        disk.put("7/a", [b"x"])
    files.fail = {}
    for call in (
        lambda: disk.put("7/b", [b"x"]),
        lambda: disk.get("7/before"),
        lambda: disk.list("7/"),
        lambda: disk.delete(["7/before"]),
    ):
        with pytest.raises(Broken):
            call()
    assert DiskObjects(tmp_path / "objects").get("7/before") == b"x"


class OneSlowFailure(Files):
    """The first sync of a folder, once `armed`, waits for `go` and fails; like the kernel it says so to nobody else."""

    def __init__(self, code: int) -> None:
        self.code, self.armed = code, False
        self.reached, self.go = threading.Event(), threading.Event()
        self.created = threading.Semaphore(0)

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self.created.release()
        return descriptor

    def sync(self, descriptor: int) -> None:
        if self.armed and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.armed = False
            self.reached.set()
            self.go.wait(60)
            raise OSError(self.code, os.strerror(self.code))
        super().sync(descriptor)


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, Broken), (errno.EROFS, Broken), (errno.ENOSPC, DiskFull)])
def test_a_failed_sync_of_a_folder_fails_every_put_under_way(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    """The kernel drops what it could not write, says so once, and answers the next sync with success."""
    files = OneSlowFailure(code)
    disk = DiskObjects(tmp_path / "objects", files=files)
    disk.put("7/before", [b"x"])
    files.armed = True
    while files.created.acquire(blocking=False):
        pass
    with ThreadPoolExecutor(4) as pool:
        puts = [pool.submit(disk.put, "7/0", [b"x"])]
        assert files.reached.wait(60)
        puts += [pool.submit(disk.put, f"7/{n}", [b"x"]) for n in range(1, 4)]
        for _ in range(4):
            assert files.created.acquire(timeout=60)
        files.go.set()
        assert [type(put.exception(60)) for put in puts] == [kind] * 4
    assert sorted(DiskObjects(tmp_path / "objects").list("")) == [("7/before", 1)]
    if kind is Broken:
        with pytest.raises(Broken):
            disk.put("7/after", [b"x"])
    else:
        disk.put("7/after", [b"x"])


def test_a_failed_sync_of_a_folder_just_made_fails_who_made_it_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OneSlowFailure(errno.ENOSPC)
    files.armed = True
    disk = DiskObjects(tmp_path / "objects", files=files)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(disk.put, "7/0", [b"x"])
        assert files.reached.wait(60)
        entered, create = threading.Event(), disk._create
        monkeypatch.setattr(disk, "_create", lambda path: (entered.set(), create(path))[1])
        second = pool.submit(disk.put, "7/1", [b"x"])
        assert entered.wait(60)
        files.go.set()
        assert [type(put.exception(60)) for put in (first, second)] == [DiskFull] * 2


def test_a_folder_that_cannot_be_opened_for_its_sync_fails_one_put_alone(disk: DiskObjects, files: Failing) -> None:
    """No sync has failed, so the next one tells the truth."""
    disk.put("7/a", [b"x"])
    files.fail = {f"sync {disk._folder / '7'}": errno.EMFILE}
    with pytest.raises(TooManyFiles, match=r"'7/b'.*ulimit -n"):
        disk.put("7/b", [b"x"])
    files.fail = {}
    disk.put("7/c", [b"x"])


def test_other_trouble_is_told_and_passes(disk: DiskObjects, files: Failing) -> None:
    files.fail = {"create": errno.EACCES}
    with pytest.raises(Unavailable, match=r"'a'.*Permission denied"):
        disk.put("a", [b"x"])
    files.fail = {}
    disk.put("a", [b"x"])


def test_calls_after_close_are_refused(disk: DiskObjects) -> None:
    disk.put("a", [b"x"])
    got = disk.get("a")
    disk.close()
    with pytest.raises(Closed):
        disk.get("a")
    with pytest.raises(Closed):
        disk.list("")
    assert got == b"x"


def test_everything_can_be_listed(disk: DiskObjects) -> None:
    assert list(disk.list("")) == []
    disk.put("a", [b"1"])
    disk.put("b/c", [b"22"])
    assert sorted(disk.list("")) == [("a", 1), ("b/c", 2)]


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [10], [5 * BYTES_PER_STEP, 3, 0, 7 * BYTES_PER_STEP + 1], [BYTES_PER_STEP // 3] * 20, [BYTES_PER_STEP]],
)
def test_steps_are_all_bytes_in_their_order(sizes: list[int]) -> None:
    parts = [os.urandom(size) for size in sizes]
    steps = [b"".join(some) for some in in_steps(parts)]
    assert b"".join(steps) == b"".join(parts)
    assert all(len(step) == BYTES_PER_STEP for step in steps[:-1])
    assert len(steps) == 1 or steps[-1]


def test_a_large_object_goes_to_the_disk_step_by_step_and_is_made_durable_once(
    disk: DiskObjects, files: Failing
) -> None:
    disk.put("7/small", [b"x"])
    files.asked.clear()
    whole = os.urandom(3 * BYTES_PER_STEP + 5)
    disk.put("7/large", [whole])
    assert files.asked == ["create", *["write", "push"] * 4, "sync", "sync_folder"]
    assert bytes(disk.get("7/large")) == whole


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_under_a_step_is_told(disk: DiskObjects, files: Failing, code: int) -> None:
    """The error is not told again by the sync."""
    files.fail = {"push": code}
    with pytest.raises(Broken if code == errno.EIO else DiskFull):
        disk.put("7/large", [bytes(2 * BYTES_PER_STEP)])


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EIO])
def test_pushing_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int) -> None:
    import ctypes

    def refused(*_: int) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr("tailrace.storage.local.files._push", refused)
    disk = DiskObjects(tmp_path / "objects")
    if code == errno.EIO:
        with pytest.raises(Broken):
            disk.put("a", [bytes(2 * BYTES_PER_STEP)])
    else:
        disk.put("a", [bytes(2 * BYTES_PER_STEP)])
        assert len(disk.get("a")) == 2 * BYTES_PER_STEP
    monkeypatch.setattr("tailrace.storage.local.files._push", None)
    other = DiskObjects(tmp_path / "others")
    other.put("b", [bytes(2 * BYTES_PER_STEP)])
    assert len(other.get("b")) == 2 * BYTES_PER_STEP


def test_a_sync_serves_those_who_asked_before_it_began() -> None:
    began: list[float] = []
    lock = threading.Lock()

    def slow() -> None:
        with lock:
            began.append(time.monotonic())
        time.sleep(0.05)

    shared = SharedSync(slow)

    def ask(_: int) -> tuple[float, float]:
        asked = time.monotonic()
        shared.sync()
        return asked, time.monotonic()

    for asked, answered in at_once(16, ask):
        assert any(asked <= start <= answered - 0.05 for start in began)
    assert len(began) <= 3


class BadSector(Files):
    """A disk that cannot read some bytes of every file."""

    def __init__(self, first: int, end: int) -> None:
        self.first, self.end = first, end

    def read(self, descriptor: int, into: memoryview, position: int) -> int:
        if position < self.end and position + len(into) > self.first:
            if position >= self.first:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            into = into[: self.first - position]
        return super().read(descriptor, into, position)


def test_bytes_that_the_disk_cannot_read_are_damage_and_the_others_are_there(tmp_path: Path) -> None:
    data = os.urandom(20_000)
    disk = DiskObjects(tmp_path / "objects", files=BadSector(8192, 12288))
    disk.put("7/a", [data])
    for call in (lambda: disk.get("7/a"), lambda: disk.get_ranges("7/a", [(0, 10), (9000, 10)])):
        with pytest.raises(Damaged, match=r"'7/a'.*I/O error.*from a copy") as caught:
            call()
        assert caught.value.where == "7/a"
    assert disk.get_ranges("7/a", [(0, 8192), (12288, 100_000)]) == [data[:8192], data[12288:]]
    disk.put("7/b", [b"the handle is not broken"])


def test_a_reference_to_more_bytes_than_there_are_takes_no_memory_for_them(disk: DiskObjects) -> None:
    disk.put("7/a", [b"x" * 100])
    assert disk.get_ranges("7/a", [(90, 1 << 50), (1 << 50, 10), (0, 0)]) == [b"x" * 10, b"", b""]


def test_objects_that_are_held_use_no_descriptors(disk: DiskObjects) -> None:
    """Nor does an object that somebody cuts while it is held kill the process."""
    disk.put("7/a", [b"x" * 100_000])
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    held = [disk.get("7/a") for _ in range(50)]
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    os.truncate(disk._folder / "7" / "a", 0)
    assert all(bytes(one) == b"x" * 100_000 for one in held)
