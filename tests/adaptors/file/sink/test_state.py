"""The state of a namespace in one file: whole, current and once, wherever a process dies."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.adaptors.contract import Command, Who
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.file.sink import state as merging
from tailrace.adaptors.file.sink import writer as writing
from tailrace.adaptors.file.sink.disk import FILES, REAL, Disk
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadSetting, Fenced, NotReady
from tailrace.log.record import Mode, Op
from tests.adaptors.file.sink.test_writer import Dying, Killed

WHO = Who("shop", "lake", 1)
UNSET = object()
Change = tuple[Op, int, Any]


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, not machines."""
    monkeypatch.setattr(FILES, "sync", lambda descriptor: None)


def writer(path: Path, disk: Disk = REAL, **given: Any) -> FileWriter:
    return FileWriter(FileSink(path=str(path), keep="state", **{"every": 0, **given}), disk)


def rows(changes: list[Change], namespace: str = "t") -> pa.RecordBatch:
    columns = pa.record_batch(
        {
            "id": pa.array([id for _, id, _ in changes], pa.int64()),
            "v": pa.array([None if v is UNSET else v for _, _, v in changes], pa.string()),
        }
    )
    unset = pa.array([b"\x02" if v is UNSET else None for _, _, v in changes], pa.binary())
    ops = pa.array([op for op, _, _ in changes], pa.uint8())
    return make_rows(namespace, columns, ["id"], op=ops, mode=Mode.SYNC, unset=unset)


def applied(held: dict[int, Any], changes: list[Change]) -> dict[int, Any]:
    for op, id, v in changes:
        if op == Op.DELETE:
            held.pop(id, None)
        elif v is not UNSET:
            held[id] = v
    return held


def state(path: Path, namespace: str = "t") -> dict[int, Any]:
    """What a plain glob finds."""
    files = list((path / namespace).glob("*.parquet"))
    assert len(files) <= 1
    table = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len({row["id"] for row in table}) == len(table), "once"
    return {row["id"]: row["v"] for row in table}


changes = st.lists(
    st.one_of(
        st.tuples(st.just(Op.INSERT), st.integers(0, 4), st.sampled_from(["a", "b", None])),
        st.tuples(st.just(Op.UPDATE), st.integers(0, 4), st.sampled_from(["c", UNSET])),
        st.tuples(st.just(Op.DELETE), st.integers(0, 4), st.just(None)),
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(changes | st.just("truncate"), min_size=1, max_size=5),
    st.sampled_from([0.0, 100.0]),
    st.sampled_from([1, 1_000_000]),
)
def test_the_current_rows(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Any], every: float, at_a_time: int
) -> None:
    path, held = tmp_path_factory.mktemp("state"), dict[int, Any]()
    made = writer(path, every=every)
    made.claim(WHO)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merging, "MERGED_ROWS", at_a_time)
        for offset, batch in enumerate(batches):
            if batch == "truncate":
                made.command("t", Command("truncate"), WHO)
                held = {}
            else:
                made.finish([made.stage([rows(batch)])], WHO, {"0": offset})
                held = applied(held, batch)
        made.close()
    assert state(path) == held


def test_a_merge_has_one_row_group_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a copy, or a transaction of millions of rows, much more is pending than memory can hold."""
    monkeypatch.setattr(merging, "GROUP_BYTES", 20_000)
    monkeypatch.setattr(merging, "MERGED_ROWS", 200)
    read: list[int] = []

    class Watched(pq.ParquetFile):  # type: ignore[misc]
        def read_row_group(self, *given: Any, **named: Any) -> pa.Table:
            table = super().read_row_group(*given, **named)
            read.append(table.nbytes)
            return table

    monkeypatch.setattr(merging, "pq", SimpleNamespace(ParquetFile=Watched, ParquetWriter=pq.ParquetWriter))
    made = writer(tmp_path, every=1000)
    made.claim(WHO)
    expected: dict[int, Any] = {}
    for n in range(30):
        batch = [(Op.INSERT, n * 10 + k, str(n % 10) * 1000) for k in range(20)]
        made.finish([made.stage([rows(batch)])], WHO, {"0": n})
        expected = applied(expected, batch)
    partial: list[Change] = [(Op.UPDATE, id, UNSET if id % 2 else "new") for id in range(0, 300, 3)]
    made.finish([made.stage([rows(partial)])], WHO, {"0": 30})
    made.close()
    assert state(tmp_path) == applied(expected, partial)
    assert len(read) > 50
    assert max(read) < 60_000, "of some 600,000"


# -- when nothing comes any more
@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the writer, which stands still."""
    clock = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: clock.seconds, time=lambda: clock.seconds))
    return clock


