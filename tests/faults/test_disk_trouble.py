"""Homes on a disk in trouble: full, failing, or with files that somebody has changed."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import tailrace
from tailrace.errors import Broken, Closed, Damaged, DiskFull, Lost
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.storage.calls import Store
from tailrace.storage.local.disk import DiskObjects
from tailrace.storage.local.files import Files
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tests.faults.vfs import WatchedVFS, io_error

LARGE, SMALL = 100_000, 1000
"""A chunk that is an object, and one that is in the database."""


def values(topic: Topic) -> list[bytes]:
    return [record.value or b"" for record in topic.records()]


# --- full
@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_a_full_disk(disk: Path, size: int) -> None:
    """Whoever meets it is told; what was acknowledged stays; with room again the same producer goes on."""
    with tailrace.open(disk / "home") as home:
        topic = home.topic("t", 1)
        out = topic.producer()
        acked = []
        with pytest.raises(DiskFull) as full:
            for n in range(100_000):
                acked.append((out.send(None, b"%06d" % n + b"x" * size).result(60), n))
        assert str(disk) in str(full.value)
        assert "free some space" in str(full.value)
        assert acked
        with pytest.raises(DiskFull):
            out.send(None, b"again" + b"x" * size).result(60)
        assert [(offset, int(v[:6])) for offset, v in enumerate(values(topic))] == acked, "it can be read all the same"
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        offset = out.send(None, b"999999" + b"x" * size).result(60)
        assert offset == len(acked)
        out.close()
        assert values(topic)[-1][:6] == b"999999"
    with tailrace.open(disk / "home") as again:
        assert [int(v[:6]) for v in values(again.topic("t"))] == [n for _, n in acked] + [999999]


def test_a_full_disk_in_the_middle_of_a_stream(disk: Path) -> None:
    """Nobody looks at acknowledgements until the end: those that say yes are all there, in order."""
    with tailrace.open(disk / "home") as home:
        topic = home.topic("t", 2)
        out = topic.producer(max_bytes=200_000)
        acks = [(n, out.send(b"%d" % n, b"%06d" % n + b"x" * 5000)) for n in range(3000)]
        with suppress(DiskFull):
            out.flush()
        good = {}
        for n, ack in acks:
            with suppress(DiskFull):
                good[ack.partition, ack.result(60)] = n
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        out.close()
        found = {(r.partition, r.offset): int((r.value or b"")[:6]) for r in topic.records()}
    assert found == good
    assert 0 < len(good) < 3000


# --- failing
class Failing(Files):
    """Files whose syncs fail on demand."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def sync(self, descriptor: int) -> None:
        if self.error is not None:
            raise self.error
        super().sync(descriptor)


class Wal:
    """A SQLite whose syncs of the log fail on demand."""

    def __init__(self) -> None:
        self.error: apsw.IOError | None = None
        self.vfs = WatchedVFS(self.told)

    def told(self, what: str, path: Path, _details: Any) -> None:
        if self.error is not None and what == "sync" and path.name.endswith("-wal"):
            raise self.error


Opened = tuple[Callable[[], Home], Failing, Wal]


@pytest.fixture
def shaky(tmp_path: Path) -> Iterator[Opened]:
    """A way to open a home whose disk can be made to fail."""
    files, wal, homes = Failing(), Wal(), list[Home]()

    def opened() -> Home:
        database = SqliteDatabase(tmp_path / "home" / "tailrace.db", vfs=wal.vfs.name)
        homes.append(
            Home("file:", Store(SqliteTable(database), DiskObjects(tmp_path / "home" / "objects", files=files)))
        )
        return homes[-1]

    yield opened, files, wal
    wal.error, files.error = None, None
    for home in homes:
        home.close()
    wal.vfs.unregister()


@pytest.mark.parametrize("where", ["commits", "objects"])
def test_nothing_is_acknowledged_after_a_failed_sync(shaky: Opened, where: str) -> None:
    opened, files, wal = shaky
    home = opened()
    topic = home.topic("t", 1)
    out = topic.producer()
    size = SMALL if where == "commits" else LARGE
    assert [out.send(None, b"%d" % n + b"x" * size).result(60) for n in range(3)] == [0, 1, 2]
    if where == "commits":
        wal.error = io_error(apsw.SQLITE_IOERR_FSYNC)
    else:
        files.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(Broken, match=r"the disk failed .*look at the disk, then open the home again"):
        out.send(None, b"3" + b"x" * size).result(60)
    wal.error, files.error = None, None  # the disk says it is well again; what it has lost nobody knows
    with pytest.raises(Closed, match="has failed"):
        out.send(None, b"4")
    with pytest.raises(Broken), topic.producer() as another:
        another.send(None, b"5" + b"x" * size).result(60)
    with pytest.raises(Broken):
        topic.append([(None, b"6" + b"x" * size)])
    out.close()
    home.close()
    again = opened()
    found = [v[:1] for v in values(again.topic("t"))]
    assert found[:3] == [b"0", b"1", b"2"]
    assert set(found[3:]) <= {b"3"}, "what was in doubt, and nothing of what came after"
    again.topic("t").append([(None, b"7")])
    assert values(again.topic("t"))[-1] == b"7"


