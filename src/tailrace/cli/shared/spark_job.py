"""A Spark job as people see it: a quiet start, a bar while it runs, and one line when it fails."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TypeVar

from tailrace.errors import BadInput, NotReady, TailraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_JAVA = re.compile(r"^(?:Exception in thread.*? |: |)[\w.]+\.\w*(?:Exception|Error): (.*)|^Error: (.*)", re.MULTILINE)
"""The first message of a Java stack trace, or of Spark's launcher."""


@contextmanager
def session(master: str, home: str | None) -> Iterator[SparkSession]:
    """Yields a Spark session, and stops it after the block."""
    import tailrace.spark

    with aside():
        spark = tailrace.spark.session(master, home=home or None)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def log() -> Iterator[IO[bytes] | None]:
    """Yields a file for the log of the Java that runs Spark, which is discarded afterwards; None if TAILRACE_SPARK_LOGS
    is set.  Failures that concern the user are raised as errors anyway."""
    if "TAILRACE_SPARK_LOGS" in os.environ:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        yield file


@contextmanager
def aside() -> Iterator[None]:
    """Send this process's stderr to a file during a block, and with it the log of the Java that the block starts."""
    with log() as file:
        if file is None:
            yield
            return
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def starting(said: IO[bytes] | None) -> Iterator[None]:
    """Raise what keeps Spark from starting as `NotReady` with one line: Java's message from the log `said`, or
    Python's."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        text = f"{error}"
        if said is not None:
            said.seek(0)
            text = f"{said.read().decode(errors='replace')}\n{text}"
        found = _JAVA.search(text)
        why = (found[1] or found[2]) if found else str(error).strip().split("\n", 1)[0]
        raise NotReady(
            f"Spark cannot be started: {why.rstrip('.;')}; look at --master and --conf, and with TAILRACE_SPARK_LOGS=1 "
            "at what it says itself"
        ) from error


@contextmanager
def explained() -> Iterator[None]:
    """Unwrap an error of tailrace that Spark has wrapped, as `TailraceError`; raise an error of Spark as `BadInput`,
    with its first line."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = re.findall(r"tailrace\.errors\.\w+: (.*)", str(error))
        if found:
            raise TailraceError(found[-1]) from None
        raise BadInput(str(error).strip().split("\n", 1)[0]) from None


def run(spark: SparkSession, what: str, work: Callable[[], T]) -> T:
    """Do some work in Spark, with a bar that shows how many of its tasks are done; return its result."""
    done = threading.Event()
    # The work stays in this thread: Spark looks formats up in the session of the thread that asks.
    watcher = threading.Thread(target=_watch, args=(spark, what, done), daemon=True)
    if sys.stderr.isatty():
        watcher.start()
    try:
        with explained():
            return work()
    finally:
        done.set()
        if watcher.is_alive():
            watcher.join()


def _watch(spark: SparkSession, what: str, done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(what, total=None)
        while not done.wait(0.2):
            finished, total = _tasks(spark)
            shown.update(bar, completed=finished, total=total or None)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the active stages are done, and how many tasks these stages have."""
    tracker = spark.sparkContext.statusTracker()
    stages = [found for id in tracker.getActiveStageIds() if (found := tracker.getStageInfo(id)) is not None]
    return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
