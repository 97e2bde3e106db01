"""The engine: the Spark session of a run, which starts while the driver prepares the source and the sinks."""

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
"""The least number of jobs that a run has at the same time, however few cores there are."""


class SparkEngine:
    """Spark for a run: a running one, or a function that starts it, which is called once."""

    def __init__(self, spark: Spark | Callable[[], Spark]) -> None:
        self._spark = spark
        self._made: Future[Spark] | None = None
        self.reach: Reach | None = None
        """The marks that every worker process must see before its first task; None: it checks nothing."""

    def start(self) -> None:
        """Begin to start Spark in the background; `context` waits for it."""
        if self._made is None and callable(self._spark):
            self._made = beside("spark", self._spark)

    @property
    def context(self) -> SparkContext:
        """Spark's context; waits until Spark has started, and raises the error if it could not start."""
        self.start()
        made = self._made.result() if self._made is not None else self._spark
        return made if isinstance(made, SparkContext) else made.sparkContext  # type: ignore[union-attr]

    def tasks(self, function: Callable[..., T], work: Sequence[tuple[Any, ...]]) -> list[T]:
        """Call a function with each of these arguments, each call in a task; returns the results in order.  `JobLost`
        if the job did not end."""
        return in_tasks(self.context, function, work, self.reach)

    @property
    def parallel(self) -> int:
        """The number of tasks that Spark runs at the same time."""
        return max(MIN_PARALLEL_JOBS, int(self.context.defaultParallelism))