def test_the_last_changes_before_a_quiet_time_do_not_wait_for_the_next_one(
    tmp_path: Path, now: SimpleNamespace
) -> None:
    made = writer(tmp_path, every=60)
    made.claim(WHO)
    made.finish([made.stage([rows([(Op.INSERT, 1, "a")])])], WHO, {"0": 0})
    now.seconds += 1
    made.finish([made.stage([rows([(Op.INSERT, 2, "b")])])], WHO, {"0": 1})
    made.idle()
    assert state(tmp_path) == {1: "a"}, "not sooner than every minute"
    now.seconds += 60
    made.idle()
    assert state(tmp_path) == {1: "a", 2: "b"}


def test_what_a_killed_run_had_not_merged_is_merged_though_nothing_comes(tmp_path: Path) -> None:
    killed = writer(tmp_path, every=1000)
    killed.claim(WHO)
    for offset in (0, 1):
        killed.finish([killed.stage([rows([(Op.INSERT, offset, "a")])])], WHO, {"0": offset})
    assert state(tmp_path) == {0: "a"}
    made = writer(tmp_path, every=1000)
    made.claim(WHO._replace(epoch=2))
    made.idle()
    assert state(tmp_path) == {0: "a", 1: "a"}


def test_a_run_that_was_taken_over_merges_nothing(tmp_path: Path) -> None:
    """On two machines whose locks do not see each other, an older state could replace a newer one."""
    made = writer(tmp_path, every=1000)
    made.claim(WHO)
    for offset in (0, 1):
        made.finish([made.stage([rows([(Op.INSERT, offset, "a")])])], WHO, {"0": offset})
    made._merged = 0.0
    writer(tmp_path).claim(WHO._replace(epoch=2))
    with pytest.raises(Fenced):
        made.idle()
    made.close()
    assert state(tmp_path) == {0: "a"}


def test_a_truncate_of_a_table_that_has_no_state(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.claim(WHO)
    made.finish([made.stage([rows([(Op.INSERT, 1, "a")], "u")])], WHO, {"0": 0})
    made.command("t", Command("truncate"), WHO)
    made.finish([made.stage([rows([(Op.INSERT, 2, "a")], "u")])], WHO, {"0": 1})
    assert state(tmp_path, "u") == {1: "a", 2: "a"}
    made.finish([made.stage([rows([(Op.INSERT, 3, "a")])])], WHO, {"0": 2})
    assert state(tmp_path) == {3: "a"}


BATCHES: list[list[Change]] = [
    [(Op.INSERT, n, "first") for n in range(5)],
    [(Op.UPDATE, 1, "second"), (Op.DELETE, 2, None), (Op.INSERT, 7, "new")],
    [(Op.UPDATE, 3, UNSET), (Op.INSERT, 2, "again")],
]


def test_wherever_a_process_dies(tmp_path: Path) -> None:
    expected: dict[int, Any] = {}
    states: list[dict[int, Any]] = [{}]
    for batch in BATCHES:
        expected = applied(dict(expected), batch)
        states.append(expected)
    for steps in range(200):
        path = tmp_path / str(steps)
        dying, died = Dying(steps), False
        try:
            made = writer(path, dying)
            made.claim(WHO)
            for offset, batch in enumerate(BATCHES):
                made.finish([made.stage([rows(batch)])], WHO, {"0": offset})
                assert state(path) == states[offset + 1]
        except Killed:
            died = True
        assert state(path) in states, "a reader sees a whole state"
        who = WHO._replace(epoch=2)
        made = writer(path)
        made.check()
        kept = made.claim(who)
        done = kept["offsets"].get("0", -1) if kept else -1
        for offset in range(done + 1, len(BATCHES)):
            made.finish([made.stage([rows(BATCHES[offset])])], who, {"0": offset})
        made.close()
        assert state(path) == expected, steps
        if not died:
            return
    raise AssertionError("it never came to an end")


def test_new_columns_and_wider_types(tmp_path: Path) -> None:
    made = writer(tmp_path)
    old = make_rows("t", pa.record_batch({"id": pa.array([1, 2], pa.int32()), "gone": ["x", "y"]}), ["id"])
    new = make_rows("t", pa.record_batch({"id": pa.array([2, 2**40], pa.int64()), "more": [1.5, None]}), ["id"])
    made.finish([made.stage([old])], WHO, {"0": 1})
    made.finish([made.stage([new])], WHO, {"0": 2})
    (file,) = (tmp_path / "t").glob("*.parquet")
    assert sorted(pq.read_table(file).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "gone": "x", "more": None},
        {"id": 2, "gone": None, "more": 1.5},
        {"id": 2**40, "gone": None, "more": None},
    ]


