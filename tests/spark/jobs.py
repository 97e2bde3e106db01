"""Drivers of Spark jobs, each run in a process of its own that a test can kill: python -m tests.spark.jobs NAME JSON"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import StructType

import tailrace.spark
from tailrace.spark.format import Tailrace
from tailrace.spark.sink.sink import StreamSink
from tailrace.spark.sink.task import TaskOutput
from tests.servers.prepare import SHORT_LIVED

CONFIG = {
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.task.maxFailures": "8",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "2s",
}


def session(master: str, home: str) -> SparkSession:
    # Executors on real clusters have a role; these get the keys of a test's server.
    keys = {f"spark.executorEnv.{name}": os.environ[name] for name in os.environ if name.startswith("AWS_")}
    return tailrace.spark.session(master, home=home, config={**CONFIG, **keys})


class Dawdling(Tailrace):
    """The format, whose second batch does not come to its end although it is in the log."""

    @classmethod
    def name(cls) -> str:
        return "dawdling"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return Dawdler(self.home, super().streamWriter(schema, overwrite).writing)


class Dawdler(StreamSink):
    """Its driver can be killed before Spark has noted a commit."""

    def commit(self, messages: Sequence[TaskOutput | None], batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == 1:
            time.sleep(3600)


def stream(
    spark: SparkSession, home: str, checkpoint: str, most: int, delay: float = 0, sink: str = "tailrace"
) -> None:
    """Copy the topic `orders` into `out`, in many batches; slowly, so that it can be killed in the middle."""
    rows = spark.readStream.format("tailrace").option("subscribe", "orders")
    rows = rows.options(startingOffsets="earliest", maxOffsetsPerTrigger=most, maxRecordsPerPartition=most // 4).load()

    def slowly(value: bytes) -> bytes:
        time.sleep(delay)
        return bytes(value)

    chosen = rows.select("partition", udf(slowly, "binary", useArrow=False)("value").alias("value"))
    out = chosen.writeStream.format(sink).options(home=home, topic="out", checkpointLocation=checkpoint)
    query = out.trigger(availableNow=True).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))


def origin(spark: SparkSession) -> str:
    """Where a worker's tailrace comes from."""

    def found(_: int) -> str:
        import tailrace

        return tailrace.__file__

    row: Any = spark.range(1).select(udf(found, "string", useArrow=False)("id")).first()
    return str(row[0])


def bulk(spark: SparkSession, rows: int) -> list[int]:
    """Write, with tasks that fail, tasks that are run twice and tasks that hang; then read all of it."""
    each = rows // 4

    def value(id: int) -> bytes:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0 and id % each == each - 1:
            if task.partitionId() == 1:
                raise RuntimeError("a task that fails when it has given its rows")
            if task.partitionId() == 3:
                time.sleep(3600)  # until another attempt has won
        return b"%d" % id + b"." * 400

    made = spark.range(0, rows, 1, 4).select(udf(value, "binary", useArrow=False)("id").alias("value"))
    made.write.format("tailrace").mode("append").options(topic="bulk").save()
    read = spark.read.format("tailrace").options(subscribe="bulk", minPartitions=3).load()
    found: Any = read.selectExpr("count(*)", "count(distinct value)", "max(offset)").collect()[0]
    return list(found)


def begin(master: str, home: str, checkpoint: str, most: int) -> None:
    """A stream that takes its time."""
    spark = session(master, home)
    spark.dataSource.register(Dawdling)
    stream(spark, home, checkpoint, most, 0.01, "dawdling")


def resume(master: str, home: str, checkpoint: str, most: int, rows: int, report: str) -> None:
    """The rest of the stream, and then a batch write and read."""
    spark = session(master, home)
    stream(spark, home, checkpoint, most)
    found = {"bulk": bulk(spark, rows), "origin": origin(spark)}
    with open(report, "w") as out:
        json.dump(found, out)
    spark.stop()


def _started(out: DataStreamWriter, to_its_end: bool) -> StreamingQuery:
    """A query that has made progress.  Spark waits for 10 s for a source's worker, and a busy machine takes longer."""
    while True:
        query = out.start()
        while query.isActive and (to_its_end or query.lastProgress is None):
            time.sleep(0.02)
        if "failed to connect back" not in str(query.exception()):
            return query


def follow(home: str, place: str, report: str | None) -> None:
    """The changes of the table `User` and the feed, each into a folder of Parquet; with a report, what there is by now,
    and then what came out of all runs."""
    spark = session("local[2]", home)
    sources = {
        "stream": {"stream": "User", "startingPosition": "trim_horizon", "maxRecordsPerTrigger": "20"},
        "feed": {"feed": "events"},
    }
    queries = []
    for name, options in sources.items():
        rows = spark.readStream.format("tailrace").options(home=home, **options).load()
        out = rows.writeStream.format("parquet").option("path", f"{place}/{name}")
        out = out.option("checkpointLocation", f"{place}/{name}-checkpoint")
        queries.append(_started(out.trigger(availableNow=True) if report else out, to_its_end=report is not None))
    for query in queries:
        query.awaitTermination()
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
    if report:
        keys = [row["key"] for row in spark.read.parquet(f"{place}/stream").collect()]
        events = [[row["stream"], row["index"]] for row in spark.read.parquet(f"{place}/feed").collect()]
        with open(report, "w") as written:
            json.dump({"stream": keys, "feed": events}, written)
        spark.stop()


JOBS = {"begin": begin, "resume": resume, "follow": follow}

if __name__ == "__main__":
    JOBS[sys.argv[1]](**json.loads(sys.argv[2]))
