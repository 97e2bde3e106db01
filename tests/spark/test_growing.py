"""Topics that get more partitions while Spark reads and writes them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.home import Home
from tailrace.log.record import Partitioner, partition_of
from tailrace.log.topic import Topic
from tailrace.spark.sink import task
from tests.spark.direct import source, travelled
from tests.spark.source.test_stream import ALL, counted, follow, reading, rows

KEYS = [b"key-%d" % n for n in range(30)]
ROW = StructType().add("key", "binary").add("value", "binary").add("partition", "integer")


def send_all(topic: Topic, value: bytes) -> None:
    topic.append([(key, value) for key in KEYS])


def table(value: bytes, partition: int | None = None) -> pa.RecordBatch:
    columns: list[Any] = [pa.array(KEYS), pa.array([value] * len(KEYS)), pa.array([partition] * len(KEYS), pa.int32())]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "partition"])


# -- called as Spark calls them
def test_a_batch_of_a_stream_ends_where_the_topic_has_grown(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    send_all(topic, b"old")
    before = {q: end for q, (_, end) in topic.ends().items()}
    reader = reading(home)
    start = reader.initialOffset()
    assert counted(start) == {"orders": {0: 0, 1: 0}}
    topic.grow(5)
    send_all(topic, b"new")
    ends = follow(reader, start)
    assert [counted(end)["orders"] for end in ends] == [
        {**before, 2: 0, 3: 0, 4: 0},
        {q: end for q, (_, end) in topic.ends().items()},
    ]
    assert [len(rows(reader, *pair)) for pair in ((start, ends[0]), (ends[0], ends[1]))] == [len(KEYS)] * 2


def test_a_query_that_reads_some_partitions_does_not_wait_for_the_others(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    send_all(topic, b"old")
    topic.grow(5)
    send_all(topic, b"new")
    found = source(home, assign='{"orders": [4]}', startingOffsets="earliest")
    reader = travelled(found.streamReader(found.schema()))
    (end,) = follow(reader, reader.initialOffset())
    assert counted(end) == {"orders": {4: topic.ends()[4][1]}}


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("partitioner", get_args(Partitioner))
def test_what_tasks_have_stored_before_is_spread_anew(
    home: Home, monkeypatch: pytest.MonkeyPatch, small: bool, partitioner: Partitioner
) -> None:
    monkeypatch.setattr(task, "MAX_BYTES_HANDED_TO_DRIVER", 1 << 20 if small else 0)
    topic = home.topic("orders", partitions=2, partitioner=partitioner)
    sink = travelled(source(home, topic="orders").writer(ROW, False))
    first = [travelled(travelled(sink).write(iter([some]))) for some in (table(b"keyed"), table(b"sent", 1))]
    topic.grow(5)
    second = travelled(travelled(sink).write(iter([table(b"later")])))
    sink.commit([*first, second])
    found = list(topic.records())
    assert len(found) == 3 * len(KEYS)
    for record in found:
        assert record.key is not None
        assert record.partition == (1 if record.value == b"sent" else partition_of(record.key, 5, partitioner))


# -- in a real Spark
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_running_query_reads_the_new_partitions_in_the_order_of_each_key(
    spark: SparkSession, home: Home, tmp_path: Path
) -> None:
    topic = home.topic("orders", partitions=2)
    given = {"home": home.url, "subscribe": "orders", "startingOffsets": "earliest"}
    stream = spark.readStream.format("tailrace").options(**given).load()
    home.topic("copy", partitions=2)
    query = (
        stream.selectExpr("key", "value")
        .writeStream.format("tailrace")
        .options(home=home.url, topic="copy", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        for n, partitions in enumerate((2, 2, 3, 3, 7, 7)):
            topic.grow(partitions)
            if n == 3:
                home.topic("copy").grow(4)
            send_all(topic, b"%d" % n)
            send_all(topic, b"%d" % (n + 10))
        wanted = 12 * len(KEYS)
        deadline = time.monotonic() + 120
        while sum(end for _, end in home.topic("copy").ends().values()) < wanted:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, query.lastProgress
            time.sleep(0.2)
        assert query.lastProgress["sources"][0]["endOffset"] is not None
        query.processAllAvailable()
    finally:
        query.stop()
    copied = list(home.topic("copy").records())
    assert len(copied) == wanted
    assert home.topic("copy").partitions == 4
    for key in KEYS:
        mine = sorted((r for r in copied if r.key == key), key=lambda r: _when(home.topic("copy"), r))
        assert [r.value for r in mine] == [b"%d" % (n + more) for n in range(6) for more in (0, 10)]


def _when(topic: Topic, record: Any) -> tuple[int, int, int]:
    """Where a record is in the order of a key: before or after the topic grew, then by its offset."""
    head = topic.store.run(topic.log.head())
    return sum(record.offset >= g.at[record.partition] for g in head.grown), record.partition, record.offset


def test_offsets_of_a_query_from_before_are_read_on(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    send_all(topic, b"old")
    reader = reading(home)
    (end,) = follow(reader, reader.initialOffset())
    topic.grow(5)
    again = reading(home)
    assert counted(again.latestOffset(end, ALL)) == counted(end)
    send_all(topic, b"new")
    (after,) = follow(again, end)
    assert sum(counted(after)["orders"].values()) == 2 * len(KEYS)
