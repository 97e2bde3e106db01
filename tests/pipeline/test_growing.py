"""A pipeline's commit log that gets more partitions: each document in order, commands where they belong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.format import head as heads
from tailrace.log.record import Mode, Op, partition_of
from tailrace.log.write.append import commit
from tailrace.log.write.staged_chunk import place_staged, stage_chunks
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.run.runner import Runner
from tests.log.partitioning import kafka_by_default, keys_in_place
from tests.pipeline.runs import going, until
from tests.pipeline.shop import definition, sink
from tests.pipeline.toys import rows

IDS = range(12)


def version(n: int) -> pa.RecordBatch:
    columns = pa.record_batch({"id": pa.array(IDS), "v": pa.array([str(n)] * len(IDS))})
    return make_rows("A", columns, ["id"], op=Op.UPDATE, mode=Mode.SYNC, timestamp=1000 + n)


def truncate() -> pa.RecordBatch:
    columns = pa.record_batch({"command": pa.array(["truncate"])})
    return make_rows("A", columns, [], op=Op.COMMAND, mode=Mode.SYNC, timestamp=1002)


@pytest.mark.spark
def test_each_document_in_order_and_commands_after_all_before_them(spark: SparkSession, tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        log.take_in([version(0), version(1)], 1)
        home.topic("shop-log").grow(5)
        log.take_in([truncate()], 2)
        log.take_in([version(2), version(3)], 3)
        home.topic("shop-log").grow(7)
        log.take_in([version(4)], 4)
        ends = home.topic("shop-log").ends()
        assert sum(end for _, end in ends.values()) == 5 * len(IDS) + 5, "the command is in all five partitions"
    made = definition(tmp_path, sink(tmp_path), partitions=2, tables=())
    Runner(made, spark).run(once=True)
    came = [(int(id) if id else -1, v) for _, id, _, v in rows(tmp_path / "c0")]
    command = came.index((-1, None))
    assert sorted(came[:command]) == sorted((id, v) for id in IDS for v in "01")
    for id in IDS:
        assert [v for some, v in came if some == id] == list("01234")


@pytest.mark.spark
def test_a_run_goes_on_while_it_grows(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), rows=50, changes=40, tables=("shop.orders",))
    with going(made, spark) as runner, tailrace.open(tmp_path / "home") as home:
        until(lambda: runner.status.state == "following")
        home.topic("shop-log").grow(5)
        until(lambda: len({row[1] for row in rows(tmp_path / "c0") if str(row[3]).startswith("change")}) == 40)
        home.topic("shop-log").grow(6)
    told = [(row[1], row[3]) for row in rows(tmp_path / "c0")]
    assert len(told) == len(set(told)) == 90


class Delivering:
    """An outlet as the runner sees it: it comes to each of these marks in turn."""

    working = True

    def __init__(self, *marks: dict[int, Mark]) -> None:
        self.left = list(marks)

    def hurry(self) -> None: ...

    @property
    def marks(self) -> dict[int, Mark]:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.mark.parametrize("grows", ["before the end is known", "after it"])
def test_a_run_that_catches_up_waits_for_the_partitions_that_the_log_had(tmp_path: Path, grows: str) -> None:
    """An outlet sees that the log has grown somewhat later than the runner, or somewhat earlier."""
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=1)
        log.begin(0)
        if grows.startswith("before"):
            home.topic("shop-log").grow(2)
        log.take_in([version(0)], 1)
        done = {q: Mark(end - 1) for q, (_, end) in log.topic.ends().items()}
        outlet = Delivering({0: done[0]}, {0: done[0], 1: Mark()}, {1: Mark(), **done})
        runner = Runner(definition(tmp_path, sink(tmp_path)), lambda: pytest.fail("needs no Spark"))
        runner._outlets = [outlet]  # type: ignore[list-item]
        if grows.startswith("after"):
            outlet.left = [{0: Mark()}, {0: Mark(), 1: Mark()}, {0: done[0], 1: Mark()}]
        runner._catch_up(log)
        assert len(outlet.left) == 1, "it has waited for all"


def test_parcels_are_spread_anew(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        store = home.store
        log = CommitLog(home, "shop", partitions=2)
        parcels = [stage_chunks(store, log.topic.log, log.topic.described, [version(n)]) for n in range(3)]
        home.topic("shop-log").grow(5)
        placed = home.store.run(place_staged(log.topic.log, parcels))
        assert placed is not None
        assert placed.partitions == 2
        (appended,) = store.run(commit([placed]))
        assert appended.partitions == 5
        found = list(log.topic.fetch())
        assert sum(one.data.num_rows for one in found) == 3 * len(IDS)
        for one in found:
            assert {partition_of(key, 5) for key in one.data.column(2).to_pylist()} == {one.partition}


def test_a_commit_log_that_places_keys_as_kafka_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka_by_default(monkeypatch)
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=5)
        log.begin(0)
        log.take_in([version(0), version(1)], 1)
        assert keys_in_place(log.topic) == 2 * len(IDS)
        log.take_in([truncate()], 2)
        assert [end > 0 for _, end in log.topic.ends().values()] == [True] * 5


def test_parcels_that_two_processes_made_at_the_same_time(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("orders", partitions=2)
        home.store.run(topic.log.head())
        parcels = []
        for n in range(3):
            topic.log.new_id = lambda n=n: f"{n:04x}{'7' * 20}"
            parcels.append(stage_chunks(home.store, topic.log, topic.described, [version(n)]))
        topic.log.new_id = heads.new_id
        placed = home.store.run(place_staged(topic.log, parcels))
        assert placed is not None
        home.store.run(commit([placed]))
        assert sum(end for _, end in topic.ends().values()) == 3 * len(IDS)


def test_ids_of_a_process_have_keys_of_their_own() -> None:
    ids = [heads.new_id() for _ in range(1000)]
    assert len({heads.chunk_key("t", 0, id) for id in ids}) == 1000
