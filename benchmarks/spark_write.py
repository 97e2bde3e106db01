"""How many rows a second does Spark write into a topic?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import tailrace
from benchmarks import sparkjobs, sparkkafka
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.load import Load

RATE = Figure("rows/s")
TOPIC, ONE, PARQUET, KAFKA, NOOP = "tailrace", "tailrace, 1 partition", "parquet", "Kafka", "nothing"
FILES = 8

Sink = Callable[[DataFrame, Path, int], StreamingQuery]
Count = Callable[[Path, int], int]


def question(quick: bool) -> Question:
    """The same files, streamed into a topic, into Parquet, and into nothing."""
    load = Load(100_000 if quick else 2_000_000)
    sides = {
        TOPIC: (partial(into_topic, 8), in_topic, "writeStream into a topic of 8 partitions, by key"),
        ONE: (partial(into_topic, 1), in_topic, "the same into a topic of 1 partition"),
        PARQUET: (into_parquet, in_parquet, "writeStream into uncompressed Parquet files"),
        NOOP: (into_nothing, lambda folder, n: load.count * n, "writeStream into Spark's noop sink"),
    }
    return Question(
        name="spark_write",
        title="rows a second that Spark streams into a sink",
        note=f"{load.count:,} rows of 216 bytes from {FILES} Parquet files, in batches of two files, on "
        f"{sparkjobs.CORES} cores; a whole query, from its start to its end, with its checkpoint.",
        sides=[
            Side(name, mode, partial(opened, sink, count, load), name == PARQUET)
            for name, (sink, count, mode) in sides.items()
        ]
        + [Side(KAFKA, "Spark's Kafka sink, 8 partitions, acks=all, synced", partial(opened_kafka, load), True)],
        figures=[RATE],
        base=TOPIC,
        targets=TARGETS,
        rounds=2 if quick else 5,
    )


@contextlib.contextmanager
def opened(sink: Sink, count: Count, load: Load, folder: Path) -> Iterator[Run]:
    """The files to be streamed; each round streams all of them again, under a checkpoint of its own."""
    files = folder / "files"
    files.mkdir()
    step = -(-load.count // FILES)
    for n in range(FILES):
        pq.write_table(pa.Table.from_batches([load.batch(n * step, (n + 1) * step)]), files / f"{n}.parquet")
    rounds = 0

    def run() -> Figures:
        nonlocal rounds
        rounds += 1
        rows = sparkjobs.session().readStream.schema(sparkjobs.ROWS).option("maxFilesPerTrigger", 2).parquet(str(files))
        seconds, _ = timed(lambda: sparkjobs.waited(sink(rows, folder, rounds)))
        expect("rows", count(folder, rounds), load.count * rounds)
        return {RATE.name: load.count / seconds}

    run()
    yield run


@contextlib.contextmanager
def opened_kafka(load: Load, folder: Path) -> Iterator[Run]:
    """The same for Kafka, which needs a broker."""
    with sparkkafka.broker(folder / "broker") as address:
        in_kafka: Count = lambda folder, number: sparkkafka.read(sparkjobs.session(), address).count()  # noqa: E731
        with opened(partial(into_kafka, address), in_kafka, load, folder) as run:
            yield run


def into_kafka(address: str, rows: DataFrame, folder: Path, number: int) -> StreamingQuery:
    """A Kafka topic, which grows from round to round."""
    sink = rows.writeStream.format("kafka").options(**sparkkafka.options(address))
    return sink.option("checkpointLocation", str(folder / f"check-{number}")).trigger(availableNow=True).start()


def into_topic(partitions: int, rows: DataFrame, folder: Path, number: int) -> StreamingQuery:
    """A topic, which grows from round to round."""
    with tailrace.open(folder / "home") as home:
        home.topic("orders", partitions=partitions)
    options = {"home": str(folder / "home"), "topic": "orders", "checkpointLocation": str(folder / f"check-{number}")}
    return rows.writeStream.format("tailrace").options(**options).trigger(availableNow=True).start()


def in_topic(folder: Path, number: int) -> int:
    """How many records it has."""
    with tailrace.open(folder / "home") as home:
        return sum(end for _, end in home.topic("orders").ends().values())


def into_parquet(rows: DataFrame, folder: Path, number: int) -> StreamingQuery:
    """Parquet files, of each round in a folder of its own."""
    sink = rows.writeStream.format("parquet").option("compression", "uncompressed")
    sink = sink.option("checkpointLocation", str(folder / f"check-{number}")).option(
        "path", str(folder / f"out-{number}")
    )
    return sink.trigger(availableNow=True).start()


def in_parquet(folder: Path, number: int) -> int:
    """How many rows all rounds have left."""
    return sum(sparkjobs.session().read.parquet(str(folder / f"out-{n}")).count() for n in range(1, number + 1))


def into_nothing(rows: DataFrame, folder: Path, number: int) -> StreamingQuery:
    """Nowhere."""
    sink = rows.writeStream.format("noop").option("checkpointLocation", str(folder / f"check-{number}"))
    return sink.trigger(availableNow=True).start()


def _ratio(mine: str, other: str) -> Callable[[Results], float]:
    return lambda results: results.of(mine, RATE.name) / results.of(other, RATE.name)


TARGETS = [
    Target("≥ 1 times Spark's parquet sink", _ratio(TOPIC, PARQUET), 1),
    Target("≥ 2 times Spark's Kafka sink", _ratio(TOPIC, KAFKA), 2),
]
