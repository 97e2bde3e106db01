"""A sink that has lost what was delivered into it: a run says so, and an operator has it delivered again.  So does a
run whose home is taken away."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.file.sink.current import current
from tailrace.errors import Broken, TailraceError
from tailrace.pipeline.define.definition import Definition, SinkDefinition
from tailrace.pipeline.operate import operator
from tailrace.pipeline.run.runner import Runner
from tests.pipeline.runs import caught_up, going, until
from tests.pipeline.shop import definition

TABLE, ROWS = "shop.orders", 3_000


def made(path: Path, changes: int = 0) -> Definition:
    lake = SinkDefinition("lake", "file", {"path": str(path / "lake")})
    topics = SinkDefinition("topics", "tailrace", {"home": str(path / "home"), "partitions": 2})
    return replace(definition(path, lake, topics, tables=(TABLE,), rows=ROWS, changes=changes), piece_rows=ROWS)


def test_a_folder_and_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    Runner(made(tmp_path), spark).run(once=True)
    shutil.rmtree(tmp_path / "lake" / TABLE)
    again = r"sink of 'lake' has lost .*the folder .*shop\.orders.*`tailrace offset delete shop lake --why"
    with pytest.raises(TailraceError, match=again):
        Runner(made(tmp_path, changes=1), spark).run(once=True)
    assert not (tmp_path / "lake" / TABLE).exists(), "one row of 3,000"
    with tailrace.open(tmp_path / "home") as home:
        operator.forget(home, "shop", "lake", "the folder was removed")
        home.delete_topic("shop-orders")
    with pytest.raises(TailraceError, match=r"sink of 'topics' has lost .*the topic 'shop-orders'"):
        Runner(made(tmp_path, changes=1), spark).run(once=True)
    with tailrace.open(tmp_path / "home") as home:
        operator.forget(home, "shop", "topics", "the topic was deleted")
    Runner(made(tmp_path, changes=1), spark).run(once=True)
    assert len(current(tmp_path / "lake", TABLE)) == ROWS
    assert sum(pq.read_metadata(part).num_rows for part in (tmp_path / "lake" / TABLE).rglob("*.parquet")) == ROWS + 1
    with tailrace.open(tmp_path / "home") as home:
        assert len(list(home.topic("shop-orders").records())) == ROWS + 1


def test_an_operator_who_wants_it_so_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    Runner(made(tmp_path), spark).run(once=True)
    shutil.rmtree(tmp_path / "lake" / TABLE)
    with tailrace.open(tmp_path / "home") as home:
        at = operator.marks(home, "shop", "lake")[0].low
        operator.mark(home, "shop", "lake", 0, at, "archived elsewhere")
    Runner(made(tmp_path, changes=3), spark).run(once=True)
    assert sorted(row["id"] for row in current(tmp_path / "lake", TABLE)) == [1, 2, 3]


def test_a_home_that_is_removed_while_a_run_follows_ends_it(spark: SparkSession, tmp_path: Path) -> None:
    lake = SinkDefinition("lake", "file", {"path": str(tmp_path / "lake")})
    made = definition(tmp_path, lake, tables=(TABLE,), rows=10)
    with pytest.raises(Broken, match="was removed, moved or replaced"), going(made, spark) as runner:
        until(lambda: caught_up(runner))
        shutil.rmtree(tmp_path / "home")
        until(lambda: runner.status.state == "stopped", 20)
