"""Spark jobs of a run: call a function in tasks, and distinguish a lost job from a result.

The function returns its result, an error included, instead of raising.  So a job fails only when a worker dies or Spark
cannot run it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from tailrace.errors import TailraceError, Unavailable
from tailrace.pipeline.runtime.reach import Reach, refusal

T = TypeVar("T")
_PYTHON = re.compile(r"(?!org\.|java\.|scala\.)[\w.]*(Error|Exception)\w*: \S")
"""Matches the last line of a Python traceback, which explains better than Spark's own text why a worker has ended."""

LOSSES = 5
"""The number of consecutive lost jobs after which the cause is taken to be the setup, not a worker that died."""


class JobLost(Unavailable):
    """A Spark job did not end; what its tasks have done is unknown."""


def in_tasks(
    spark: SparkContext, function: Callable[..., T], work: Sequence[tuple[Any, ...]], reach: Reach | None = None
) -> list[T]:
    """Call a function with each of these arguments, each call in a task; returns the results in order.

    A worker process that does not see the run's marks calls nothing, and its error is raised here.  `JobLost` if the
    job did not end."""

    def call(some: tuple[Any, ...]) -> tuple[TailraceError | None, T | None]:
        refused = refusal(reach)
        return (refused, None) if refused is not None else (None, function(*some))

    try:
        found = spark.parallelize(work, len(work)).map(call).collect()
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise JobLost(f"a Spark job was lost: {_line(error)}") from error
    for refused, _ in found:
        if refused is not None:
            raise refused
    return [answer for _, answer in found]


def _line(error: Exception) -> str:
    """The line of a long stack trace that says what happened."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "File ", "Traceback"))]
    python = [line for line in lines if _PYTHON.match(line)]
    return (python[-1:] or told or lines or [type(error).__name__])[0][:300]
