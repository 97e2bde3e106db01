"""Runs of pipelines beside a test: in a thread of it, or as a process that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.run.runner import Runner

QUICK = """
import functools, sys
from tailrace.cli.main import main
from tailrace.pipeline.run import runner
runner.Lease = functools.partial(runner.Lease, ttl=1.0)
sys.argv[0] = "tailrace"
main()
"""
"""The command line, by which a run that was killed counts as gone after a second."""


def until(what: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@contextmanager
def going(made: Definition, spark: SparkSession) -> Iterator[Runner]:
    """A run that follows, stopped at the end; raises what it raised."""
    runner, failed = Runner(made, spark), list[BaseException]()

    def work() -> None:
        try:
            runner.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def caught_up(runner: Runner) -> bool:
    """Whether everything that was read is written."""
    shown = runner.status.shown()
    following = shown["state"] == "following" and not shown["error"]
    return following and all(s["state"] == "running" and not s["lag"] for s in shown["sinks"].values())


@contextmanager
def process(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """`tailrace …` in a folder, in a process of its own; what it says goes to the file `said`."""
    with (folder / "said").open("ab") as said:
        made = subprocess.Popen(
            [sys.executable, "-c", QUICK, *arguments],
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdout=said,
            stderr=said,
        )
    try:
        yield made
    finally:
        if made.poll() is None:
            made.kill()
        made.wait()


def workers(driver: int | None = None) -> list[int]:
    """The Python workers of a driver's Spark, this process's by default: forks of the daemon that its Java started."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    javas = [pid for pid, parent in parents.items() if parent == (driver or os.getpid())]
    daemons = [pid for pid, parent in parents.items() if parent in javas]
    return [pid for pid, parent in parents.items() if parent in daemons]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
