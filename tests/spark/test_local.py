"""The format in a real Spark, on two cores."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import tailrace.spark
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.spark.session import ON_ONE_HOST, SETTINGS, WORKER_MEMORY_SETTINGS
from tests.spark.direct import fill, values

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def read(spark: SparkSession, home: Home, **options: Any) -> Any:
    return spark.read.format("tailrace").options(home=home.url, **options).load()


def test_a_session_has_the_settings_that_the_guide_names(spark: SparkSession) -> None:
    wanted = {**SETTINGS, **ON_ONE_HOST}
    for name in ("spark.driver.extraJavaOptions", "spark.sql.execution.arrow.maxRecordsPerBatch"):
        del wanted[name]  # these tests have their own
    assert {name: spark.conf.get(name) for name in wanted} == wanted
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "spark.md").read_text()
    for name in SETTINGS.keys() - {"spark.ui.showConsoleProgress", "spark.driver.extraJavaOptions"}:
        assert name in guide or f"`…{name.rpartition('.')[2]}`" in guide


def kept() -> tuple[str, int]:
    """In a worker: whose memory Arrow takes, and how much of 160 MB is still there when nobody needs it any more."""
    import pyarrow as pa

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    for _ in range(2):
        some = [pa.repeat(pa.scalar(1, pa.int8()), 20_000_000) for _ in range(8)]
        del some
    return pa.default_memory_pool().backend_name, resident() - before


class Keeping(DataSource):
    """Asks a worker that reads."""

    def schema(self) -> str:
        return "pool string, bytes long"

    def reader(self, schema: StructType) -> DataSourceReader:
        class Reader(DataSourceReader):
            def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
                yield kept()

        return Reader()


def test_workers_keep_the_memory_that_they_had(spark: SparkSession) -> None:
    (told,) = spark.sparkContext.parallelize([0], 1).map(lambda _: kept()).collect()
    spark.dataSource.register(Keeping)
    (read,) = spark.read.format("Keeping").load().collect()
    for pool, size in (told, read):
        assert pool == "system"
        assert size > 150_000_000


def test_other_children_of_the_process_do_not_get_the_environment_of_workers(spark: SparkSession) -> None:
    given = "import os; print(sorted(os.environ))"
    names = subprocess.run([sys.executable, "-c", given], capture_output=True, check=True, text=True).stdout
    assert not [name for name in WORKER_MEMORY_SETTINGS if repr(name) in names]


def test_what_is_written_is_read(spark: SparkSession, home: Home) -> None:
    topic = home.topic("orders", partitions=3)
    rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id % 10 as string) AS key", "concat('row ', id) AS value")
    for _ in range(2):
        rows.write.format("tailrace").mode("append").options(home=home.url, topic="orders", writeId="w").save()
    assert sum(end for _, end in topic.ends().values()) == 1000
    found = read(spark, home, subscribe="orders")
    assert found.selectExpr("cast(value as string)").distinct().count() == 1000
    row = found.where("offset = 3 and partition = 1").collect()
    assert [(r.topic, r.partition, r.offset, r.mode, r.op, r.headers) for r in row] == [
        ("orders", 1, 3, "copy", "insert", None)
    ]
    assert read(spark, home, subscribe="orders", columns="key,value").where("key = '7'").count() == 100
    assert found.where("timestamp > now()").count() == 0
    assert read(spark, home, subscribe="orders", minPartitions=5).rdd.getNumPartitions() >= 5


def test_a_topic_without_records(spark: SparkSession, home: Home) -> None:
    home.topic("orders", partitions=3)
    assert read(spark, home, subscribe="orders").count() == 0


def test_one_frame_may_be_filtered_in_many_ways(spark: SparkSession, home: Home) -> None:
    fill(home.topic("orders", partitions=2), {0: 10, 1: 20})
    found = read(spark, home, subscribe="orders")
    first, second = found.where("partition = 0"), found.where("partition = 1")
    assert (first.count(), second.count(), first.union(second).count(), found.count()) == (10, 20, 30, 30)


def test_filters_are_pushed_for_who_asks(spark: SparkSession, home: Home) -> None:
    fill(home.topic("orders", partitions=2), {0: 10, 1: 20})
    found = read(spark, home, subscribe="orders", pushFilters="true", minPartitions=30)
    assert found.where("partition = 0 and offset < 5").count() == 5
    # The fault of Spark's that this option is for.  Once these are 30, it can be the default.
    assert found.count() == 5


def fails_once(id: int) -> bytes:
    """A row's value; at the last row of odd partitions the first attempt fails."""
    task = TaskContext.get()
    assert task is not None
    if task.attemptNumber() == 0 and task.partitionId() % 2 and id % 20_000 == 19_999:
        raise RuntimeError("a task that fails when it has given its rows")
    return b"%d" % id + b"." * 400


