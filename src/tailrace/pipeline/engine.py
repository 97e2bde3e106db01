"""The engine: the Spark of a run, which starts while the source and the sinks are asked for what is needed first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeAlias

from pyspark import SparkContext
from pyspark.sql import SparkSession

Spark: TypeAlias = SparkSession | SparkContext
LEAST = 2
"""So many jobs of a run go on at once, however few cores there are."""


class Engine:
    """Spark that is there already, or a function that starts it: called once, and only when told to."""

    def __init__(self, spark: Spark | Callable[[], Spark]) -> None:
        self._make = spark if callable(spark) else None
        self._made: Future[Spark] = Future()
        if not callable(spark):
            self._made.set_result(spark)

    def start(self) -> None:
        """Begin to start it; whoever needs it waits."""
        if self._make is not None:
            Thread(target=self._start, args=(self._make,), name="tailrace-spark", daemon=True).start()
            self._make = None

    def _start(self, make: Callable[[], Spark]) -> None:
        try:
            self._made.set_result(make())
        except BaseException as error:  # told to whoever waits
            self._made.set_exception(error)

    @property
    def context(self) -> SparkContext:
        """Spark, once it is there; raises what kept it from starting."""
        made = self._made.result()
        return made if isinstance(made, SparkContext) else made.sparkContext

    @property
    def parallel(self) -> int:
        """How many tasks it does at once."""
        return max(LEAST, int(self.context.defaultParallelism))
