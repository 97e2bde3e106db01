"""A topic on a table whose appends can be held up or made to fail, for tests of producers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.errors import (
    TimedOut,
)
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.storage.calls import Store
from tailrace.storage.tables import Action, Update
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable
from tests.log.driving import TABLES


class Watched(SimulatedTable):
    """A table whose appends can be held up or made to fail."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.gate = threading.Event()
        self.gate.set()
        self.errors: list[Exception | None] = []
        self.appends = 0
        self.late: list[Callable[[], object]] = []

    def write(self, *actions: Action) -> Any:
        if isinstance(actions[0], Update) and actions[0].key.p.startswith("$Log-"):
            self.appends += 1
            assert self.gate.wait(20), "the test forgot the gate"
            error = self.errors.pop(0) if self.errors else None
            if isinstance(error, TimedOut):
                self.late.append(lambda: super(Watched, self).write(*actions))
            if error is not None:
                raise error
        return super().write(*actions)


def watched(kept: str = "joined", partitions: int = 2) -> tuple[Topic, Watched]:
    """A topic on such a table; a pause moves a clock of its own."""
    table, clock = Watched(**TABLES[kept]), ManualClock()
    home = Home("memory:", Store(table, SimulatedObjects(), clock.monotonic, clock.move))
    return home.create_topic("t", partitions), table


@contextmanager
def held(table: Watched) -> Iterator[None]:
    """No append gets through for the length of a block."""
    table.gate.clear()
    try:
        yield
    finally:
        table.gate.set()


def eventually(true: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.002)


def values(topic: Topic, partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in topic.records(partition)]
