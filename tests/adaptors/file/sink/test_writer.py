"""Batches in a folder: each seen whole or not at all, and once, wherever a process dies."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tailrace.adaptors.contract import Command, Staged, Who
from tailrace.adaptors.file.names import batch_number, folder_name, namespace_name
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.file.sink import parts
from tailrace.adaptors.file.sink.current import current
from tailrace.adaptors.file.sink.disk import FILES, REAL, Disk
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.rows.provenance import PLACE, placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Damaged, Fenced, NotReady, Unavailable
from tailrace.log.record import Op

WHO = Who("shop", "lake", 1)


def rows(ids: Any, namespace: str = "orders", **given: Any) -> pa.RecordBatch:
    return make_rows(namespace, pa.record_batch({"id": pa.array(ids, pa.int64())}), ["id"], timestamp=5, **given)


def writer(path: Path, disk: Disk = REAL, **settings: Any) -> FileWriter:
    return FileWriter(FileSink(path=str(path), **settings), disk)


def written(path: Path, *batches: pa.RecordBatch, offset: int = 1, **settings: Any) -> None:
    made = writer(path, **settings)
    made.check()
    made.finish([made.stage(batches)], WHO, {"0": offset})


def ids(folder: Path) -> list[int]:
    lines = [line for part in folder.rglob("*.jsonl") for line in part.read_text().splitlines()]
    found = [json.loads(line)["id"] for line in lines]
    return sorted(found or pq.read_table(folder).column("id").to_pylist())


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, not machines: nothing need reach the disk, which makes for many deaths a second."""
    monkeypatch.setattr(FILES, "sync", lambda descriptor: None)


# -- where a process dies
class Killed(BaseException):
    """The end of a process."""


