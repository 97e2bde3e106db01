"""An operator's mark and commands: behind all of a writer's marks or before all, whatever is marked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadInput, TailraceError
from tailrace.home import Home
from tailrace.log.record import Mode, Op
from tailrace.log.upkeep.retention import raise_floor
from tailrace.pipeline.deliver.command_marks import commands
from tailrace.pipeline.deliver.offsets import Mark, override
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import operator
from tailrace.pipeline.operate.ledger import remember
from tailrace.pipeline.operate.step import step
from tailrace.pipeline.run.runner import Runner
from tests.pipeline.shop import definition, sink
from tests.pipeline.toys import rows


def some(first: int, count: int = 8) -> pa.RecordBatch:
    columns = pa.record_batch({"id": pa.array(range(first, first + count)), "v": pa.array(["x"] * count)})
    return make_rows("A", columns, ["id"], mode=Mode.SYNC)


def truncate(namespace: str = "A") -> pa.RecordBatch:
    columns = pa.record_batch({"command": pa.array(["truncate"])})
    return make_rows(namespace, columns, [], op=Op.COMMAND, mode=Mode.SYNC)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Two partitions, each with rows, a truncate, rows, a truncate, rows; nothing is delivered."""
    (tmp_path / "c0").mkdir()
    with tailrace.open(tmp_path / "home") as made:
        log = CommitLog(made, "shop", partitions=2)
        log.begin(0)
        for n, batch in enumerate([some(0), truncate(), some(10), truncate("B"), some(20)]):
            log.take_in([batch], n)
        remember(made, definition(tmp_path, sink(tmp_path), tables=()))
        yield made


def places(home: Home) -> tuple[list[int], list[int]]:
    """Where the truncates are, of each partition."""
    first, second = (commands(home.topic("shop-log"), q, 0, 99) for q in (0, 1))
    assert len(first) == len(second) == 2
    return first, second


def at(home: Home, *lows: int) -> None:
    for q, low in enumerate(lows):
        home.store.run(override("shop", "c0", q, Mark(low)))


def ends(home: Home) -> tuple[int, int]:
    first, second = (end - 1 for _, end in home.topic("shop-log").ends().values())
    return first, second


@pytest.mark.parametrize("offset", [-1, 0, 99])
@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_the_log_lacks_cannot_be_marked(home: Home, partition: int, offset: int) -> None:
    with pytest.raises(BadInput, match=f"has no message {partition}:{offset}"):
        operator.mark(home, "shop", "c0", partition, offset, "why")


def test_back_before_a_truncate_takes_the_others_along(home: Home) -> None:
    first, second = places(home)
    at(home, *ends(home))
    operator.mark(home, "shop", "c0", 0, first[1] - 1, "again")
    assert operator.marks(home, "shop", "c0") == {0: Mark(first[1] - 1), 1: Mark(second[1] - 1)}
    operator.mark(home, "shop", "c0", 0, -1, "all of it")
    assert operator.marks(home, "shop", "c0") == {0: Mark(-1), 1: Mark(second[0] - 1)}


def test_what_retention_has_removed_is_nobodys_mark(home: Home) -> None:
    first, second = places(home)
    at(home, *ends(home))
    log = home.topic("shop-log").log
    home.store.run(raise_floor(log, {1: second[1] + 1}))
    operator.mark(home, "shop", "c0", 0, first[1] - 1, "again")
    assert operator.marks(home, "shop", "c0") == {0: Mark(first[1] - 1), 1: Mark(second[1])}


def test_back_within_what_came_after_moves_nobody_else(home: Home) -> None:
    first, _ = places(home)
    at(home, *ends(home))
    operator.mark(home, "shop", "c0", 0, first[1], "again")
    assert operator.marks(home, "shop", "c0") == {0: Mark(first[1]), 1: Mark(ends(home)[1])}


def test_a_truncate_is_passed_where_all_stand_before_it(home: Home) -> None:
    first, second = places(home)
    at(home, first[0] - 1, second[0] - 1)
    operator.mark(home, "shop", "c0", 1, second[0], "the sink must not be emptied")
    assert operator.marks(home, "shop", "c0") == {0: Mark(first[0]), 1: Mark(second[0])}


@pytest.mark.parametrize("namespace", [None, "A"])
def test_otherwise_it_is_not(home: Home, namespace: str | None) -> None:
    first, second = places(home)
    at(home, -1, second[0] - 1)
    for offset in (second[0], second[0] + 1):
        with pytest.raises(BadInput, match=rf"1:{second[0]} is a truncate, .* mark 1:{second[0] - 1}, and let"):
            operator.mark(home, "shop", "c0", 1, offset, "past it", namespace)
    at(home, first[0] - 1, second[0] - 1)
    with pytest.raises(BadInput, match="is a truncate"):
        operator.mark(home, "shop", "c0", 1, second[0] + 1, "past it and more", namespace)
    assert operator.marks(home, "shop", "c0") == {0: Mark(first[0] - 1), 1: Mark(second[0] - 1)}


def test_of_another_namespace_it_is_no_matter(home: Home) -> None:
    _, second = places(home)
    operator.mark(home, "shop", "c0", 1, second[0], "none of it is wanted", "C")
    assert operator.marks(home, "shop", "c0")[1].ahead == {"C": second[0]}


def test_a_partition_that_is_younger_begins_anew(home: Home) -> None:
    first, _ = places(home)
    home.topic("shop-log").grow(3)
    CommitLog(home, "shop", partitions=2).take_in([some(30, 40)], 9)
    at(home, *(end - 1 for _, end in home.topic("shop-log").ends().values()))
    operator.mark(home, "shop", "c0", 0, first[1] - 1, "again")
    assert operator.marks(home, "shop", "c0")[2] == Mark(-1)


@pytest.mark.spark
def test_delivered_again_from_before_a_truncate(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), tables=())
    Runner(made, spark).run(once=True)
    once = len(rows(tmp_path / "c0"))
    operator.mark(home, "shop", "c0", 0, places(home)[0][1] - 1, "again")
    Runner(made, spark).run(once=True)
    again = [(id, op) for _, id, op, _ in rows(tmp_path / "c0")[once:]]
    assert again[0] == ("", "truncate")
    assert sorted(int(id) for id, _ in again[1:]) == list(range(20, 28))


@pytest.mark.spark
def test_who_is_left_behind_says_so(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    """Marks of an earlier version: no partition would come to the truncate any more, and a run wait for ever."""
    first, _ = places(home)
    at(home, first[0] - 1, ends(home)[1])
    made = definition(tmp_path, sink(tmp_path), tables=())
    with pytest.raises(TailraceError, match=r"partitions 0 stand before a truncate of A.*`tailrace offset delete"):
        Runner(made, spark).run(once=True)
    with pytest.raises(TailraceError, match="stand before a truncate"):
        list(step(made, "c0", 1, "looking"))
    operator.forget(home, "shop", "c0", "all of it")
    Runner(made, spark).run(once=True)
    assert len([row for row in rows(tmp_path / "c0") if row[2] == "INSERT"]) == 24
