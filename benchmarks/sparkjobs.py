"""Spark for the questions about it: one session, and Python sources and a writer that do as little as can be done."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.query import StreamingQuery

import tailrace
import tailrace.spark
from benchmarks import sparkkafka
from benchmarks.load import Load
from tailrace.log.topic import Topic

CORES = 2
ROWS = "key binary, value binary"


@functools.cache
def session() -> SparkSession:
    """One for all sides, which so share its warmth and its settings."""
    # Spark's Python workers import this module
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    config = {"spark.sql.streaming.numRecentProgressUpdates": "1000", "spark.jars": sparkkafka.jars()}
    made = tailrace.spark.session(f"local[{CORES}]", config=config)
    for source in (Tuples, Still):
        made.dataSource.register(source)
    return made


def filled(folder: Path, load: Load, partitions: int = 8, name: str = "orders") -> Topic:
    """A topic with the load."""
    topic = tailrace.open(folder).topic(name, partitions=partitions)
    with topic.producer() as out:
        for batch in load.batches:
            out.send_batch(batch)
    return topic


def exhaust(frame: DataFrame) -> None:
    """Read all rows, into nothing."""
    frame.write.format("noop").mode("overwrite").save()


class Tuples(DataSource):
    """Topic records as tuples, as most Python sources give them."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return ROWS

    def reader(self, schema: Any) -> DataSourceReader:
        return TupleReader(self.options["home"])


class TupleReader(DataSourceReader):
    """One task for each partition."""

    def __init__(self, home: str) -> None:
        self.home = home

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(q) for q in range(tailrace.open(self.home).topic("orders").partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes | None, bytes | None]]:
        from tailrace.spark.runtime.homes import home_at

        for record in home_at(self.home).topic("orders").records(partition.value):
            yield record.key, record.value


class Still(DataSource):
    """A stream that always has ten more rows, and a sink that forgets them: what Spark and Python cost alone."""

    @classmethod
    def name(cls) -> str:
        return "still"

    def schema(self) -> str:
        return ROWS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StillReader()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StillWriter()


class StillReader(DataSourceStreamReader):
    """Ten rows a batch, in one task."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"n": start["n"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"key": [b"0123456789abcdef"] * 10, "value": [b"x" * 200] * 10})


class StillWriter(DataSourceStreamArrowWriter):
    """Counts nothing, keeps nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def waited(query: StreamingQuery) -> StreamingQuery:
    """The query, when it has ended well."""
    query.awaitTermination()
    if (failure := query.exception()) is not None:
        raise failure
    return query
