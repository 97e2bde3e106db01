"""persist-queue: a queue in SQLite, in the form whose commits the caller makes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from persistqueue import Empty, FIFOSQLiteQueue

from benchmarks.harness import expect
from benchmarks.queues.contract import Got


class PersistQueue:
    """put() and get(); task_done() commits, and removes what was got."""

    def __init__(self, folder: str) -> None:
        self.queue = FIFOSQLiteQueue(folder, auto_commit=False, multithreading=True)
        for name, wanted in (("synchronous", 2), ("journal_mode", "wal")):
            expect(name, self.queue._putter.execute(f"PRAGMA {name}").fetchone()[0], wanted)

    def push(self, message: bytes) -> None:
        """A put() and its commit."""
        self.push_many([message])

    def push_many(self, messages: Sequence[bytes]) -> None:
        """As many put(), one commit."""
        for message in messages:
            self.queue.put(message)
        self.queue.task_done()

    def take(self, batch: int, got: Got) -> None:
        """As many get(), one commit that removes them."""
        while True:
            found = []
            with contextlib.suppress(Empty):
                while len(found) < batch:
                    found.append(self.queue.get(block=False))
            over = got(found)
            if found:
                self.queue.task_done()
            else:
                time.sleep(0.001)
            if over:
                return


@contextlib.contextmanager
def connect(address: str) -> Iterator[PersistQueue]:
    """The queue in that folder."""
    queue = PersistQueue(address)
    try:
        yield queue
    finally:
        queue.queue.close()
