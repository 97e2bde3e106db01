"""A power cut at any moment: what embedded storage acknowledged is there, and nothing that nobody asked for.

That the images would show a bug is shown by switching three in.
"""

from __future__ import annotations

import re
import threading
import zlib
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tailrace.errors import TailraceError
from tailrace.storage.calls import Store
from tailrace.storage.local.disk import DiskObjects
from tailrace.storage.sqlite import checksums
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Add, Append, Key, Put, Update
from tests.faults.images import Image, images, record
from tests.faults.recorder import Recorder

HEAD = Key("head")


def content(note: str) -> bytes:
    """The object that belongs to a note, of some sectors."""
    return f"{note} ".encode() * (1 + zlib.crc32(note.encode()) % 400)


def write(recorder: Recorder, store: Store, note: str) -> None:
    """Bytes first, then one guarded write that names them; a large item now and then."""
    recorder.attempt(note)
    store.objects.put(f"7/{note}", [content(note)[:100], content(note)[100:]])
    inline = (Put(Key("inline", int(note.split("-")[1])), {"a": content(note)}, (Absent(),)),) if "5" in note else ()
    store.table.write(Update(HEAD, (Append("done", [note]), Add("n", 1))), *inline)
    recorder.acknowledge(note)


def run(recorder: Recorder, *, threads: int = 3, each: int = 12, **switches: bool) -> None:
    """Several threads write, the store is closed and opened again, and one more writes."""
    store = recorder.store(**switches)
    store.table.write(Put(HEAD, {"done": [], "n": 0}, (Absent(),)))
    recorder.acknowledge("made")
    numbers = iter(range(10_000))

    def work() -> None:
        for _ in range(each):
            write(recorder, store, f"note-{next(numbers)}")

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()
    store = recorder.store(**switches)
    for _ in range(4):
        write(recorder, store, f"note-{next(numbers)}")
    store.close()


def problem(image: Image) -> str | None:
    """What is wrong after a power cut, if anything."""
    try:
        store = Store(SqliteTable(SqliteDatabase(image.folder / "tailrace.db")), DiskObjects(image.folder / "objects"))
        try:
            return contradiction(image, store) or unhealthy(image)
        finally:
            store.close()
    except TailraceError as error:
        return repr(error)


def contradiction(image: Image, store: Store) -> str | None:
    head = store.table.get(HEAD)
    if head is None:
        return "the head is gone" if "made" in image.acknowledged else None
    found: list[str] = head["done"]
    if len(found) != head["n"] or len(set(found)) != len(found):
        return f"the head contradicts itself: {head}"
    if missing := image.acknowledged - {*found, "made"}:
        return f"acknowledged and gone: {missing}"
    if strange := set(found) - image.attempted:
        return f"there, and nobody asked for it: {strange}"
    if broken := [note for note in found if bytes(store.objects.get(f"7/{note}")) != content(note)]:
        return f"named, but not what was put: {broken}"
    store.table.write(Update(HEAD, (Add("n", 1),)))
    store.objects.put("8/after", [b"goes on"])
    return None


def unhealthy(image: Image) -> str | None:
    connection = apsw.Connection(str(image.folder / "tailrace.db"))
    health = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return None if health == [("ok",)] else str(health)


@pytest.fixture(autouse=True)
def _checkpoints_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.sqlite.checkpointer.CHECKPOINT_BYTES", 64 * 1024)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_survives_any_power_cut(tmp_path: Path, seed: int) -> None:
    trace = record(run, tmp_path / "home")
    seen = 0
    for image in images(trace, seed, cuts=60, each=3):
        wrong = problem(image)
        assert wrong is None, f"cut after {image.cut} of {len(trace)}: {wrong}"
        seen += bool(image.acknowledged)
    assert seen > 50
    assert {op.what for op in trace} >= {"create", "mkdir", "write", "sync", "sync_folder", "delete", "acknowledge"}
    assert any(op.what == "write" and op.path == "tailrace.db" for op in trace), "no checkpoint was recorded"


def test_the_name_of_a_wal_is_durable_though_sqlite_could_not_sync_it(tmp_path: Path) -> None:
    def count(recorder: Recorder) -> None:
        recorder.sqlite_syncs_wal_names = False
        for life in range(3):
            store = recorder.store()
            if not life:
                store.table.write(Put(HEAD, {"n": 0}, (Absent(),)))
            for n in range(4):
                recorder.attempt(life * 4 + n + 1)
                store.table.write(Update(HEAD, (Add("n", 1),)))
                recorder.acknowledge(life * 4 + n + 1)
            store.close()

    trace = record(count, tmp_path / "home")
    for image in images(trace, 0, cuts=len(trace), each=6):
        with closing(SqliteTable(SqliteDatabase(image.folder / "tailrace.db"))) as table:
            head = table.get(HEAD)
        assert (head or {"n": 0})["n"] >= max(image.acknowledged, default=0), f"cut after {image.cut} of {len(trace)}"


def test_a_home_whose_making_was_cut_is_made_again(tmp_path: Path) -> None:
    trace = record(run, tmp_path / "home")
    first = next(n for n, op in enumerate(trace) if op.what == "acknowledge")
    for image in images(trace[:first], 0, cuts=first, each=40):
        wrong = problem(image)
        assert wrong is None, f"cut after {image.cut} of {first}: {wrong}"
        connection = apsw.Connection(str(image.folder / "tailrace.db"))
        assert checksums.reserved(connection) == checksums.CHECKSUM_BYTES
        connection.close()


@pytest.mark.parametrize("bug", ["no sync of commits", "no sync of names", "no sync of objects"])
def test_the_images_show_a_missing_sync(tmp_path: Path, bug: str) -> None:
    def workload(recorder: Recorder) -> None:
        if bug == "no sync of objects":
            recorder.files.skip.add("sync")
        run(recorder, threads=1, durable=bug != "no sync of commits", sync_names=bug != "no sync of names")

    trace = record(workload, tmp_path / "home")
    expected = {
        "no sync of commits": "acknowledged and gone|is damaged",
        "no sync of names": "ObjectMissing",
        "no sync of objects": "named, but not what was put",
    }
    with closing(images(trace, 1, cuts=40, each=3)) as some:
        shown = any(re.search(expected[bug], str(problem(image))) for image in some)
    assert shown


@pytest.mark.soak
def test_many_power_cuts(tmp_path: Path) -> None:
    for seed in range(5):
        trace = record(run, tmp_path / str(seed))
        for image in images(trace, seed, cuts=len(trace), each=4):
            wrong = problem(image)
            assert wrong is None, f"seed {seed}, cut after {image.cut} of {len(trace)}: {wrong}"
