"""A broker that is killed in the middle of everything, and comes back: what is read and written is there once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import Unavailable
from tests.adaptors.kafka.place import Place
from tests.adaptors.kafka.sink.test_writer import ME, rows
from tests.conftest import started
from tests.pipeline.runs import until
from tests.servers import kafka as servers
from tests.servers.process import free_ports

pytestmark = [pytest.mark.soak, pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(0)]
ROUNDS = 2


class Mortal:
    """A broker that can be killed and comes back where it was."""

    def __init__(self, data: Path) -> None:
        self._data, self._ports, self._stack = data, free_ports(3), contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again."""
        broker = started("Kafka", lambda: servers.kafka(self._data, ports=self._ports))
        self.server = self._stack.enter_context(broker)

    def kill(self) -> None:
        """End it as a power cut does."""
        os.kill(self.server.pid, signal.SIGKILL)
        self._stack.close()

    def close(self) -> None:
        """End it."""
        self._stack.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    with contextlib.closing(Mortal(tmp_path)) as broker:
        yield broker


class Work:
    """Follows one topic and writes another, as a runner does: again after every error that passes."""

    def __init__(self, place: Place, source: str = "orders") -> None:
        self._place, self._source, self.stop = place, source, threading.Event()
        self.read: list[int] = []
        self.written = 0

    def follow(self) -> None:
        """Read until told to stop."""
        reader = self._place.reader()
        begun = reader.begin([self._source])
        ((split, position),) = begun["splits"].items()
        while not self.stop.is_set():
            with contextlib.suppress(Unavailable), contextlib.closing(self._place.reader()) as reader:
                for changes in reader.follow(position, [self._source], split):
                    self.read += [m.data["id"] for batch in changes.rows for m in messages_of(batch)]
                    position = changes.position
                    if self.stop.is_set():
                        return

    def write(self) -> None:
        """Write one row after the other until told to stop."""
        while not self.stop.is_set():
            with contextlib.suppress(Unavailable), contextlib.closing(self._place.writer()) as writer:
                while not self.stop.is_set():
                    staged: Any = writer.stage([rows("copy", [self.written])])
                    writer.finish([staged], ME, {"0": self.written + 1})
                    self.written += 1


def test_a_broker_that_is_killed(mortal: Mortal) -> None:
    place = Place(mortal.server.url, "mortal.")
    place.make("orders", 2)
    place.make("copy", 2)
    work = Work(place)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(work.follow), pool.submit(work.write)]
        try:
            for n in range(ROUNDS):
                place.send("orders", [({"id": id}, {"id": id}) for id in range(100 * n, 100 * n + 100)])
                goal = work.written + 5
                until(reached(work, 100 * n + 50, goal), 120)
                time.sleep(0.3)
                mortal.kill()
                mortal.start()
            place.send("orders", [({"id": id}, {"id": id}) for id in range(100 * ROUNDS, 100 * ROUNDS + 100)])
            until(reached(work, 100 * ROUNDS + 100, work.written + 5), 120)
        finally:
            work.stop.set()
        for one in running:
            one.result(60)
    assert sorted(work.read) == list(range(100 * ROUNDS + 100))
    assert sorted(one.document["id"] for one in place.read("copy")) == list(range(work.written))


def reached(work: Work, read: int, written: int) -> Callable[[], bool]:
    return lambda: len(work.read) >= read and work.written >= written
