"""The engine: the Spark of a run, which starts while the source and the sinks are asked for what is needed first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.pipeline.runtime.background import beside
from tailrace.pipeline.runtime.reach import Reach
from tailrace.pipeline.runtime.spark_job import in_tasks

T = TypeVar("T")
Spark: TypeAlias = SparkSession | SparkContext
MIN_PARALLEL_JOBS = 2
"""So many jobs of a run go on at once, however few cores there are."""


class SparkEngine:
    """A running Spark, or a function that starts one: called once, and only by `start`."""

    def __init__(self, spark: Spark | Callable[[], Spark]) -> None:
        self._spark = spark
        self._made: Future[Spark] | None = None
        self.reach: Reach | None = None
        """What every process looks for before its first task; None: nothing."""

    def start(self) -> None:
        """Begin to start Spark; `spark` waits for it."""
        if self._made is None and callable(self._spark):
            self._made = beside("spark", self._spark)

    @property
    def context(self) -> SparkContext:
        """Spark, once it is there; raises what kept it from starting."""
        self.start()
        made = self._made.result() if self._made is not None else self._spark
        return made if isinstance(made, SparkContext) else made.sparkContext  # type: ignore[union-attr]

    def tasks(self, function: Callable[..., T], work: Sequence[tuple[Any, ...]]) -> list[T]:
        """Call a function with each of these arguments, in a task each; gives what it gave, in order."""
        return in_tasks(self.context, function, work, self.reach)

    @property
    def parallel(self) -> int:
        """How many tasks it does at once."""
        return max(MIN_PARALLEL_JOBS, int(self.context.defaultParallelism))
