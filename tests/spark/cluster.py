"""A real standalone cluster from the installed pyspark: one master and two workers, on loopback.  A further worker can
stand for another host: it has a mount namespace of its own, in which a folder is another one.

Each worker has an address of its own: Spark never runs a task a second time on the host where it already runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from tailrace.spark.runtime.java import java_home
from tests.servers.prepare import SHORT_LIVED
from tests.servers.process import HOST, answers, folder, free_ports, running

MEMORY = "600m"
WORKERS = {"one": "127.0.0.1", "two": "127.0.0.2"}
FURTHER = {"apart": "127.0.0.3"}


@dataclass
class Cluster:
    """A running cluster.  `workers` has the pids of its workers."""

    master: str
    status: str
    place: Path
    stack: contextlib.ExitStack
    workers: dict[str, int] = field(default_factory=dict)

    def alive(self) -> int:
        """How many workers the master knows to be alive."""
        with urllib.request.urlopen(f"{self.status}/json/", timeout=5) as answer:
            return sum(worker["state"] == "ALIVE" for worker in json.load(answer)["workers"])

    def applications(self) -> int:
        """How many applications the master believes to be running."""
        with urllib.request.urlopen(f"{self.status}/json/", timeout=5) as answer:
            return len(json.load(answer)["activeapps"])

    def add(self, name: str, hidden: Path | None = None) -> None:
        """Start a worker with one core; in place of the folder `hidden` it has an empty one of its own."""
        (port,) = free_ports(1)
        host = {**WORKERS, **FURTHER}[name]
        options = ["--host", host, "--cores", "1", "--memory", MEMORY, "--webui-port", str(port)]
        options += ["--work-dir", str(self.place / name), self.master]
        before, log = self.alive(), self.place / f"{name}.log"
        worker = started("worker.Worker", options, log, lambda: self.alive() > before, host, hidden)
        self.workers[name] = self.stack.enter_context(worker)

    def kill(self, name: str) -> None:
        """Kill a worker and its executors, without a word."""
        kill_all(self.workers.pop(name))


def kill_all(pid: int) -> None:
    """Kill a process and all it has started, leaves last: nobody is left to tidy up."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):
            kill_all(int(child))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def started(
    main: str, options: list[str], log: Path, ready: Any, host: str = HOST, hidden: Path | None = None
) -> Iterator[int]:
    home = Path(pyspark.__file__).parent
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "JAVA_HOME": java_home()}
    env |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *options]
    if hidden is not None:
        own = 'mount -t tmpfs none "$0" && exec "$@"'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", own, str(hidden), *command]
    with running(command, ready, log=log, env=env, patience=240) as pid:
        yield pid


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """One master and two workers with a core each."""
    with folder(None) as place, contextlib.ExitStack() as stack:
        port, status = free_ports(2)
        options = ["--host", HOST, "--port", str(port), "--webui-port", str(status)]
        made = Cluster(f"spark://{HOST}:{port}", f"http://{HOST}:{status}", place, stack)
        ready = lambda: answers(f"{made.status}/json/")  # noqa: E731
        stack.enter_context(started("master.Master", options, place / "master.log", ready))
        for name in WORKERS:
            made.add(name)
        yield made


@contextlib.contextmanager
def job(name: str, log: Path, env: dict[str, str] | None = None, **arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process of its own: one of tests/spark/jobs.py."""
    command = [sys.executable, "-m", "tests.spark.jobs", name, json.dumps(arguments)]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(env or {})})
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_all(process.pid)
        process.wait()


def finished(process: subprocess.Popen[bytes], log: Path, patience: float = 600) -> None:
    """Wait for a driver's end, which must be a good one."""
    code = process.wait(patience)
    assert code == 0, f"exit code {code}\n{log.read_text(errors='replace')[-4000:]}"


def wait_for(what: Any, process: subprocess.Popen[bytes] | None, log: Path, patience: float = 600) -> None:
    """Wait until something holds, while a driver runs."""
    deadline = time.monotonic() + patience
    while not what():
        over = time.monotonic() > deadline or (process is not None and process.poll() is not None)
        code = process and process.returncode
        assert not over, f"it did not come to that (exit code {code}):\n{log.read_text(errors='replace')[-4000:]}"
        time.sleep(0.05)
