"""Tailrace's own queue, on a folder of the disk, with as many shards as a queue has by default."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tailrace
from benchmarks.queues.contract import Got

NAME = "bench"


class Tailrace:
    """Messages without keys, as the peers' are."""

    def __init__(self, home: Any) -> None:
        self.queue = home.queue(NAME)
        self.queue.make()

    def push(self, message: bytes) -> None:
        """push()."""
        self.queue.push(message)

    def push_many(self, messages: Sequence[bytes]) -> None:
        """push_many(): one transaction."""
        self.queue.push_many(messages)

    def take(self, batch: int, got: Got) -> None:
        """A worker with one handler thread, from joining to its shutdown, by when all it handled is acknowledged."""
        over = threading.Event()
        handler = _by_one if batch == 1 else _by_many

        def handle(given: Any) -> None:
            if got(handler(given)):
                over.set()

        with self.queue.tail(handle, batch=batch > 1, batch_size=100, threads=1):
            while not over.wait(0.05):
                if got(()):
                    break


def _by_one(envelope: Any) -> list[bytes]:
    return [envelope.message]


def _by_many(envelopes: Sequence[Any]) -> list[bytes]:
    return [envelope.message for envelope in envelopes]


@contextlib.contextmanager
def connect(address: str) -> Iterator[Tailrace]:
    """The home there."""
    with tailrace.open(address) as home:
        yield Tailrace(home)
