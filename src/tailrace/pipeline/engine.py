"""The engine: the Spark of a run, which starts while the source and the sinks are asked for what is needed first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.pipeline.beside import beside

Spark: TypeAlias = SparkSession | SparkContext
LEAST = 2
"""So many jobs of a run go on at once, however few cores there are."""


class Engine:
    """Spark that is there already, or a function that starts it: called once, and only when told to."""

    def __init__(self, spark: Spark | Callable[[], Spark]) -> None:
        self._spark = spark
        self._made: Future[Spark] | None = None

    def start(self) -> None:
        """Begin to start it; whoever needs it waits."""
        if self._made is None and callable(self._spark):
            self._made = beside("spark", self._spark)

    @property
    def context(self) -> SparkContext:
        """Spark, once it is there; raises what kept it from starting."""
        self.start()
        made = self._made.result() if self._made is not None else self._spark
        return made if isinstance(made, SparkContext) else made.sparkContext  # type: ignore[union-attr]

    @property
    def parallel(self) -> int:
        """How many tasks it does at once."""
        return max(LEAST, int(self.context.defaultParallelism))
