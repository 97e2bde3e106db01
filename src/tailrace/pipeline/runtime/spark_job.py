"""Spark jobs of a run: a function called in tasks; distinguishes a lost job from an answer.

What a function has to say about its work, good or bad, it gives back.  A job fails only when a worker dies, or Spark
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
"""The last line of a Python traceback, which says more than Spark does about a worker that ends at once."""

LOSSES = 5
"""After so many jobs lost one after another the cause is not a worker that died."""


class JobLost(Unavailable):
    """A Spark job did not come to its end; nothing is known of what it did."""


def in_tasks(
    spark: SparkContext, function: Callable[..., T], work: Sequence[tuple[Any, ...]], reach: Reach | None = None
) -> list[T]:
    """Call a function with each of these arguments, in a task each; gives what it gave, in order.

    A process that does not reach what the run needs does nothing, and its error is raised here."""

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
    """What happened, of a trace of many lines."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "File ", "Traceback"))]
    python = [line for line in lines if _PYTHON.match(line)]
    return (python[-1:] or told or lines or [type(error).__name__])[0][:300]