def test_tasks_that_fail_leave_nothing_behind(spark: SparkSession, home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    rows = spark.range(0, 80_000, 1, 4).select(udf(fails_once, "binary", useArrow=False)("id").alias("value"))
    rows.write.format("tailrace").mode("append").options(home=home.url, topic="orders").save()
    assert [int(v.rstrip(b".")) for v in values(topic)[0] if v] == list(range(80_000))
    listed = {o.name.rpartition("/")[2] for o in home.store.objects.list("topics/")}
    referred = {entry.id for entry in home.store.run(topic.log.head()).own.entries}
    assert referred < listed  # the failed ones had put theirs


def copying(spark: SparkSession, home: Home, folder: Path, **options: Any) -> StreamingQuery:
    given = {"home": home.url, "startingOffsets": "earliest", **options}
    rows = spark.readStream.format("tailrace").options(**given).load().select("partition", "value")
    sink = rows.writeStream.format("tailrace").options(home=home.url, topic="out", checkpointLocation=str(folder))
    return sink.trigger(availableNow=True).start()


def done(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(120)
    return query


def test_a_stream_from_topic_to_topic(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    source, out = home.topic("orders", partitions=3), home.topic("out", partitions=3)
    fill(source, {0: 50, 1: 20, 2: 30})
    query = done(copying(spark, home, tmp_path, subscribe="orders", maxOffsetsPerTrigger=30))
    assert [p.numInputRows for p in query.recentProgress] == [30, 30, 30, 10]
    left = [json.loads(p.sources[0].latestOffset)["orders"]["behind"] for p in query.recentProgress]
    assert [sum(one["records"] for one in by.values()) for by in left] == [70, 40, 10, 0]
    assert 0 < left[0]["0"]["seconds"] < 300
    assert left[-1]["0"] == {"records": 0, "seconds": 0.0}
    assert values(out) == values(source)
    fill(source, {0: 50, 1: 20}, 50)
    query = done(copying(spark, home, tmp_path, subscribe="orders", minPartitions=5))  # a restart, split otherwise
    assert values(out) == values(source)
    assert tailrace.spark.lag(query, home=home.url)[0] == ("orders", 0, 50, 100, 0, 0.0)
    fill(source, {0: 4}, 100)
    found = tailrace.spark.lag(query, home=home.url)[0]
    assert found[:5] == ("orders", 0, 50, 100, 4)
    assert 0 < found.seconds < 60
    (progress,) = query.lastProgress.sources
    assert json.loads(progress.endOffset)["orders"] == {"id": source.id, "0": 100, "1": 40, "2": 30}


def test_a_batch_whose_commit_was_not_noted_is_written_once(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    source, out = home.topic("orders", partitions=2), home.topic("out", partitions=2)
    fill(source, {0: 20, 1: 20})
    query = done(copying(spark, home, tmp_path, subscribe="orders"))
    for noted in (tmp_path / "commits").glob("*0*"):
        noted.unlink()
    fill(source, {0: 5}, 20)
    again = done(copying(spark, home, tmp_path, subscribe="orders"))
    assert again.id == query.id
    assert [p.batchId for p in again.recentProgress] == [0, 1]
    assert values(out) == values(source)


def test_topics_that_appear_while_a_query_runs(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    out = home.topic("out", partitions=1)
    given = {"home": home.url, "subscribePattern": "orders-.*", "startingOffsets": "latest"}
    rows = spark.readStream.format("tailrace").options(**given).load().selectExpr("value")
    sink = rows.writeStream.format("tailrace").options(home=home.url, topic="out", checkpointLocation=str(tmp_path))
    query = sink.start()
    try:
        query.processAllAvailable()
        fill(home.topic("orders-1", partitions=2), {0: 3, 1: 3})
        deadline = time.monotonic() + 60
        while out.ends()[0][1] < 6 and time.monotonic() < deadline and query.isActive:
            time.sleep(0.05)
        assert sorted(values(out)[0]) == [b"0.0", b"0.1", b"0.2", b"1.0", b"1.1", b"1.2"]
    finally:
        query.stop()


def shown(error: BaseException) -> list[str]:
    """The lines of an error that say something: without Spark's own, without the one frame that a trace has."""
    lines = [line.strip() for line in str(error).splitlines()]
    frame = [n for n, line in enumerate(lines) if line.startswith("File ")]
    assert len(frame) <= 1, error
    return [line for n, line in enumerate(lines) if n not in (*frame, *(at + 1 for at in frame)) and line]


def test_an_error_of_ours_is_its_sentence_and_not_where_it_came_from(spark: SparkSession, home: Home) -> None:
    with pytest.raises(AnalysisException) as missing:
        read(spark, home, subscribe="missing")
    _, sentence, state = shown(missing.value)
    assert sentence.startswith("tailrace.errors.UnknownTopic: there is no topic 'missing': ")
    assert state == "SQLSTATE: 38000"

    topic = home.create_topic("t", 1)
    topic.log.inline_bytes = 0
    fill(topic, {0: 10})
    rows = read(spark, home, subscribe="t")
    entry = home.store.run(topic.log.head()).own.entries[0]
    home.store.objects.delete([heads.object_name(topic.id, entry.gen, entry.id)])
    with pytest.raises(PythonException) as gone:
        rows.collect()
    *_, sentence = [line for line in shown(gone.value) if "SQLSTATE" not in line]
    assert sentence.startswith("tailrace.errors.Damaged: ")
    assert "offsets 0 to 9 of partition 0 of 't'" in sentence


def test_errors_are_told_before_any_task(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    home.topic("orders", partitions=1)
    with pytest.raises(AnalysisException, match="did you mean 'subscribe'"):
        read(spark, home, subscrbe="orders")
    with pytest.raises(AnalysisException, match="did you mean 'orders'"):
        read(spark, home, subscribe="oders")
    sink = spark.range(3).write.format("tailrace").options(home=home.url, topic="orders")
    with pytest.raises(AnalysisException, match="a record has no 'id'"):
        sink.mode("append").save()
    with pytest.raises(AnalysisException, match="only ever appended to"):
        spark.range(3).selectExpr("cast(id as string) value").write.format("tailrace").options(
            home=home.url, topic="orders"
        ).mode("overwrite").save()
    rows = spark.readStream.format("tailrace").options(home=home.url, subscribe="orders").load()
    query = rows.writeStream.format("tailrace").options(home=home.url, topic="nope", checkpointLocation=str(tmp_path))
    fill(home.topic("orders"), {0: 1})
    started = query.start()
    fill(home.topic("orders"), {0: 1})
    with pytest.raises(StreamingQueryException, match="there is no topic 'nope'"):
        started.awaitTermination(60)


def test_the_home_of_the_session_is_the_one_that_is_meant(spark: SparkSession, home: Home) -> None:
    fill(home.topic("orders", partitions=1), {0: 3})
    tailrace.spark.register(spark, home=home.url)
    assert spark.read.format("tailrace").option("subscribe", "orders").load().count() == 3
