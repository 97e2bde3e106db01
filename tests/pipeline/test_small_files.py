"""Small changes in few files: a writer of files holds a little back, and loses, doubles and delays nothing by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.file.sink.current import current
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode
from tailrace.pipeline.define.definition import Definition, SinkDefinition
from tailrace.pipeline.deliver import delivery_jobs
from tailrace.pipeline.deliver.outlet import Outlet
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.run.runner import Runner
from tests.pipeline.runs import going, until
from tests.pipeline.shop import definition

pytestmark = pytest.mark.spark
NEVER = 3600.0


def _files(path: Path, every: float | None = NEVER) -> Definition:
    given = {"path": str(path / "lake")} | ({} if every is None else {"every": every})
    return definition(path, SinkDefinition("lake", "file", given), partitions=2, tables=())


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with tailrace.open(tmp_path / "home") as home:
        made = CommitLog(home, "shop", partitions=2)
        made.begin(0)
        yield made


def _update(log: CommitLog, first: int, end: int) -> None:
    """Changes that come one by one."""
    log.refresh()
    for id in range(first, end):
        columns = pa.record_batch({"id": pa.array([id]), "v": pa.array(["x"])})
        log.take_in([make_rows("orders", columns, ["id"], mode=Mode.SYNC, timestamp=1000)], 0)


def _batches(path: Path) -> list[list[int]]:
    return [
        sorted(row["id"] for part in folder.glob("*.parquet") for row in _rows(part))
        for folder in sorted((path / "lake" / "orders").glob("batch-*"))
    ]


def _rows(part: Path) -> list[dict[str, int]]:
    import pyarrow.parquet as pq

    return list(pq.ParquetFile(part).read(["id"]).to_pylist())


def test_the_first_change_comes_at_once_and_those_that_follow_it_together(
    spark: SparkSession, tmp_path: Path, log: CommitLog
) -> None:
    with going(_files(tmp_path), spark) as runner:
        until(lambda: runner.status.state == "following")
        _update(log, 0, 1)
        until(lambda: _batches(tmp_path) == [[0]])
        _update(log, 1, 10)
        until(lambda: runner.status.sinks["lake"].lag == 9 and runner.status.sinks["lake"].state == "collecting")
        assert _batches(tmp_path) == [[0]], "held back"
    assert _batches(tmp_path) == [[0], [*range(1, 10)]], "a run that ends lets go of them"


def test_nobody_waits_for_ever(spark: SparkSession, tmp_path: Path, log: CommitLog) -> None:
    with going(_files(tmp_path, every=0.5), spark) as runner:
        until(lambda: runner.status.state == "following")
        for n in range(3):
            _update(log, n, n + 1)
            until(lambda n=n: sum(map(len, _batches(tmp_path))) == n + 1)  # type: ignore[misc]
        until(lambda: runner.status.sinks["lake"].state == "running")


def test_much_is_not_held_back(
    spark: SparkSession, tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_jobs, "MAX_RECORDS_PER_TASK", 5)
    with going(_files(tmp_path), spark) as runner:
        until(lambda: runner.status.state == "following")
        _update(log, 0, 1)
        until(lambda: _batches(tmp_path) == [[0]])
        _update(log, 1, 10)
        until(lambda: sum(map(len, _batches(tmp_path))) > 5)


def test_what_a_run_held_back_that_was_killed_is_the_next_ones(
    spark: SparkSession, tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(Outlet, "_let_go", lambda self: None)
        with going(_files(tmp_path), spark) as runner:
            until(lambda: runner.status.state == "following")
            _update(log, 0, 1)
            until(lambda: _batches(tmp_path) == [[0]])
            _update(log, 1, 10)
            until(lambda: runner.status.sinks["lake"].lag == 9)
    assert _batches(tmp_path) == [[0]]
    _update(log, 10, 12)
    Runner(_files(tmp_path, every=None), spark).run(once=True)
    assert _batches(tmp_path) == [[0], [*range(1, 12)]]
    assert len(current(tmp_path / "lake", "orders")) == 12
