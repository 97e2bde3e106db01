"""Delta tables as others find them: types, columns that change, partitions, commands, small files, other writers."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableAlterer, TableMerger

from tailrace.adaptors.contract import TRUNCATE, Command, Who
from tailrace.adaptors.delta.ledger import DeltaLedger
from tailrace.adaptors.delta.store import DeltaStore
from tailrace.adaptors.delta.table import DeltaLakeTable
from tailrace.adaptors.lake import staging
from tailrace.adaptors.lake.stores import STAGING
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Fenced, NotReady, Rejected, Unavailable
from tailrace.log.record import Mode, Op
from tailrace.storage.local.files import REAL as FILES
from tests.adaptors.delta.place import Place

ORDERS = "public.orders"


def rows(columns: dict[str, Any], op: Op = Op.INSERT, namespace: str = ORDERS, **more: Any) -> pa.RecordBatch:
    return make_rows(namespace, pa.record_batch(columns), ["id"], op=op, mode=Mode.SYNC, timestamp=1, **more)


def written(place: Place, *batches: pa.RecordBatch, at: int = 1, epoch: int = 1, **settings: Any) -> None:
    writer = place.writer(**settings)
    writer.check()
    writer.finish([writer.stage(batches)], Who("p", "w", epoch), {"0": at})
    writer.close()


def ints(*values: int | None, kind: pa.DataType | None = None) -> pa.Array[Any]:
    return pa.array(values, kind or pa.int64())


# -- types, and who reads them
def typed(n: int) -> dict[str, Any]:
    """A value of every kind, at the end of its range."""
    moment = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    return {
        "id": n, "u64": 2**64 - 1, "u8": 255, "i8": -128, "f": float("nan"), "d38": decimal.Decimal("9" * 28 + ".5"),
        "d60": decimal.Decimal("9" * 50 + ".25"), "b": b"\0\xff", "day": dt.date(9999, 12, 31), "at": moment,
        "local": dt.datetime(1, 1, 1), "clock": dt.time(23, 59, 59, 1),
        "took": dt.timedelta(seconds=-1, microseconds=5),
        "json": '{"a":[1,null]}', "list": [1, None], "struct": {"x": 1, "y": "é"}, "text": 'a"b\n', "yes": True,
    }  # fmt: skip


TYPES = pa.schema(
    {
        "id": pa.int64(), "u64": pa.uint64(), "u8": pa.uint8(), "i8": pa.int8(), "f": pa.float64(),
        "d38": pa.decimal128(38, 1), "d60": pa.decimal256(60, 2), "b": pa.binary(), "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "clock": pa.time64("us"),
        "took": pa.duration("us"), "json": pa.json_(), "list": pa.list_(pa.int32()),
        "struct": pa.struct([("x", pa.int32()), ("y", pa.string())]), "text": pa.string(), "yes": pa.bool_(),
    }
)  # fmt: skip


def stored(n: int) -> dict[str, Any]:
    """The same as a table has it."""
    return {
        **typed(n), "u64": decimal.Decimal(2**64 - 1), "d60": "9" * 50 + ".25", "clock": "23:59:59.000001",
        "took": "-PT0.999995S",
    }  # fmt: skip


def same(found: list[dict[str, Any]]) -> str:
    """Rows as texts, which are equal if the rows are: NaN too, whatever the zone's object is."""
    plain = [
        {k: str(v.astimezone(dt.UTC)) if isinstance(v, dt.datetime) and v.tzinfo else v for k, v in row.items()}
        for row in sorted(found, key=lambda row: row["id"])
    ]
    return json.dumps(plain, default=str, sort_keys=True)


def test_types_in_three_readers(disk: Place) -> None:
    columns = pa.Table.from_pylist([typed(n) for n in range(3)], TYPES.set(13, pa.field("json", pa.string())))
    columns = columns.set_column(13, "json", columns.column("json").combine_chunks().cast(pa.json_()))
    batch = columns.combine_chunks().to_batches()[0]
    written(disk, rows({f.name: batch.column(n) for n, f in enumerate(batch.schema)}))
    written(disk, rows({"id": ints(1)}, Op.DELETE), at=2)
    expected = same([stored(0), stored(2)])
    table = disk.table()
    assert same(disk.rows()) == expected
    assert same(polars.read_delta(table).to_dicts()) == expected
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.read_parquet(table.file_uris()).to_arrow_table().to_pylist()
    assert same(found) == expected


