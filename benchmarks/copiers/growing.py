"""A pipeline run once in a process of its own, Spark started before the clock is: `python -m … EMPTY FULL INTO FOLDER`.

Prints one line of JSON: the seconds of a run over the empty database and of one over the full one, and the highest
resident memory of the driver's Python, of its Java, and of any of Spark's Python workers, in bytes."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
from pyspark import SparkContext

import tailrace
from tailrace.cli.pipeline.run import DAEMON
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.run.runner import Runner
from tailrace.spark.session import context

DRIVER, JAVA, WORKER = "driver", "java", "worker"


def pipeline(source: str, into: str, folder: Path) -> Definition:
    """One table into a table or into Parquet."""
    mark = uuid.uuid4().hex[:8]
    plan = tailrace.pipeline(f"growing_{mark}", home=str(folder / f"home-{mark}"))
    plan = plan.source("postgres", uri=source, namespace=r"^public\.items$", slot=f"growing_{mark}")
    if into.startswith("postgresql://"):
        return plan.branch().save("postgres", uri=into, create=True).definition()
    return plan.branch().save("file", path=f"{into}/{mark}", format="parquet").definition()


def timed(made: Definition, spark: SparkContext) -> float:
    """The seconds of a run."""
    start = time.perf_counter()
    Runner(made, spark).run(once=True)
    return time.perf_counter() - start


@contextlib.contextmanager
def peaks() -> Iterator[dict[str, int]]:
    """The resident memory of the processes of this run, looked at again and again."""
    found, done = {DRIVER: 0, JAVA: 0, WORKER: 0}, threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            for process in (me := psutil.Process(), *me.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    name = process.name()
                    kind = DRIVER if process == me else JAVA if name == "java" else WORKER
                    found[kind] = max(found[kind], process.memory_info().rss)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def main() -> None:
    """The empty one twice, since the first warms Spark up; then the full one, watched."""
    empty, full, into, folder = sys.argv[1:]
    place = Path(folder)
    spark = context("local[2]", config={"spark.scheduler.mode": "FAIR", "spark.python.daemon.module": DAEMON})
    idle = [timed(pipeline(empty, into, place), spark) for _ in range(2)][-1]
    with peaks() as found:
        seconds = timed(pipeline(full, into, place), spark)
    print(json.dumps({"idle": idle, "seconds": seconds, **found}))
    spark.stop()


if __name__ == "__main__":
    main()
