"""MongoDB to MongoDB, byte by byte, while the server is killed in the middle of everything."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from bson import Int64
from pymongo.errors import PyMongoError

from tailrace.adaptors.contract import Who
from tailrace.adaptors.mongodb.settings import MongoSink, MongoSource
from tailrace.adaptors.mongodb.sink.writer import MongoWriter
from tailrace.adaptors.mongodb.source.reader import MongoReader
from tailrace.errors import Unavailable
from tests.adaptors.mongodb.place import Place
from tests.conftest import started
from tests.servers import mongodb as servers
from tests.servers.mongodb import Mongo
from tests.servers.process import free_ports

pytestmark = [pytest.mark.server, pytest.mark.processes]
PATIENCE = 60.0
T = TypeVar("T")


class Killed:
    """A server that can be killed and comes back where it was."""

    def __init__(self, data: Path) -> None:
        self._data, self._port, self._stack = data, free_ports(1)[0], contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        self.server: Mongo = self._stack.enter_context(
            started("MongoDB", lambda: servers.mongod(data=self._data, port=self._port))
        )

    def kill(self) -> None:
        self.server.kill()
        self._stack.close()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    with contextlib.closing(Killed(tmp_path)) as server:
        yield server


class Pipeline:
    """Copies and follows shop.a into the database copy of the same server; as a runner, again after every error."""

    def __init__(self, server: Mongo) -> None:
        uri = server.uri("shop") + "&serverSelectionTimeoutMS=2000"
        self.reader = MongoReader(MongoSource(uri=uri, batch_rows=50))
        self.writer = MongoWriter(MongoSink(uri=uri, database="copy"))
        self.quiet = threading.Event()
        """Set once nothing is written to the source, and nothing killed, any more."""
        self.copied = threading.Event()
        self._offset = 0

    def run(self) -> None:
        """Until the source is quiet and all of it has been followed."""
        position = insisting(lambda: self.reader.begin(["shop.a"]))
        for piece in insisting(lambda: self.reader.pieces("shop.a", 300)):
            for batch in insisting(lambda piece=piece: list(self.reader.copy(piece))):
                self.write(batch)
        self.copied.set()
        while True:
            quiet = self.quiet.is_set()
            with contextlib.suppress(Unavailable):
                for changes in self.reader.follow(position, ["shop.a"]):
                    for batch in changes.rows:
                        self.write(batch)
                    position = changes.position
                    if changes.caught_up:
                        break
                if quiet:
                    return

    def write(self, batch: pa.RecordBatch) -> None:
        """Store a batch, again until it is known to be stored."""
        self._offset += 1
        offsets = {"0": self._offset}
        insisting(lambda: self.writer.finish([self.writer.stage([batch])], Who("p", "w", 1), offsets))

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


def insisting(do: Callable[[], T]) -> T:
    """Do something until the server is there for it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return do()
        except Unavailable:
            assert time.monotonic() < deadline, "it does not come back"
            time.sleep(0.05)


def load(server: Mongo, stop: threading.Event) -> None:
    """Change documents until told to stop, whether or not the server is there."""
    with server.client() as client:
        a, n = client["shop"]["a"], 0
        while not stop.is_set():
            n += 1
            with contextlib.suppress(PyMongoError):
                a.update_one({"_id": n * 7 % 3000}, {"$inc": {"n": 1}})
                a.replace_one({"_id": f"new {n % 500}"}, {"n": [n, {"x": 1.0}]}, upsert=True)
                a.delete_one({"_id": n * 13 % 3000})


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)])])
def test_killed_in_the_middle(killed: Killed, rounds: int) -> None:
    """The server dies while documents are written, copied, followed and stored; in the end both are the same."""
    rng, stop, server = random.Random(7), threading.Event(), killed.server
    with server.client() as client:
        client["shop"]["a"].insert_many([{"_id": n, "n": Int64(0)} for n in range(3000)])
    with contextlib.closing(Pipeline(server)) as pipeline, ThreadPoolExecutor(2) as pool:
        try:
            running, loading = pool.submit(pipeline.run), pool.submit(load, server, stop)
            for n in range(rounds):
                if n == rounds - 1:
                    pipeline.copied.wait(PATIENCE)
                time.sleep(rng.uniform(0.3, 1.0))  # some moment: whichever it is must do
                killed.kill()
                killed.start()
        finally:
            stop.set()
        loading.result(PATIENCE)
        pipeline.quiet.set()
        running.result(PATIENCE)
    with Place(killed.server, "shop") as source, Place(killed.server, "copy") as sink:
        assert sink.raw("a") == source.raw("a")
        assert len(source.raw("a")) > 500