class Dying(Disk):
    """A disk whose process dies before its n-th step, or in the middle of replacing a file."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def _step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._step()
        super().make_folder(folder)

    def sync(self, path: Path) -> None:
        self._step()
        super().sync(path)

    def replace(self, path: Path, data: bytes) -> None:
        self._step()
        if self.left == 0:
            path.with_name(f".{path.name}.new").write_bytes(data[: len(data) // 2])
            raise Killed
        super().replace(path, data)
        self._step()

    def move(self, old: Path, new: Path) -> None:
        self._step()
        super().move(old, new)
        self._step()

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


END = 20


def life(path: Path, disk: Disk, epoch: int, size: int, attempted: set[tuple[str, tuple[int, ...]]]) -> None:
    """Deliver what the folder does not have yet, in batches of this size, two shares each."""
    made = writer(path, disk, format="jsonl")
    who = Who("shop", "lake", epoch)
    made.check()
    kept = made.claim(who)
    start = kept["offsets"]["0"] if kept and kept["offsets"] else 0
    for n in range(start, END, size):
        to = min(END, n + size)
        for name in ("even", "odd"):
            attempted.add((name, tuple(i for i in range(n, to) if i % 2 == (name == "odd"))))
        shares = [[i for i in range(n, to) if i % 4 in some] for some in ((0, 1), (2, 3))]
        staged = [
            made.stage([rows([i for i in share if i % 2 == odd], ("even", "odd")[odd]) for odd in (0, 1)])
            for share in shares
        ]
        made.finish(staged, who, {"0": to})


def look(path: Path, attempted: set[tuple[str, tuple[int, ...]]]) -> None:
    """What a reader of the folder sees: whole batches, nothing twice, the even ones not behind the odd ones by more
    than what is decided and not shown yet."""
    for name in ("even", "odd"):
        folder = path / name
        batches = sorted(folder.iterdir()) if folder.is_dir() else []
        found = [tuple(ids(batch)) for batch in batches]
        assert all((name, batch) in attempted for batch in found)
        flat = [i for batch in found for i in batch]
        assert flat == sorted(set(flat))


@pytest.mark.parametrize("sizes", [(10, 10), (10, 15)])
def test_wherever_it_dies_every_row_is_there_once(tmp_path: Path, sizes: tuple[int, int]) -> None:
    steps = 0
    while True:
        path = tmp_path / str(steps)
        attempted: set[tuple[str, tuple[int, ...]]] = set()
        try:
            life(path, Dying(steps), 1, sizes[0], attempted)
        except Killed:
            look(path, attempted)
            life(path, REAL, 2, sizes[1], attempted)
            died = True
        else:
            died = False
        look(path, attempted)
        assert ids(path / "even") + ids(path / "odd") == [*range(0, END, 2), *range(1, END, 2)]
        if not died:
            break
        steps += 1
    assert steps > 40


def test_it_may_die_again_while_it_recovers(tmp_path: Path) -> None:
    for first in range(12, 40, 5):
        for second in range(9):
            path = tmp_path / f"{first}-{second}"
            attempted: set[tuple[str, tuple[int, ...]]] = set()
            for epoch, disk in enumerate((Dying(first), Dying(second), REAL), 1):
                try:
                    life(path, disk, epoch, 10, attempted)
                except Killed:
                    continue
            assert ids(path / "even") + ids(path / "odd") == [*range(0, END, 2), *range(1, END, 2)]


def test_bytes_are_durable_before_they_are_decided_for(tmp_path: Path) -> None:
    done: list[tuple[str, Path]] = []

    class Watched(Disk):
        def sync(self, path: Path) -> None:
            done.append(("sync", path))
            super().sync(path)

        def replace(self, path: Path, data: bytes) -> None:
            if path.suffix != ".json":
                return super().replace(path, data)
            done.append(("replace", path))
            for old, _ in json.loads(data)["moves"]:
                folder = path.parent.parent / old
                for name in (folder, *folder.iterdir()):
                    assert ("sync", name) in done
            return super().replace(path, data)

    made = writer(tmp_path, Watched())
    made.finish([made.stage([rows([1]), rows([2], "people")])], WHO, {"0": 1})
    assert [what for what, _ in done].count("replace") == 1


def test_a_run_thought_dead_finishes_nothing_more(tmp_path: Path) -> None:
    old, new = writer(tmp_path), writer(tmp_path)
    old.claim(WHO)
    late = [old.stage([rows([1])])]
    assert new.claim(WHO._replace(epoch=2)) in (None, {"epoch": 1, "offsets": {}})
    with pytest.raises(Fenced, match="another run of the writer 'lake' has begun"):
        old.finish(late, WHO, {"0": 1})
    with pytest.raises(Fenced):
        old.claim(WHO)
    assert not (tmp_path / "orders").exists()


def test_after_a_claim_an_operator_may_have_gone_back(tmp_path: Path) -> None:
    written(tmp_path, rows([1]), offset=9)
    made = writer(tmp_path)
    assert made.claim(WHO._replace(epoch=2)) == {"epoch": 1, "offsets": {"0": 9}}
    made.finish([made.stage([rows([1])])], WHO._replace(epoch=2), {"0": 3})
    assert ids(tmp_path / "orders") == [1, 1]


def test_what_was_staged_long_ago_is_removed_unless_it_was_decided_for(tmp_path: Path) -> None:
    made = writer(tmp_path)
    forgotten = made.stage([rows([1])])
    with pytest.raises(Killed):
        dying = writer(tmp_path, Dying(10**6))
        staged = dying.stage([rows([2])])
        dying._disk.left = 3  # type: ignore[attr-defined]
        dying.finish([staged], WHO, {"0": 1})
    assert not list(tmp_path.glob("orders/*"))
    day = time.time() - 90_000
    for entry in (tmp_path / "_tailrace" / "staging").iterdir():
        os.utime(entry, (day, day))
    gone = tmp_path / "_tailrace" / "staging" / "removed-by-another-writer-meanwhile"
    gone.symlink_to("nothing")
    made.check()
    gone.unlink()
    assert not (tmp_path / forgotten.detail).exists()
    made.restore("shop", "lake")
    assert ids(tmp_path / "orders") == [2]


def test_a_disk_that_cannot_show_a_batch_has_decided_for_it_all_the_same(tmp_path: Path) -> None:
    class Full(Disk):
        def move(self, old: Path, new: Path) -> None:
            raise OSError(28, "No space left on device")

    made = writer(tmp_path, Full())
    made.finish([made.stage([rows([1])])], WHO, {"0": 1})
    assert not list(tmp_path.glob("orders/*"))
    writer(tmp_path).finish([], WHO, {"0": 2})
    assert ids(tmp_path / "orders") == [1]


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_batch_whose_files_are_not_there_is_not_finished(tmp_path: Path, harm: str) -> None:
    made = writer(tmp_path)
    made.check()
    first, second = made.stage([rows([1, 2])]), made.stage([rows([3]), rows([4], "items")])
    assert sum(map(len, (first.files, second.files))) == 3
    path = tmp_path / second.detail / next(name for name in second.files if name.startswith("items"))
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NotReady, match=r"a task staged .*/items/part-.* bytes, and here .* must have .* mounted"):
        made.finish([first, second], Who("p", "w", 1), {"0": 4})
    assert made.restore("p", "w") is None
    assert not list(tmp_path.glob("*/batch-*"))


def test_two_pipelines_may_share_a_folder(tmp_path: Path) -> None:
    one, two = writer(tmp_path), writer(tmp_path)
    for n, (made, who) in enumerate([(one, WHO), (two, WHO._replace(pipeline="other"))] * 2):
        made.finish([made.stage([rows([n])])], who, {"0": n + 1})
    assert ids(tmp_path / "orders") == [0, 1, 2, 3]


@pytest.mark.parametrize("who", [0, 1])
def test_after_a_truncate_rows_of_both_pipelines_count(tmp_path: Path, who: int) -> None:
    """Their batches have numbers of their own: the next one could stand before the truncate."""
    both = [(writer(tmp_path), WHO), (writer(tmp_path), WHO._replace(pipeline="other"))]
    for offset, (made, mine) in enumerate([both[0]] * 5 + [both[1]]):
        made.finish([made.stage([rows([offset])])], mine, {"0": offset})
    made, mine = both[who]
    made.command("orders", Command("truncate"), mine)
    assert current(tmp_path, "orders") == []
    for offset, (made, mine) in enumerate(both, 10):
        made.finish([made.stage([rows([offset])])], mine, {"0": offset})
    assert sorted(row["id"] for row in current(tmp_path, "orders")) == [10, 11]


def test_where_the_record_is_gone_numbers_go_on(tmp_path: Path) -> None:
    written(tmp_path, rows([1]))
    (tmp_path / "_tailrace" / "shop.lake.json").unlink()
    written(tmp_path, rows([2]))
    assert [batch_number(p.name) for p in sorted((tmp_path / "orders").iterdir())] == [1, 2]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    written(tmp_path, rows([1]))
    (tmp_path / "_tailrace" / "shop.lake.json").write_text("{")
    with pytest.raises(Damaged, match=r"shop\.lake\.json is not what was written"):
        writer(tmp_path).restore("shop", "lake")


# -- what is in the files
TYPES = {
    "id": pa.array([1, 2], pa.int64()),
    "dec": pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)),
    "at": pa.array([dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    "raw": pa.array([b"\x00\xff", None], pa.binary()),
    "span": pa.array([pa.MonthDayNano([1, 2, 3_500_000_000]), None], pa.month_day_nano_interval()),
    "many": pa.array([[1, None], None], pa.list_(pa.int32())),
    "deep": pa.array([{"a": {}}, None], pa.struct([("a", pa.struct([]))])),
    "json": pa.array(['{"x": [1]}', None], pa.json_()),
    "text": pa.array(['a "b",\n', ""], pa.string()),
    "none": pa.nulls(2),
}


def test_types_in_parquet(tmp_path: Path) -> None:
    written(tmp_path, make_rows("t", pa.record_batch(TYPES), ["id"]))
    table = pq.read_table(tmp_path / "t")
    first = table.to_pylist()[0]
    assert (first["_op"], first["dec"], first["at"]) == ("insert", Decimal("1.50"), TYPES["at"][0].as_py())
    assert (first["raw"], first["many"], first["text"]) == (b"\x00\xff", [1, None], 'a "b",\n')
    assert (first["span"], first["deep"], first["json"]) == ("P1M2DT3.5S", '{"a":{}}', '{"x": [1]}')
    assert table.schema.field("dec").type == pa.decimal128(20, 2)
    assert table.schema.metadata[b"keys"] == b'["id"]'


def test_types_in_json_lines(tmp_path: Path) -> None:
    written(tmp_path, make_rows("t", pa.record_batch(TYPES), ["id"], timestamp=5), format="jsonl")
    (part,) = tmp_path.glob("t/*/*.jsonl")
    first, second = map(json.loads, part.read_text().splitlines())
    assert {name: first.pop(f"_{name}") for name in PLACE} == dict.fromkeys(PLACE)
    assert first == {
        "_op": "insert", "_timestamp": "1970-01-01T00:00:00.005000Z", "id": 1, "dec": "1.50",
        "at": "2024-01-02T03:00:00Z", "raw": "AP8=", "span": "P1M2DT3.5S", "many": [1, None], "deep": {"a": {}},
        "json": {"x": [1]}, "text": 'a "b",\n', "none": None,
    }  # fmt: skip
    assert second["text"] == ""
    assert second["json"] is None


def test_types_in_csv(tmp_path: Path) -> None:
    written(tmp_path, make_rows("t", pa.record_batch(TYPES), ["id"]), format="csv")
    (part,) = tmp_path.glob("t/*/*.csv")
    with part.open(newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["id"], first["dec"], first["raw"], first["many"]) == ("1", "1.50", "AP8=", "[1,null]")
    assert (first["text"], first["span"], first["json"]) == ('a "b",\n', "P1M2DT3.5S", '{"x": [1]}')


def test_unset_is_not_null(tmp_path: Path) -> None:
    columns = pa.record_batch({"id": [1, 2], "a": pa.array([None, None], pa.string())})
    partly = make_rows("t", columns, ["id"], op=Op.UPDATE, unset=pa.array([b"\x02", None], pa.binary()))
    written(tmp_path / "p", partly, make_rows("t", columns, ["id"]))
    assert [row["_unset"] for row in pq.read_table(tmp_path / "p" / "t").to_pylist()] == [["a"], None, None, None]
    assert len(list(tmp_path.glob("p/t/*/*.parquet"))) == 1
    written(tmp_path / "j", partly, format="jsonl")
    (part,) = tmp_path.glob("j/t/*/*")
    assert [json.loads(line).keys() & {"id", "a", "_unset"} for line in part.read_text().splitlines()] == [
        {"id"},
        {"id", "a"},
    ]


def test_plain_has_the_documents_alone(tmp_path: Path) -> None:
    written(tmp_path, rows([1]), rows([2], op=Op.UPDATE), rows([3], op=Op.DELETE), plain=True)
    assert pq.read_table(tmp_path / "orders").to_pylist() == [{"id": 1}, {"id": 2}]
    with pytest.raises(NotReady, match="plain"):
        current(tmp_path, "orders")


def test_a_batch_of_only_deletes_in_a_plain_folder(tmp_path: Path) -> None:
    written(tmp_path, rows([3], op=Op.DELETE), plain=True)
    assert not (tmp_path / "orders").exists()
    assert writer(tmp_path).restore("shop", "lake") == {"epoch": 1, "offsets": {"0": 1}}


def test_another_schema_is_another_file_and_order_is_kept(tmp_path: Path) -> None:
    wide = make_rows("orders", pa.record_batch({"id": [1], "x": ["new"]}), ["id"], op=Op.UPDATE)
    again = make_rows("orders", pa.record_batch({"id": [1]}), ["id"], op=Op.DELETE)
    written(tmp_path, rows([1]), wide, again, rows([2]))
    assert len(list(tmp_path.glob("orders/*/*.parquet"))) == 3
    assert current(tmp_path, "orders") == [{"id": 2}]


def test_large_shares_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_BYTES", 1000)
    written(tmp_path, *(rows(range(n, n + 100), name) for n in range(0, 1000, 100) for name in "abc"))
    for name in "abc":
        (part,) = tmp_path.glob(f"{name}/*/*.parquet")
        assert pq.read_metadata(part).num_row_groups > 2
        assert ids(part) == list(range(1000))


def test_others_read_the_folder_as_it_is(tmp_path: Path) -> None:
    for n in range(3):
        written(tmp_path, rows([n]), offset=n + 1)
    assert ds.dataset(tmp_path / "orders").to_table().num_rows == 3
    assert ds.dataset(tmp_path).to_table().num_rows == 3


NAMED_LIKE_OURS = pa.record_batch(
    {
        "id": [1, 2],
        "_op": ["a", None],
        "__timestamp": [3, 4],
        "_unset": [[1], []],
        "unset": ["x", "y"],
        "op": [True, None],
    }
)


def test_fields_that_are_named_like_columns_of_ours(tmp_path: Path) -> None:
    unset = pa.array([None, b"\x10"], pa.binary())  # of the second row `unset`
    batch = make_rows("t", NAMED_LIKE_OURS, ["id"], op=Op.UPDATE, unset=unset)
    for format in ("parquet", "jsonl", "csv"):
        written(tmp_path / format, batch, format=format)
    expected = [{**row} for row in NAMED_LIKE_OURS.to_pylist()]
    del expected[1]["unset"]
    assert current(tmp_path / "parquet", "t") == expected
    (part,) = tmp_path.glob("jsonl/t/*/*.jsonl")
    lines = [json.loads(line) for line in part.read_text().splitlines()]
    assert [line.pop("___op") for line in lines] == ["update", "update"]
    assert all(line.pop("___timestamp") for line in lines)
    assert all(f"___{name}" in line and line.pop(f"___{name}") is None for name in PLACE for line in lines)
    assert lines == expected
    (part,) = tmp_path.glob("csv/t/*/*.csv")
    header = next(csv.reader(part.read_text().splitlines()))
    first = [f"___{name}" for name in ("op", "timestamp", *PLACE)]
    assert header == [*first, *NAMED_LIKE_OURS.schema.names, "___unset"]


def test_plain_documents_with_fields_that_are_named_like_columns_of_ours(tmp_path: Path) -> None:
    batch = make_rows("t", NAMED_LIKE_OURS, ["id"])
    for format in ("parquet", "jsonl"):
        written(tmp_path / format, batch, format=format, plain=True)
    assert pq.read_table(tmp_path / "parquet" / "t").to_pylist() == NAMED_LIKE_OURS.to_pylist()
    (part,) = tmp_path.glob("jsonl/t/*/*.jsonl")
    assert [json.loads(line) for line in part.read_text().splitlines()] == NAMED_LIKE_OURS.to_pylist()


def test_a_truncate_empties_what_stands_before_it(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.command("orders", Command("truncate"), WHO)
    written(tmp_path, rows([1]), rows([9], "people"))
    made.command("orders", Command("truncate"), WHO)
    made.command("orders", Command("truncate"), WHO)
    assert current(tmp_path, "orders") == []
    written(tmp_path, rows([2]), offset=2)
    assert (current(tmp_path, "orders"), current(tmp_path, "people")) == ([{"id": 2}], [{"id": 9}])


def test_two_equal_documents_without_a_key_are_two(tmp_path: Path) -> None:
    columns = pa.record_batch({"id": pa.array([1, 1, 2], pa.int64())})
    written(tmp_path, make_rows("orders", columns, []))
    assert current(tmp_path, "orders") == [{"id": 1}, {"id": 1}, {"id": 2}]
    written(tmp_path, make_rows("orders", columns.slice(1), [], op=Op.DELETE), offset=2)
    assert current(tmp_path, "orders") == [{"id": 1}]


def test_a_batch_that_could_not_be_shown_yet_stands_before_a_truncate_all_the_same(tmp_path: Path) -> None:
    class Full(Disk):
        def move(self, old: Path, new: Path) -> None:
            raise OSError(28, "No space left on device")

    written(tmp_path, rows([1]))
    full = writer(tmp_path, Full())
    full.finish([full.stage([rows([2])])], WHO, {"0": 2})
    with pytest.raises(Unavailable, match="disk full"):
        full.command("orders", Command("truncate"), WHO)
    writer(tmp_path).command("orders", Command("truncate"), WHO)
    assert current(tmp_path, "orders") == []
    written(tmp_path, rows([3]), offset=3)
    assert current(tmp_path, "orders") == [{"id": 3}]


# -- what is lost
@pytest.mark.parametrize("emptied", [False, True])
def test_a_folder_that_was_removed_is_missed(tmp_path: Path, emptied: bool) -> None:
    written(tmp_path, rows([1]), rows([1], "people"))
    written(tmp_path, rows([2], "people"), offset=2)
    assert writer(tmp_path).lost(WHO) == []
    shutil.rmtree(tmp_path / "orders")
    if emptied:
        (tmp_path / "orders").mkdir()
    assert writer(tmp_path).lost(WHO) == [f"the folder {tmp_path / 'orders'}"]
    writer(tmp_path).forget(WHO)
    assert writer(tmp_path).lost(WHO) == []


# -- names
@pytest.mark.parametrize(
    ("one", "other"), [("x" * 300, "x" * 301), ("ä" * 100 + "1", "ä" * 100 + "2"), ("a/b", "a%2Fb"), ("_x", "%5Fx")]
)
def test_no_two_namespaces_share_a_folder(one: str, other: str) -> None:
    assert folder_name(one) != folder_name(other)


@pytest.mark.parametrize("name", ["public.orders", "a/b", "..", "_x", ".x", "", "ü\n%", 'a"b*?<>|:\\', "x" * 300])
def test_namespaces_as_folders(tmp_path: Path, name: str) -> None:
    written(tmp_path, rows([1], name))
    folder = tmp_path / folder_name(name)
    assert folder.parent == tmp_path
    assert ids(folder) == [1]
    assert current(tmp_path, name) == [{"id": 1}]
    if name and len(name) < 100:
        assert namespace_name(folder_name(name)) == name


def test_a_file_system_that_does_not_tell_capital_letters(tmp_path: Path) -> None:
    (tmp_path / "_TAILRACE").mkdir()  # there, `_tailrace` is found under this name, too
    (tmp_path / "public.Old").mkdir()
    names = ["public.Orders", "public.orders", "public.%4Frders", "public.Old", "public.old"]
    written(tmp_path, *(rows([n], name) for n, name in enumerate(names)))
    folders = [path.name for path in tmp_path.iterdir() if "." in path.name]
    assert len({name.lower() for name in folders}) == len(names)
    assert "public.Old" in folders
    assert [current(tmp_path, name) for name in names] == [[{"id": n}] for n in range(len(names))]


# -- what is wrong
@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    path.chmod(0o500)
    try:
        yield
    finally:
        path.chmod(0o700)


def test_what_is_wrong_is_said_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotReady, match="is a file; the file sink writes into a folder"):
        writer(tmp_path / "file").check()
    with pytest.raises(NotReady, match=r"'s3://bucket/x' is no folder"):
        FileWriter(FileSink(path="s3://bucket/x")).check()
    if os.getuid():
        with unwritable(tmp_path), pytest.raises(NotReady, match="Permission denied; give this user the right"):
            writer(tmp_path / "new").check()


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    class Full(Disk):
        def sync(self, path: Path) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(Unavailable, match="disk full"):
        writer(tmp_path, Full()).stage([rows([1])])
    assert list((tmp_path / "_tailrace" / "staging").glob("*")) == []


def test_a_share_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows([1])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer(tmp_path).stage(failing())
    assert list((tmp_path / "_tailrace" / "staging").glob("*")) == []
    writer(tmp_path).discard([Staged(0), writer(tmp_path).stage([rows([1])])])
    assert list((tmp_path / "_tailrace" / "staging").glob("*")) == []


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Who has it open goes on reading what it was."""
    path = tmp_path / "x"
    REAL.replace(path, b"old")
    with path.open("rb") as before:
        REAL.replace(path, b"new")
        assert (before.read(), path.read_bytes()) == (b"old", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_each_change_says_where_it_stands(tmp_path: Path, format: str) -> None:
    columns = pa.record_batch({"id": [1, 1, 2], "_offset": ["theirs"] * 3})
    numbers = {"transaction": pa.array([7, 7, None], pa.int64()), "position": pa.array([0, 1, None], pa.int64())}
    rows = make_rows("t", columns, ["id"], op=Op.UPDATE, **numbers)
    written(tmp_path, placed(rows, 3, pa.array([40, 41, 50])), format=format)
    (part,) = tmp_path.glob("t/*/*")
    found = ds.dataset(part, format={"jsonl": "json"}.get(format, format)).to_table().to_pylist()
    assert [[row[f"__{name}"] for name in PLACE] for row in found] == [
        [3, 40, 7, 0],
        [3, 41, 7, 1],
        [3, 50, None, None],
    ]
    assert {row["_offset"] for row in found} == {"theirs"}


def test_batches_of_an_earlier_version_do_not_say_where_they_stand(tmp_path: Path) -> None:
    written(tmp_path, make_rows("t", pa.record_batch({"id": [1], "a": ["old"]}), ["id"]))
    (part,) = tmp_path.glob("t/*/*")
    old = pq.read_table(part)
    pq.write_table(old.drop_columns([f"_{name}" for name in PLACE]), part)
    written(tmp_path, make_rows("t", pa.record_batch({"id": [2], "a": ["new"]}), ["id"]), offset=2)
    assert current(tmp_path, "t") == [{"id": 1, "a": "old"}, {"id": 2, "a": "new"}]
    assert pq.read_table(tmp_path / "t").num_rows == 2