def test_a_file_that_cannot_be_made_is_no_lost_record(shaky: Opened) -> None:
    """Another error than EIO: this put failed, the next one works."""
    opened, files, _ = shaky
    home = opened()
    topic = home.topic("t", 1)
    home.store.sleep = lambda seconds: None
    files.error = OSError(errno.ENOSPC, "No space left on device")
    with topic.producer() as out:
        with pytest.raises(DiskFull, match="free some space"):
            out.send(None, b"0" + b"x" * LARGE).result(60)
        files.error = None
        assert out.send(None, b"1" + b"x" * LARGE).result(60) == 0
    assert [v[:1] for v in values(topic)] == [b"1"]


class BadSector(Files):
    """A disk that cannot read some bytes of some files."""

    def __init__(self) -> None:
        self.bad: dict[tuple[int, int], int] = {}

    def read(self, descriptor: int, into: memoryview, position: int) -> int:
        status = os.fstat(descriptor)
        at = self.bad.get((status.st_dev, status.st_ino))
        if at is not None and position <= at < position + len(into):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(descriptor, into, position)


def test_a_sector_that_cannot_be_read_is_damage_of_its_records_alone(tmp_path: Path) -> None:
    """A mapped file would kill whoever looks at it."""
    files = BadSector()
    objects = DiskObjects(tmp_path / "home" / "objects", files=files)
    with Home(
        str(tmp_path / "home"), Store(SqliteTable(SqliteDatabase(tmp_path / "home" / "tailrace.db")), objects)
    ) as home:
        topic = home.topic("t", 2)
        for n in range(3):
            with topic.transaction() as t:
                for q in (0, 1):
                    t.send(None, b"chunk %d" % n + os.urandom(LARGE), partition=q)
        status = chunks(home)[1].stat()
        files.bad[status.st_dev, status.st_ino] = 1000  # in the run of partition 0
        with pytest.raises(Damaged, match="I/O error") as caught:
            list(topic.records())
        assert caught.value.lost == (Lost(0, 1, 2),)
        assert [(record.value or b"")[:7] for record in topic.records(1)] == [b"chunk %d" % n for n in range(3)]
        (damage,) = home.scrub().damages
        assert (damage.kind, damage.lost) == ("bytes", (Lost(0, 1, 2),))
        home.upkeep()  # removes nothing that it could not read
        files.bad.clear()
        assert len(values(topic)) == 6, "the handle is not broken"


# --- changed by hand
@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tuple[Home, Topic]]:
    """Six chunks that are objects: 0 to 5, each of both partitions."""
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("t", 2)
        for n in range(6):
            with topic.transaction() as t:
                for q in (0, 1):
                    t.send(None, b"chunk %d" % n + os.urandom(LARGE), partition=q)
        yield home, topic


def chunks(home: Home) -> list[Path]:
    """The files of the chunks, oldest first; their times can be the same."""
    files = [path for path in (Path(home.url) / "objects").rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: re.findall(rb"chunk \d", path.read_bytes()))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1000] ^= 0x80  # in the run of partition 0
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "partitions", "says"),
    [(flip, (0,), "checksum differs"), (cut, (0, 1), "cut to"), (Path.unlink, (0, 1), "is gone")],
)
def test_a_chunk_that_was_changed(
    filled: tuple[Home, Topic], damage: Callable[[Path], None], partitions: tuple[int, ...], says: str
) -> None:
    home, topic = filled
    doomed = chunks(home)[2]
    damage(doomed)
    for q in (0, 1):
        seen: list[int] = []
        position = 0
        for _ in range(3):
            try:
                for record in topic.records(q, position):
                    seen.append(record.offset)
                    position = record.offset + 1
                break
            except Damaged as error:
                _named(error, says, doomed, q)
                position += 1
        assert seen == ([0, 1, 3, 4, 5] if q in partitions else [0, 1, 2, 3, 4, 5])
    assert [span.offset for span in topic.append([(None, b"on")])] == [6], "producers go on"


def _named(error: Damaged, says: str, doomed: Path, q: int) -> None:
    """The error names the object and what is lost."""
    text = str(error)
    assert says in text
    assert error.where.endswith(doomed.name)
    assert error.where in text
    assert f"offset 2 of partition {q} of 't'" in text
    assert "restore it from a backup" in text or "start at" in text


def test_a_reader_of_everything_is_told_too(filled: tuple[Home, Topic]) -> None:
    home, topic = filled
    flip(chunks(home)[3])
    seen = []
    with pytest.raises(Damaged, match="offset 3 of partition 0 of 't'"):
        for record in topic.records():
            seen.append((record.partition, record.offset))
    assert set(seen) == {(q, n) for q in (0, 1) for n in range(3)}, "all before it was given"


def test_a_folder_that_was_removed_is_made_again(filled: tuple[Home, Topic]) -> None:
    home, topic = filled
    for path in chunks(home):
        path.unlink()
    folder = next(iter((Path(home.url) / "objects").rglob("*")))
    assert folder.is_dir()
    with pytest.raises(Damaged):
        values(topic)
    topic.append([(None, b"new" + b"x" * LARGE)])
    new = max(end for _, end in topic.ends().values()) - 1
    q = next(q for q, (_, end) in topic.ends().items() if end == new + 1)
    assert next(topic.records(q, new)).value[:3] == b"new"  # type: ignore[index]
