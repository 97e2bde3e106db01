"""How many rows a second does Spark read from a topic?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks import sparkjobs, sparkkafka
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.load import Load

RATE = Figure("rows/s")
PAIRS, ALL, TWO, EIGHT = "tailrace", "tailrace, all columns", "tailrace, 2 tasks", "tailrace, 8 tasks"
PARQUET, TUPLES, KAFKA = "parquet", "tuples", "Kafka"
WARM = 3
"""How often a side reads before the clock starts: Java compiles what it does often."""

Frame = Callable[[Path], DataFrame]


def question(quick: bool) -> Question:
    """A topic, and the same rows as Parquet, read into Spark's noop sink."""
    load = Load(100_000 if quick else 2_000_000)
    sides = {
        PAIRS: (partial(topic, columns="key,value"), "a topic of 8 partitions, key and value"),
        ALL: (topic, "the same with all nine columns"),
        TWO: (
            partial(topic, partitions=2, minPartitions="2", columns="key,value"),
            "2 partitions in 2 tasks",
        ),
        EIGHT: (partial(topic, partitions=2, minPartitions="8", columns="key,value"), "the same in 8 tasks"),
        PARQUET: (parquet, "spark.read.parquet, uncompressed, 8 files"),
        TUPLES: (tuples, "a Python source over the same topic that yields tuples"),
    }
    return Question(
        name="spark_read",
        title="rows a second that Spark reads",
        note=f"{load.count:,} rows of 216 bytes, on {sparkjobs.CORES} cores, warm; all sides in one Spark session. "
        "Each side is counted once before the clock starts.",
        sides=[
            *(Side(name, mode, partial(opened, make, load), name == PARQUET) for name, (make, mode) in sides.items()),
            Side(KAFKA, "Spark's Kafka source, a topic of 8 partitions", partial(opened_kafka, load)),
        ],
        figures=[RATE],
        base=PAIRS,
        targets=TARGETS,
        rounds=2 if quick else 7,
    )


@contextlib.contextmanager
def opened(make: Callable[[Path, Load], Frame], load: Load, folder: Path) -> Iterator[Run]:
    """Fill the side, compare its count, warm it up."""
    frame = make(folder, load)
    expect("rows", frame(folder).count(), load.count)
    for _ in range(WARM):
        sparkjobs.exhaust(frame(folder))

    def run() -> Figures:
        seconds, _ = timed(lambda: sparkjobs.exhaust(frame(folder)))
        return {RATE.name: load.count / seconds}

    yield run


@contextlib.contextmanager
def opened_kafka(load: Load, folder: Path) -> Iterator[Run]:
    """The same for Kafka, which needs a broker."""
    with sparkkafka.broker(folder / "broker") as address, opened(partial(from_kafka, address), load, folder) as run:
        yield run


def from_kafka(address: str, folder: Path, load: Load) -> Frame:
    """The same rows in Kafka, put there by Spark."""
    rows = topic(folder / "home", load, columns="key,value")(folder)
    rows.write.format("kafka").options(**sparkkafka.options(address)).save()
    return lambda _: sparkkafka.read(sparkjobs.session(), address)


def topic(folder: Path, load: Load, partitions: int = 8, **options: str) -> Frame:
    """A topic as a frame, planned anew each time."""
    sparkjobs.filled(folder, load, partitions)
    given = {"home": str(folder), "subscribe": "orders", **options}
    return lambda _: sparkjobs.session().read.format("tailrace").options(**given).load()


def parquet(folder: Path, load: Load) -> Frame:
    """The same rows as Parquet files."""
    sparkjobs.filled(folder / "home", load)
    source = sparkjobs.session().read.format("tailrace").options(home=str(folder / "home"), subscribe="orders").load()
    source.select("key", "value").write.option("compression", "uncompressed").parquet(str(folder / "rows"))
    return lambda _: sparkjobs.session().read.parquet(str(folder / "rows"))


def tuples(folder: Path, load: Load) -> Frame:
    """A source that yields tuples."""
    sparkjobs.filled(folder, load)
    return lambda _: sparkjobs.session().read.format("tuples").option("home", str(folder)).load()


def _ratio(mine: str, other: str) -> Callable[[Results], float]:
    return lambda results: results.of(mine, RATE.name) / results.of(other, RATE.name)


TARGETS = [
    Target("≥ 1 times parquet", _ratio(PAIRS, PARQUET), 1),
    Target("≥ 6 times a source that yields tuples", _ratio(PAIRS, TUPLES), 6),
    Target("≥ 2 times Spark's Kafka source", _ratio(PAIRS, KAFKA), 2),
    Target("8 tasks on 2 cores cost ≤ 1.1 times 2 tasks", _ratio(TWO, EIGHT), 1.1, at_most=True),
]
