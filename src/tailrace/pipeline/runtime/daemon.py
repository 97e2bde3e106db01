"""Spark's Python daemon, whose workers start with everything imported and end without a traceback.

It forks: what it has imported no worker need import again, which takes nearly a second, and what it imports must start
no threads.  Spark closes the connection of a worker that was idle for a minute, and the worker then fails to answer a
task that it never got, with a traceback on the terminal that runs the pipeline.  So each worker first looks whether
there is one.

A driver that is killed leaves its Java for some seconds, and that its workers: each of them looks once a second whether
the driver is still there, and ends without it.  Nothing it would do counts any more."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import PathFinder

ARCHIVES = ("pyspark.zip", "-src.zip")
NEEDED = (
    "tailrace.pipeline.ingest.copying",
    "tailrace.pipeline.deliver.delivery",
    "psycopg",
    "adbc_driver_postgresql.dbapi",
)
"""What tasks import, as far as it is installed."""
STARTS_THREADS = "polars"
"""ADBC imports it where it is installed, and does without it elsewhere.  A function that needs it imports it after the
fork."""


def without_archives(path: list[str]) -> list[str]:
    """Where to look for modules: Spark puts its own as archives first, which Python compiles again in each process.
    Where the same are installed, as with the driver on this machine, they are taken from there."""
    left = [entry for entry in path if not entry.endswith(ARCHIVES)]
    return left if all(PathFinder.find_spec(name, left) for name in ("pyspark", "py4j")) else path


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402

_work = daemon.worker
_frozen = False


def end_with(driver: str) -> None:
    """Have this process end once the driver has."""
    from tailrace.coordination.process import has_ended

    pid, _, life = driver.partition(" ")

    def watch() -> None:
        while not has_ended({"pid": int(pid), "life": life}):
            time.sleep(1.0)
        os._exit(1)

    if pid.isdecimal() and life:
        threading.Thread(target=watch, name="tailrace-driver", daemon=True).start()


def prepare() -> None:
    """Import what every worker needs."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # Arrow's second allocator starts a thread
    from tailrace.adaptors.registry import OURS

    with _without(STARTS_THREADS):
        for name in (*NEEDED, *(place.partition(":")[0] for place in OURS.values())):
            with suppress(ImportError):
                import_module(name)
    gc.collect()
    gc.freeze()  # workers share it


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Have imports of a module fail, for the length of a block, as if it were not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def worker(sock: socket.socket, authenticated: bool) -> int:
    """One task; anything but 0 ends the worker."""
    global _frozen  # noqa: PLW0603
    try:
        if not sock.recv(1, socket.MSG_PEEK):
            return 1
    except OSError:
        return 1
    if not _frozen:
        end_with(os.environ.get("TAILRACE_DRIVER", ""))
    code: int = _work(sock, authenticated)
    if not _frozen:  # Spark collects garbage after every task, and would look through all modules each time
        gc.collect()
        gc.freeze()
        _frozen = True
    return code


if __name__ == "__main__":
    if sys.platform == "linux":  # macOS ends a fork that uses what its parent has loaded of the system's libraries
        prepare()
    daemon.worker = worker
    daemon.manager()
