"""Spark's Python daemon, whose workers go without a word.

Spark closes the connection of a worker that was idle for a minute, and the worker then fails to answer a task that it
never got, with a trace on the terminal of whoever runs the pipeline.  So each worker first looks whether there is one.
It must import nothing that starts threads: it forks."""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

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