def test_what_cannot_be_kept_as_a_state(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="leave format and plain"):
        writer(tmp_path, format="jsonl").check()
    with pytest.raises(NotReady, match="has no key"):
        writer(tmp_path).stage([make_rows("t", pa.record_batch({"id": [1]}), [])])


def test_a_state_that_is_removed_is_missed(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.claim(WHO)
    made.finish([made.stage([rows(BATCHES[0])])], WHO, {"0": 0})
    (tmp_path / "t" / "state.parquet").unlink()
    assert made.lost(WHO) == [f"the folder {tmp_path / 't'}"]
    with pytest.raises(NotReady, match="offset delete"):
        made.finish([made.stage([rows(BATCHES[1])])], WHO, {"0": 1})
    made.forget(WHO)
    made.finish([made.stage([rows(BATCHES[0])])], WHO, {"0": 2})
    assert len(state(tmp_path)) == 5


def test_two_writers_do_not_share_a_state(tmp_path: Path) -> None:
    for who in (WHO, WHO._replace(writer="other")):
        made = writer(tmp_path)
        staged = [made.stage([rows(BATCHES[0])])]
        if who == WHO:
            made.finish(staged, who, {"0": 0})
        else:
            with pytest.raises(NotReady, match="another writer's"):
                made.finish(staged, who, {"0": 0})


def test_a_writer_does_not_change_from_one_to_the_other(tmp_path: Path) -> None:
    made = FileWriter(FileSink(path=str(tmp_path)))
    made.claim(WHO)
    made.finish([made.stage([rows(BATCHES[0])])], WHO, {"0": 0})
    with pytest.raises(NotReady, match=r"has kept changes .* another name"):
        writer(tmp_path).claim(WHO._replace(epoch=2))
    assert FileWriter(FileSink(path=str(tmp_path), keep="changes")).claim(WHO._replace(epoch=2)) is not None


def numbered(ids: list[int], digits: pa.DataType) -> pa.RecordBatch:
    numbers = pa.array([Decimal(f"{id}.0000000001") for id in ids], digits)
    return make_rows("t", pa.record_batch({"id": pa.array(ids), "n": numbers}), ["id"], mode=Mode.SYNC)


def test_numbers_that_other_tools_cannot_read_are_texts(tmp_path: Path) -> None:
    """DuckDB makes floats of numbers with more than 38 digits; Spark and Polars refuse the whole file."""
    made = writer(tmp_path)
    made.finish([made.stage([numbered([1, 2], pa.decimal256(60, 10))])], WHO, {"0": 1})
    table = pq.read_table(tmp_path / "t" / "state.parquet")
    assert table.column("n").to_pylist() == ["1.0000000001", "2.0000000001"]


def test_a_state_of_an_earlier_version_with_such_numbers_goes_on(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.finish([made.stage([numbered([1, 2], pa.decimal256(60, 10))])], WHO, {"0": 1})
    file = tmp_path / "t" / "state.parquet"
    table = pq.read_table(file)
    old = table.column("n").cast(pa.decimal256(60, 10))
    pq.write_table(table.set_column(1, "n", old), file)
    made.finish([made.stage([numbered([2, 3], pa.decimal256(60, 10))])], WHO, {"0": 2})
    found = {row["id"]: row["n"] for row in pq.read_table(file).to_pylist()}
    assert found == {1: "1.0000000001", 2: "2.0000000001", 3: "3.0000000001"}
