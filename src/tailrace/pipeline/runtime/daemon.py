"""Spark's Python daemon, whose workers start with everything imported and end without a traceback.

The daemon forks its workers.  So no worker imports what the daemon has imported, which would take nearly a second; but
the daemon may import only modules that start no threads.  Spark closes the connection of a worker that was idle for a
minute; the worker would then fail to answer a task that it never got, and print a traceback on the terminal that runs
the pipeline.  So each worker first checks that there is a task.

When a driver is killed, its Java process and the workers live on for some seconds.  Each worker checks once a second
whether the driver is alive, and ends if it is not: no driver would use its results."""

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
"""The modules that tasks import; those that are not installed are left out."""
STARTS_THREADS = "polars"
"""A module that starts threads when it is imported.  ADBC imports it if it is installed, but does not need it.  A
user's function that needs it imports it after the fork."""


def without_archives(path: list[str]) -> list[str]:
    """The module path without Spark's archives, whose modules Python would compile again in each process; the path as
    it is where pyspark and py4j are not installed."""
    left = [entry for entry in path if not entry.endswith(ARCHIVES)]
    return left if all(PathFinder.find_spec(name, left) for name in ("pyspark", "py4j")) else path


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402

_work = daemon.worker
_frozen = False


def end_with(driver: str) -> None:
    """Start a thread that ends this process once the driver has ended; `driver` is its pid and start time."""
    from tailrace.coordination.process import has_ended

    pid, _, life = driver.partition(" ")

    def watch() -> None:
        while not has_ended({"pid": int(pid), "life": life}):
            time.sleep(1.0)
        os._exit(1)

    if pid.isdecimal() and life:
        threading.Thread(target=watch, name="tailrace-driver", daemon=True).start()


def prepare() -> None:
    """Import what every worker needs, in the daemon before it forks."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # Arrow's second allocator starts a thread
    from tailrace.adaptors.registry import OURS

    with _without(STARTS_THREADS):
        for name in (*NEEDED, *(place.partition(":")[0] for place in OURS.values())):
            with suppress(ImportError):
                import_module(name)
    gc.collect()
    gc.freeze()  # so that workers share these pages: collecting garbage would copy them


@contextmanager
def _without(name: str) -> Iterator[None]:
    """A block in which imports of a module fail, as if it were not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run one task; the worker ends if this returns anything but 0."""
    global _frozen  # noqa: PLW0603
    try:
        if not sock.recv(1, socket.MSG_PEEK):
            return 1
    except OSError:
        return 1
    if not _frozen:
        end_with(os.environ.get("TAILRACE_DRIVER", ""))
    code: int = _work(sock, authenticated)
    if not _frozen:  # Spark collects garbage after every task, and would scan all imported modules each time
        gc.collect()
        gc.freeze()
        _frozen = True
    return code


if __name__ == "__main__":
    if sys.platform == "linux":  # macOS kills a fork that uses system libraries which its parent has loaded
        prepare()
    daemon.worker = worker
    daemon.manager()
