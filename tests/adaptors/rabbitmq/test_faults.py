"""A broker that is killed in the middle of everything, and comes back: nothing is lost, what has an id comes once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.rabbitmq.source.reader import RabbitReader
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import StorageError
from tests.adaptors.rabbitmq.place import Place
from tests.adaptors.rabbitmq.sink.test_writer import rows
from tests.conftest import started
from tests.pipeline.runs import until
from tests.servers import rabbitmq as servers
from tests.servers.process import free_ports

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(600)]
SOAK = [pytest.mark.soak, pytest.mark.timeout(0)]
ROUNDS = [pytest.param(3, False), pytest.param(3, True, marks=SOAK), pytest.param(50, True, marks=SOAK)]
"""How often the broker is killed, and whether a stream is read meanwhile: after some kills RabbitMQ 3.10 does not bring
its streams up again ("home node of durable queue is down or inaccessible"), so no client reads them."""


class Mortal:
    """A broker that can be killed and comes back where it was."""

    def __init__(self, data: Path) -> None:
        self._data, self._ports, self._stack = data, free_ports(5), contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again."""
        broker = started("RabbitMQ", lambda: servers.rabbitmq(self._data, streams=True, ports=self._ports))
        self.server: Any = self._stack.enter_context(broker)

    def kill(self) -> None:
        """End it as a power cut does."""
        self.server.kill()
        self._stack.close()

    def close(self) -> None:
        """End it."""
        self._stack.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    with contextlib.closing(Mortal(tmp_path)) as broker:
        yield broker


class Work:
    """Follows a queue or a stream, and writes a queue, as a runner does: again after every error that passes."""

    def __init__(self, place: Place) -> None:
        self._place, self.stop = place, threading.Event()
        self.read: dict[str, list[int]] = {}
        self.written = 0
        self.faults = 0

    def follow(self, name: str, **settings: Any) -> None:
        """Read until told to stop; positions count from when their messages are kept."""
        position: Any = None
        self.read[name] = []
        while not self.stop.is_set():
            try:
                with contextlib.closing(self._place.reader(**settings)) as reader:
                    if position is None:
                        ((split, position),) = reader.begin([self._place.prefix + name])["splits"].items()
                    for changes in reader.follow(position, [self._place.prefix + name], split):
                        self.read[name] += [m.data["n"] for batch in changes.rows for m in messages_of(batch)]
                        position = changes.position
                        self._acknowledge(reader, position)
                        if self.stop.is_set():
                            return
            except StorageError:
                self.faults += 1
                self.stop.wait(0.1)

    def _acknowledge(self, reader: RabbitReader, position: Any) -> None:
        reader.acknowledge(position)

    def write(self) -> None:
        """Write one batch after the other until told to stop; one that failed again."""
        while not self.stop.is_set():
            with contextlib.suppress(StorageError), contextlib.closing(self._place.writer()) as writer:
                while not self.stop.is_set():
                    first = self.written
                    offsets = pa.array(range(first, first + 10), pa.int64())
                    writer.stage([placed(rows("copy", range(first, first + 10)), 0, offsets)])
                    self.written = first + 10
            self.stop.wait(0.1)


def send(place: Place, name: str, numbers: range) -> None:
    """Publish with ids, again what was not confirmed: then the same comes with the same id."""
    left = list(numbers)
    while left:
        with contextlib.suppress(Exception):
            place.send(name, [{"n": left[0]}], message_id=f"id-{left[0]}")
            left.pop(0)


@pytest.mark.parametrize(("rounds", "stream"), ROUNDS)
def test_a_broker_that_is_killed(mortal: Mortal, rounds: int, stream: bool) -> None:
    with Place(mortal.server.uri(), mortal.server.streams, "mortal.") as place:
        _work_while_it_is_killed(place, mortal, rounds, stream)


def _work_while_it_is_killed(place: Place, mortal: Mortal, rounds: int, stream: bool) -> None:
    place.make("orders")
    place.make("copy")
    work = Work(place)
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(work.follow, "orders", queues=["orders"], key="none"), pool.submit(work.write)]
        if stream:
            place.make("log", x_queue_type="stream")
            running.append(pool.submit(work.follow, "log", streams=["log"], key="none"))
        try:
            for n in range(rounds + 1):
                numbers = range(100 * n, 100 * n + 100)
                send(place, "orders", numbers)
                if stream:
                    place.send("log", [{"n": number} for number in numbers])
                until(reached(work, 100 * n + 100, work.written + 50), 240)
                if n < rounds:
                    place._connection.close()
                    mortal.kill()
                    mortal.start()
        finally:
            work.stop.set()
        for one in running:
            one.result(60)
    assert work.faults >= rounds, "it was never seen to be away"
    everything = list(range(100 * rounds + 100))
    assert sorted(work.read["orders"]) == everything, "each message with an id once"
    assert not stream or work.read["log"] == everything, "each message of a stream once, in order"
    copied = [(one.properties.message_id, one.headers["offset"]) for one in place.take("copy")]
    assert {offset for _, offset in copied} >= set(range(work.written)), "what was confirmed is there"
    assert len(set(copied)) == len({id for id, _ in copied}), "a repeat has the id of the first"
    assert once(copied) == sorted(once(copied)), "and the first of each came in order"


def once(copied: list[tuple[str, int]]) -> list[int]:
    return list(dict.fromkeys(offset for _, offset in copied))


def reached(work: Work, read: int, written: int) -> Callable[[], bool]:
    return lambda: all(len(set(found)) >= read for found in work.read.values()) and work.written >= written