def test_a_value_without_a_place_is_blamed_on_its_row(disk: Place) -> None:
    written(disk, rows({"id": ints(1), "at": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us"))}))
    texts = pa.array(["2021-01-01 00:00:00", "infinity"])
    with pytest.raises(Rejected, match=r"'at' of 3 is a string that has no place") as refused:
        written(disk, rows({"id": ints(2, 3), "at": texts}), at=2)
    assert refused.value.id == "3"
    assert len(disk.rows()) == 1
    with pytest.raises(Rejected, match=r"'at' of 9"):  # nanoseconds are not cut
        written(disk, rows({"id": ints(9), "at": pa.array([1], pa.timestamp("ns"))}), at=2)
    written(disk, rows({"id": ints(2), "at": texts.slice(0, 1)}), at=2)
    assert disk.rows()[-1]["at"] in (dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1))


# -- columns that change
@pytest.mark.parametrize("keep", ["state", "changes"])
def test_columns_come_and_grow(keep: str, tmp_path: Path) -> None:
    place = Place(tmp_path, keep=keep)
    inner = pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
    more = pa.array([{"x": 2, "y": "new"}], pa.struct([("x", pa.int32()), ("y", pa.string())]))
    written(place, rows({"id": ints(1), "n": ints(7, kind=pa.int32()), "s": inner}))
    written(place, rows({"id": ints(2), "n": ints(2**40), "s": more, "o": pa.array(["o"])}), at=2)
    found = {row["id"]: (row["n"], row["s"], row["o"]) for row in place.rows()}
    assert found == {1: (7, {"x": 1, "y": None}, None), 2: (2**40, {"x": 2, "y": "new"}, "o")}
    with pytest.raises(NotReady, match="alter = true"):
        written(place, rows({"id": ints(3), "z": ints(3)}), at=3, alter=False)
    with pytest.raises(NotReady, match=r"'s' is double now, and its column is struct"):
        written(place, rows({"id": ints(3), "s": pa.array([1.5])}), at=3)
    with pytest.raises(NotReady, match=r"'id' and 'ID' differ in capital letters"):
        written(place, rows({"id": ints(3), "ID": ints(3)}), at=3)


@pytest.mark.parametrize("keep", ["state", "changes"])
@pytest.mark.parametrize(
    ("first", "then", "found"),
    [
        (["a"], [], []),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": 1}, {"b": None}, {"a": None}),
        ({"a": 1, "l": [1]}, {"a": None, "l": [], "c": 2}, {"a": None, "l": [], "c": 2}),
        ([{"a": 1}], [None, {}], [None, {"a": None}]),
        ([{"a": [1]}], [{"a": []}], [{"a": []}]),
        ([[1]], [[], None], [[], None]),
    ],
)
def test_a_batch_of_nothing_but_empty_values(keep: str, first: Any, then: Any, found: Any, tmp_path: Path) -> None:
    place = Place(tmp_path, keep=keep)
    written(place, rows({"id": ints(1), "v": pa.array([first])}))
    written(place, rows({"id": ints(2), "v": pa.array([then])}), at=2)
    assert [row["v"] for row in place.rows() if row["id"] == 2] == [found]


def test_a_column_that_begins_with_empty_values_is_json(disk: Place) -> None:
    first, then = rows({"id": ints(1), "v": pa.array([[]])}), rows({"id": ints(2), "v": pa.array([["a"]])})
    written(disk, first)
    written(disk, then, at=2)
    assert {row["id"]: row["v"] for row in disk.rows()} == {1: "[]", 2: '["a"]'}
    other = Place(Path(disk.path) / "other")
    written(other, first, then)  # in one batch the other rows say what the column is
    assert {row["id"]: row["v"] for row in other.rows()} == {1: [], 2: ["a"]}


def test_changes_leave_fields_as_they_are(disk: Place) -> None:
    written(disk, rows({"id": ints(1, 2), "a": ints(1, 1), "b": pa.array(["x", "y"])}))
    unset = pa.array([b"\x02", b"\x04"], pa.binary())
    written(
        disk, rows({"id": ints(1, 2), "a": ints(None, 5), "b": pa.array(["z", None])}, Op.UPDATE, unset=unset), at=2
    )
    found = {row["id"]: (row["a"], row["b"]) for row in disk.rows()}
    assert found == {1: (1, "z"), 2: (5, "y")}


def test_an_open_document_loses_what_it_does_not_have(disk: Place) -> None:
    written(disk, rows({"id": ints(1, 2), "a": ints(1, 2)}, open=True))
    written(disk, rows({"id": ints(1), "b": ints(5)}, Op.UPDATE, open=True), at=2)
    assert sorted((row["id"], row["a"], row["b"]) for row in disk.rows()) == [(1, None, 5), (2, 2, None)]


def test_empty_tables_are_made(disk: Place) -> None:
    written(disk, rows({"id": ints(), "a": pa.array([], pa.string())}))
    assert disk.rows() == []
    assert disk.table().schema().to_json().count('"name"') == 2


def test_partitions(tmp_path: Path) -> None:
    place = Place(tmp_path, partition_by=("day",))
    written(place, rows({"id": ints(1, 2), "day": pa.array(["mon", "tue"])}), rows({"id": ints(1)}, namespace="plain"))
    assert place.table().metadata().partition_columns == ["day"]
    assert place.table("plain").metadata().partition_columns == []
    written(place, rows({"id": ints(1), "day": pa.array(["wed"])}, Op.UPDATE), at=2)
    assert sorted((row["id"], row["day"]) for row in place.rows()) == [(1, "wed"), (2, "tue")]


NAMES = ("_x", "a b", "a/b", "a~2Fb", "é", "%5Fx", "100%", 'q?"#', "n" * 300, "n" * 299 + "m", ".", "Orders")


@pytest.mark.server
def test_namespaces_of_any_name(disk: Place, remote: Place) -> None:
    for place in (disk, remote):
        written(place, *(rows({"id": ints(n)}, namespace=name) for n, name in enumerate(NAMES)))
        assert [place.rows(name) for name in NAMES] == [[{"id": n}] for n in range(len(NAMES))]
        assert place.writer().lost(Who("p", "w", 2)) == []


@pytest.mark.server
def test_what_was_staged_long_ago_is_removed(disk: Place, remote: Place) -> None:
    for place in (disk, remote):
        store = DeltaStore(place.path, place.options)
        old, new = f"{STAGING}/1-a", f"{STAGING}/{int(time.time()):x}-b"
        written(place, rows({"id": ints(1)}))
        for name in (old, new):
            store.put(name, [b"staged"])
        for epoch in (2, 3):
            place.writer().claim(Who("p", "w", epoch))
            assert [store.read(name, 0, 6) for name in (old, new)] == [None, b"staged"]
        assert store.names(STAGING) == [new.rpartition("/")[2]]


class Disk:
    """What of a folder has reached the disk: each file as it was when it was synced."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._synced: set[tuple[str, int]] = set()
        self.told: Callable[[Path], object] = lambda path: None
        patch.setattr(FILES, "sync", self._sync)

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._synced.add((str(path), path.stat().st_mtime_ns if path.is_file() else 0))
        self.told(path)

    def lacks(self) -> list[str]:
        """The files that a power cut could leave empty, and the folders whose names it could take."""
        there = {str(one): one.stat().st_mtime_ns if one.is_file() else 0 for one in self._path.rglob("*")}
        return sorted(path for path, changed in there.items() if (path, changed) not in self._synced)


def test_a_new_ledger_is_synced(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the process that has made it died before it could, and the answer of a commit was lost."""
    there = Disk(Path(disk.path), monkeypatch)
    written(disk, rows({"id": ints(1)}))
    assert there.lacks() == []
    with monkeypatch.context() as patch:
        patch.setattr("tailrace.adaptors.delta.ledger.make_durable", lambda *_: None)
        written(disk, at=2)
    assert there.lacks() != []
    answerless(monkeypatch, TableAlterer, "set_table_properties", OSError("operation timed out"))
    written(disk, at=3)
    assert there.lacks() == []


@pytest.mark.parametrize("keep", ["state", "changes"])
def test_all_files_of_commits_are_synced(keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those in folders of partitions, those of the change data feed, and checkpoints."""
    feed = {"delta.enableChangeDataFeed": "true"}
    there = Place(tmp_path, keep=keep, properties=feed, partition_by=("day",), compact_every=0)
    disk, day = Disk(tmp_path, monkeypatch), pa.array(["mon"])
    for at in range(1, 22):
        written(there, rows({"id": ints(1), "day": day, "n": ints(at)}, Op.UPDATE), at=at)
        assert disk.lacks() == []
    names = {f"{one.parent.name}/{one.name}" for one in tmp_path.rglob("*")}
    assert {"_delta_log/_last_checkpoint", f"{ORDERS}/day=mon"} <= names
    assert keep == "changes" or any(name.startswith("_change_data/") for name in names)


@pytest.mark.parametrize("keep", ["state", "changes"])
def test_wider_columns_and_small_files_put_together_are_synced(
    keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, disk = Place(tmp_path, keep=keep), Disk(tmp_path, monkeypatch)
    written(there, rows({"id": ints(1, 2), "n": ints(7, 7, kind=pa.int32())}))
    written(there, rows({"id": ints(2), "n": ints(2**40)}, Op.UPDATE), at=2)
    assert disk.lacks() == []
    for at in range(3, 9):
        written(there, rows({"id": ints(at), "n": ints(3)}), at=at, compact_every=3, vacuum_every=4)
        assert disk.lacks() == []
    assert "OPTIMIZE" in {one["operation"] for one in there.table().history()}


@pytest.mark.parametrize("dies", ["grow", "append"])
def test_what_a_run_that_died_has_committed_is_synced_by_the_next(
    dies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, disk = Place(tmp_path, keep="changes"), Disk(tmp_path, monkeypatch)
    written(there, rows({"id": ints(1)}))
    answerless(monkeypatch, DeltaLakeTable, dies, OSError("the process ends"))
    batch = rows({"id": ints(2), "n": ints(2)})
    with pytest.raises(OSError, match="the process ends"):
        written(there, batch, at=2)
    assert disk.lacks() != []
    there.writer().claim(Who("p", "w", 2))
    written(there, *([batch] if dies == "grow" else []), at=2 if dies == "grow" else 3, epoch=2)
    assert disk.lacks() == []
    assert [row["id"] for row in there.rows()] == [1, 2]


def test_a_ledger_s_old_log_goes_once_its_checkpoint_is_synced(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Path(disk.path) / "_tailrace" / "p.w" / "_delta_log"
    for at in range(1, 40):
        written(disk, at=at)
    for one in log.iterdir():
        os.utime(one, (time.time() - 7200,) * 2)
    there, seen = Disk(Path(disk.path), monkeypatch), dict[str, int]()
    there.told = lambda path: seen.setdefault(path.name, len(list(log.iterdir())))
    written(disk, at=40)
    assert seen[next(name for name in seen if name.endswith("checkpoint.parquet"))] > 40
    assert len(list(log.iterdir())) < 30
    assert disk.writer().restore("p", "w") == {"epoch": 1, "offsets": {"0": 40}}


def test_what_another_writer_has_not_carried_out_yet_stays_staged(
    disk: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pipeline stops after its commit to the ledger, and stays so while another one goes on below the same path."""
    monkeypatch.setattr(staging, "ORPHANED_SECONDS", -10)
    with monkeypatch.context() as patch:
        answerless(patch, DeltaLakeTable, "step", OSError("the process ends"))
        with pytest.raises(OSError, match="the process ends"):
            written(disk, rows({"id": ints(1)}))
    disk.writer().leave_mark("p.w", "mark")
    disk.writer().claim(Who("other", "w", 1))
    disk.writer().claim(Who("p", "w", 2))
    assert [row["id"] for row in disk.rows()] == [1]
    orphan = f"{STAGING}/1-a"
    DeltaStore(disk.path, {}).put(orphan, [b"staged"])
    broken = DeltaTable(f"{disk.path}/_tailrace/p.w")
    broken.alter.set_table_properties({"tailrace.state": "{"}, raise_if_not_exists=False)
    disk.writer().claim(Who("other", "w", 2))  # nobody knows what the other one still needs
    assert DeltaStore(disk.path, {}).read(orphan, 0, 6) == b"staged"
    assert "stay staged" in caplog.text


# -- what others do
def test_tables_that_are_gone_are_noticed(disk: Place) -> None:
    who = Who("p", "w", 2)
    written(disk, rows({"id": ints(1)}), rows({"id": ints(1)}, namespace="b"), rows({"id": ints(1)}, namespace="c"))
    assert disk.writer().lost(who) == []
    (Path(disk.path) / "b").rename(Path(disk.path) / "gone")
    disk.table("c").delete()
    assert disk.writer().lost(who) == [f"the table {disk.path}/{name}" for name in ("b", "c")]
    write_deltalake(f"{disk.path}/b", pa.table({"id": [1]}))  # another one of this name
    assert f"the table {disk.path}/b" in disk.writer().lost(who)
    with pytest.raises(NotReady, match=r"tailrace offset delete p w"):
        written(disk, rows({"id": ints(2)}, namespace="b"), at=2)
    writer = disk.writer()
    writer.forget(who)
    assert writer.lost(who) == []


def test_a_table_that_goes_while_a_run_is_at_it(disk: Place) -> None:
    running = disk.writer()
    running.finish([running.stage([rows({"id": ints(1)})])], Who("p", "w", 1), {"0": 1})
    (Path(disk.path) / ORDERS).rename(Path(disk.path) / "gone")
    with pytest.raises(NotReady, match="is gone, or was emptied"):
        running.finish([running.stage([rows({"id": ints(2)})])], Who("p", "w", 1), {"0": 2})


def test_another_program_commits_in_between(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows stay, and ours are there once."""
    written(disk, rows({"id": ints(1), "n": ints(1)}))
    merge, others = DeltaLakeTable.merge, iter(range(3))

    def disturbed(table: DeltaLakeTable, *given: Any) -> None:
        if next(others, None) is not None:
            disk.table().update({"n": "n + 10"})
        merge(table, *given)

    monkeypatch.setattr(DeltaLakeTable, "merge", disturbed)
    written(disk, rows({"id": ints(2), "n": ints(2)}), at=2)
    assert sorted((row["id"], row["n"]) for row in disk.rows()) == [(1, 31), (2, 2)]
    monkeypatch.setattr("tailrace.adaptors.lake.writer.ATTEMPTS", 2)
    others = iter(range(9))
    with pytest.raises(Unavailable, match="committed to it in between"):
        written(disk, rows({"id": ints(3), "n": ints(3)}), at=3)
    monkeypatch.undo()
    disk.writer().claim(Who("p", "w", 2))  # decided, and so carried out by the next run
    assert sorted(row["id"] for row in disk.rows()) == [1, 2, 3]


def test_of_two_runs_at_once_one_is_refused(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was followed between its look at the ledger and its commit finishes nothing."""
    written(disk, rows({"id": ints(1)}))
    swap = DeltaLedger.swap

    def late(ledger: DeltaLedger, *given: Any) -> bool:
        monkeypatch.setattr(DeltaLedger, "swap", swap)
        disk.writer().claim(Who("p", "w", 2))
        return ledger.swap(*given)

    monkeypatch.setattr(DeltaLedger, "swap", late)
    with pytest.raises(Fenced):
        written(disk, rows({"id": ints(2)}), at=2)
    assert [row["id"] for row in disk.rows()] == [1]


def answerless(patch: pytest.MonkeyPatch, kind: type, name: str, error: Exception) -> None:
    """The next call does what it should, and then fails."""
    method = getattr(kind, name)

    def failing(*given: Any, **named: Any) -> None:
        patch.setattr(kind, name, method)
        method(*given, **named)
        raise error

    patch.setattr(kind, name, failing)


def test_commits_without_an_answer(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed counts once, whatever the library has heard of it."""
    written(disk, rows({"id": ints(1), "n": ints(1)}))
    answerless(monkeypatch, TableAlterer, "set_table_properties", OSError("operation timed out"))
    written(disk, rows({"id": ints(2), "n": ints(2)}), at=2)
    answerless(monkeypatch, TableMerger, "execute", CommitFailedError("its own commit"))
    written(disk, rows({"id": ints(2), "n": ints(3)}), at=3)
    answerless(monkeypatch, TableMerger, "execute", OSError("operation timed out"))
    with pytest.raises(Unavailable, match="operation timed out"):
        written(disk, rows({"id": ints(3), "n": ints(3)}), at=4)
    kept = disk.writer().claim(Who("p", "w", 2))
    assert kept is not None
    assert kept["offsets"] == {"0": 4}
    assert sorted((row["id"], row["n"]) for row in disk.rows()) == [(1, 1), (2, 3), (3, 3)]


def test_a_folder_that_tasks_do_not_share_is_noticed(disk: Place, tmp_path: Path) -> None:
    disk.writer().leave_mark("p.w", "first")
    disk.writer().leave_mark("p.w", "second")
    assert disk.writer().sees_mark("p.w", "second")
    assert not disk.writer().sees_mark("p.w", "third")
    assert not Place(tmp_path / "elsewhere").writer().sees_mark("p.w", "second")
    assert not (tmp_path / "elsewhere").exists()


def test_a_truncate_in_a_change_log_is_a_row(tmp_path: Path) -> None:
    place = Place(tmp_path, keep="changes")
    written(place, rows({"id": ints(1)}))
    for _ in range(2):
        place.writer().command(ORDERS, Command(TRUNCATE), Who("p", "w", 1))
    assert [row["_op"] for row in place.rows()] == ["insert", "truncate", "truncate"]


def test_small_files_are_put_together_and_old_ones_removed(tmp_path: Path) -> None:
    place = Place(tmp_path, keep="changes", compact_every=4, vacuum_every=6, retain_hours=0)
    for n in range(1, 8):
        written(place, rows({"id": ints(n)}), at=n)
    assert len(place.table().file_uris()) < 5
    operations = [one["operation"] for one in place.table().history()]
    assert "OPTIMIZE" in operations
    there = {str(one) for one in (tmp_path / ORDERS).glob("*.parquet")}
    assert there == set(place.table().file_uris())
    assert [row["id"] for row in place.rows()] == list(range(1, 8))
    about = json.loads(next(one["tailrace"] for one in place.table().history() if "tailrace" in one))
    assert (about["pipeline"], about["offsets"]) == ("p", {"0": 7})


# -- what is not set up
def test_what_is_wrong_is_said(disk: Place, tmp_path: Path) -> None:
    (tmp_path / "lake" / ORDERS).mkdir(parents=True)
    (tmp_path / "lake" / ORDERS / "some.parquet").touch()
    with pytest.raises(NotReady, match=r"has 'some.parquet' in it, and is no Delta table"):
        written(disk, rows({"id": ints(1)}))
    write_deltalake(str(tmp_path / "one"), pa.table({"id": [1]}))
    with pytest.raises(NotReady, match="is a Delta table itself"):
        Place(tmp_path / "one").writer().check()
    (tmp_path / "file").touch()
    with pytest.raises(NotReady, match="is a file"):
        Place(tmp_path / "file").writer().check()
    with pytest.raises(NotReady, match="has a field called _op"):
        written(Place(tmp_path / "log", keep="changes"), rows({"id": ints(1), "_op": ints(1)}))
    writer = disk.writer(keep="changes")
    written(disk, rows({"id": ints(1)}, namespace="b"))
    with pytest.raises(NotReady, match="has kept state so far"):
        writer.claim(Who("p", "w", 2))


@pytest.mark.server
def test_what_is_wrong_with_a_bucket_is_said(bucket: tuple[str, dict[str, str]]) -> None:
    name, options = bucket
    with pytest.raises(NotReady, match=r"no such bucket") as refused:
        Place("s3://nowhere/lake", options).writer().check()
    assert options["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)
    with pytest.raises(NotReady, match="check the credentials"):
        Place(f"s3://{name}/lake", {**options, "AWS_SECRET_ACCESS_KEY": "wrong"}).writer().check()
    gone = {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0"}
    with pytest.raises(Unavailable):
        Place(f"s3://{name}/lake", gone).writer().check()
    assert options["AWS_SECRET_ACCESS_KEY"] not in repr(Place(f"s3://{name}/lake", options).writer())


def test_a_ledger_keeps_little(disk: Place) -> None:
    """Of its own log only the end is needed; the rest goes."""
    for n in range(1, 45):
        written(disk, at=n)
    assert DeltaTable(f"{disk.path}/_tailrace/p.w").version() == 44
    assert disk.writer().restore("p", "w") == {"epoch": 1, "offsets": {"0": 44}}
