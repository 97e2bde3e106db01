"""Spark's Python daemon, whose workers go without a word.

Spark closes the connection of a worker that was idle for a minute, and the worker then fails to answer a task that it
never got, with a trace on the terminal of whoever runs the pipeline.  So each worker first looks whether there is one.
It must import nothing that starts threads: it forks."""

from __future__ import annotations

import gc
import socket
import sys
from importlib.machinery import PathFinder

ARCHIVES = ("pyspark.zip", "-src.zip")


def without_archives(path: list[str]) -> list[str]:
    """Where to look for modules: Spark puts its own as archives first, which Python compiles anew in each process.
    Where the same are installed, as with the driver on this machine, they are taken from there."""
    left = [entry for entry in path if not entry.endswith(ARCHIVES)]
    return left if all(PathFinder.find_spec(name, left) for name in ("pyspark", "py4j")) else path


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402

_work = daemon.worker
_frozen = False


def worker(sock: socket.socket, authenticated: bool) -> int:
    """One task; anything but 0 ends the worker."""
    global _frozen  # noqa: PLW0603
    try:
        if not sock.recv(1, socket.MSG_PEEK):
            return 1
    except OSError:
        return 1
    code: int = _work(sock, authenticated)
    if not _frozen:  # Spark collects garbage after every task, and would look through all modules each time
        gc.collect()
        gc.freeze()
        _frozen = True
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
