"""A home or a sink that was restored from a backup contradicts the other one, and is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.errors import Diverged
from tailrace.pipeline.define.definition import Definition, SinkDefinition
from tailrace.pipeline.operate import operator
from tailrace.pipeline.run.runner import Runner
from tests.pipeline.shop import definition, flat, sink
from tests.pipeline.toys import batches, delivered_files

pytestmark = pytest.mark.spark


def once(made: Definition, spark: SparkSession) -> None:
    Runner(made, spark).run(once=True)


def shop(path: Path, changes: int, *sinks: SinkDefinition) -> Definition:
    ends = sinks or (sink(path, exact=True),)
    return definition(path, *ends, changes=changes, tables=("shop.orders",))


def backup(path: Path) -> str:
    with tailrace.open(path / "home") as home:
        home.copy(path / "backup")
    return str(path / "backup")


@pytest.mark.parametrize("runs", [1, 3])
def test_a_home_that_is_older_than_its_sink(spark: SparkSession, tmp_path: Path, runs: int) -> None:
    """The sink's run is one that the home knows (1), or not (3)."""
    once(shop(tmp_path, 5), spark)
    older = backup(tmp_path)
    for n in range(runs):
        once(shop(tmp_path, 10 + n), spark)
    before = flat(tmp_path / "c0")
    with pytest.raises(Diverged, match="knows more of 'shop' than this home"):
        once(replace(shop(tmp_path, 20), home=older), spark)
    assert flat(tmp_path / "c0") == before


def test_a_home_that_is_as_old_as_its_sink_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    once(shop(tmp_path, 5), spark)
    once(replace(shop(tmp_path, 10), home=backup(tmp_path)), spark)
    assert sorted(flat(tmp_path / "c0")) == list(range(1, 11))


def test_a_sink_that_is_older_than_the_home(spark: SparkSession, tmp_path: Path) -> None:
    once(shop(tmp_path, 5), spark)
    older = set(delivered_files(tmp_path / "c0"))
    once(shop(tmp_path, 10), spark)
    for newer in set(delivered_files(tmp_path / "c0")) - older:
        newer.unlink()
    with pytest.raises(Diverged, match="has lost what 'shop' had delivered") as raised:
        once(shop(tmp_path, 12), spark)
    assert sorted(flat(tmp_path / "c0")) == list(range(1, 6))
    orders = re.findall(r"tailrace offset mark shop c0 (\d+):(-?\d+)", str(raised.value))
    assert orders
    with tailrace.open(tmp_path / "home") as home:
        for q, offset in orders:
            operator.mark(home, "shop", "c0", int(q), int(offset), "restored")
    once(shop(tmp_path, 12), spark)
    assert sorted(flat(tmp_path / "c0")) == list(range(1, 13)), "each once, as told"


def test_a_sink_that_was_emptied(spark: SparkSession, tmp_path: Path) -> None:
    once(shop(tmp_path, 5), spark)
    for file in delivered_files(tmp_path / "c0"):
        file.unlink()
    with pytest.raises(Diverged, match=r"keeps nothing of this pipeline.*tailrace offset delete shop c0"):
        once(shop(tmp_path, 5), spark)
    with tailrace.open(tmp_path / "home") as home:
        operator.forget(home, "shop", "c0", "emptied")
    once(shop(tmp_path, 5), spark)
    assert sorted(flat(tmp_path / "c0")) == list(range(1, 6))


def test_sinks_that_keep_nothing_and_batches_that_leave_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    ends = (sink(tmp_path, "silent", exact=True, silent=True), sink(tmp_path, "filtered", "^nothing$", exact=True))
    for changes in (5, 10):
        once(shop(tmp_path, changes, *ends), spark)
    with tailrace.open(tmp_path / "home") as home:
        marks = operator.marks(home, "shop", "silent")
    assert sum(mark.resume for mark in marks.values()) == 10


def test_files_that_were_removed(spark: SparkSession, tmp_path: Path) -> None:
    lake = SinkDefinition("lake", "file", {"path": str(tmp_path / "lake"), "format": "jsonl"})
    once(shop(tmp_path, 5, lake), spark)
    (tmp_path / "lake").rename(tmp_path / "gone")
    with pytest.raises(Diverged, match="has lost what 'shop' had delivered"):
        once(shop(tmp_path, 10, lake), spark)
    (tmp_path / "lake").rename(tmp_path / "empty")
    (tmp_path / "gone").rename(tmp_path / "lake")
    once(shop(tmp_path, 10, lake), spark)


def test_a_command_after_the_last_batch_is_no_part_of_what_the_sink_stored(spark: SparkSession, tmp_path: Path) -> None:
    """A truncate moves the marks of the home, and leaves no offsets in the sink."""
    ends = definition(tmp_path, sink(tmp_path, exact=True), changes=5, truncate=5, tables=("shop.orders",))
    once(ends, spark)
    once(ends, spark)
    assert [row[2] for batch in batches(tmp_path / "c0") for row in batch] == ["UPDATE"] * 4 + ["truncate"]
