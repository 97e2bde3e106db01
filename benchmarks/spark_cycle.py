"""How long does one batch of a stream take, when there is next to nothing to do?"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tailrace
from benchmarks import sparkjobs
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect
from benchmarks.load import Load

P50, P99 = Figure("p50 ms", 1, more=False), Figure("p99 ms", 1, more=False)
BUILT_IN, STILL, SOURCE = "built-in → noop", "Python → noop", "tailrace → noop"
WRITER, SINK, BOTH = "Python → Python", "Python → tailrace", "tailrace → tailrace"
ROWS = 10

Source = Callable[[Path], DataFrame]
Sink = Callable[[DataFrame, Path], DataStreamWriter]


def question(quick: bool) -> Question:
    """Ten rows a batch, batch after batch, by sources and sinks that do as little as they can."""
    batches = 20 if quick else 100
    pairs = {
        BUILT_IN: (built_in, noop, "Spark's rate-micro-batch source"),
        STILL: (still, noop, "a Python source that gives ten rows of its own"),
        SOURCE: (topic, noop, "a topic, ten records a batch"),
        WRITER: (still, python, "the Python source, and a Python writer that keeps nothing"),
        SINK: (still, sink, "the Python source, into a topic"),
        BOTH: (topic, sink, "from topic to topic"),
    }
    return Question(
        name="spark_cycle",
        title="one batch of a stream at a trickle",
        note=f"{ROWS} rows of 216 bytes a batch, {batches} batches a round after ten that do not count; the time that "
        "Spark gives as triggerExecution.",
        sides=[Side(name, mode, partial(opened, *ends, batches)) for name, (*ends, mode) in pairs.items()],
        figures=[P50, P99],
        base=STILL,
        targets=TARGETS,
        rounds=1 if quick else 5,
    )


@contextlib.contextmanager
def opened(source: Source, sink: Sink, batches: int, folder: Path) -> Iterator[Run]:
    """A query for each round."""
    rounds = 0

    def run() -> Figures:
        nonlocal rounds
        rounds += 1
        place = folder / str(rounds)
        place.mkdir()
        query = sink(source(place), place).option("checkpointLocation", str(place / "checkpoint")).start()
        try:
            while query.isActive and len(query.recentProgress) < batches + 10:
                query.awaitTermination(0.2)  # type: ignore[arg-type]
            times = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows][10:]
        finally:
            query.stop()
        expect("batches enough", len(times) >= batches, True)
        return {P50.name: statistics.median(times), P99.name: statistics.quantiles(times, n=100)[98]}

    yield run


def built_in(folder: Path) -> DataFrame:
    """Spark's own."""
    source = sparkjobs.session().readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    return source.option("numPartitions", 1).load().selectExpr("cast(value AS string) AS value")


def still(folder: Path) -> DataFrame:
    """Python's least."""
    return sparkjobs.session().readStream.format("still").load()


def topic(folder: Path) -> DataFrame:
    """A topic with more than will be read."""
    sparkjobs.filled(folder / "source", Load(20_000))
    options = {"home": str(folder / "source"), "subscribe": "orders", "startingOffsets": "earliest"}
    source = sparkjobs.session().readStream.format("tailrace").options(**options, columns="key,value")
    return source.option("maxOffsetsPerTrigger", ROWS).load()


def noop(rows: DataFrame, folder: Path) -> DataStreamWriter:
    """Spark's own nothing."""
    return rows.writeStream.format("noop")


def python(rows: DataFrame, folder: Path) -> DataStreamWriter:
    """Python's nothing."""
    return rows.writeStream.format("still")


def sink(rows: DataFrame, folder: Path) -> DataStreamWriter:
    """A topic."""
    with tailrace.open(folder / "sink") as home:
        home.topic("out", partitions=8)
    return rows.writeStream.format("tailrace").options(home=str(folder / "sink"), topic="out")


def _ratio(mine: str, other: str) -> Callable[[Results], float]:
    return lambda results: results.of(mine, P50.name) / results.of(other, P50.name)


TARGETS = [
    Target("the source adds ≤ 15 % to a Python source that does nothing", _ratio(SOURCE, STILL), 1.15, at_most=True),
    Target("the sink adds ≤ 15 % to a Python writer that does nothing", _ratio(SINK, WRITER), 1.15, at_most=True),
    Target("p50 from topic to topic ≤ 150 ms", lambda results: results.of(BOTH, P50.name), 150, at_most=True),
]
