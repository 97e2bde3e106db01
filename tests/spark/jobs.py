"""Drivers of Spark jobs, each run in a process of its own that a test can kill: python -m tests.spark.jobs NAME JSON"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import tailrace.spark

CONFIG = {
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.task.maxFailures": "8",
}


def session(master: str, home: str, **config: str) -> SparkSession:
    # Executors on real clusters have a role; these get the keys of a test's server.
    keys = {f"spark.executorEnv.{name}": os.environ[name] for name in os.environ if name.startswith("AWS_")}
    return tailrace.spark.session(master, home=home, config={**CONFIG, **keys, **config})


def copy(master: str, home: str, checkpoint: str, most: int, delay: float = 0) -> None:
    """Stream the topic `orders` into `out`, in many batches; slowly, so that it can be killed in the middle."""
    spark = session(master, home)
    rows = spark.readStream.format("tailrace").option("subscribe", "orders")
    rows = rows.options(startingOffsets="earliest", maxOffsetsPerTrigger=most, maxRecordsPerPartition=most // 4).load()

    def slowly(value: bytes) -> bytes:
        time.sleep(delay)
        return bytes(value)

    chosen = rows.select("partition", udf(slowly, "binary", useArrow=False)("value").alias("value"))
    sink = chosen.writeStream.format("tailrace").options(topic="out", checkpointLocation=checkpoint)
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))


def bulk(master: str, home: str, rows: int, report: str) -> None:
    """Write, with tasks that fail, tasks that are run twice and tasks that hang; then read all of it."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.25",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    spark = session(master, home, **speculation)
    each = rows // 4

    def value(id: int) -> bytes:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0 and id % each == each - 1:
            if task.partitionId() == 1:
                raise RuntimeError("a task that fails when it has given its rows")
            if task.partitionId() == 3:
                time.sleep(600)  # until another attempt has won
        return b"%d" % id + b"." * 400

    made = spark.range(0, rows, 1, 4).select(udf(value, "binary", useArrow=False)("id").alias("value"))
    made.write.format("tailrace").mode("append").options(topic="orders").save()
    read = spark.read.format("tailrace").options(subscribe="orders", minPartitions=3).load()
    found: Any = read.selectExpr("count(*)", "count(distinct value)", "max(offset)").collect()[0]
    with open(report, "w") as out:
        json.dump(list(found), out)
    spark.stop()


JOBS = {"copy": copy, "bulk": bulk}

if __name__ == "__main__":
    JOBS[sys.argv[1]](**json.loads(sys.argv[2]))
