"""Servers that are killed, and come back."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tailrace.adaptors.contract import Who
from tailrace.errors import Fenced, Unavailable
from tailrace.testing.writercontract import _rows, some
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place, assert_same
from tests.adaptors.postgres.workload import SETUP, TABLES, Workload
from tests.conftest import started
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres
from tests.servers.process import folder

pytestmark = pytest.mark.server


class Mortal:
    """A server that can be killed and started again, on the same port with the same data."""

    def __init__(self, data: Path) -> None:
        self._data, self._stack = data, contextlib.ExitStack()
        self.server: Postgres | None = None

    def start(self) -> Postgres:
        port = self.server.port if self.server else None
        deadline = time.monotonic() + 30
        while True:
            try:
                start = started("PostgreSQL 18", lambda: servers.postgres(data=self._data, settings=FAST, port=port))
                self.server = self._stack.enter_context(start)
                return self.server
            except RuntimeError:  # Children of the killed one may not be gone yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def kill(self, place: Place) -> None:
        assert self.server is not None
        place.hang_up()
        os.kill(self.server.pid, signal.SIGKILL)
        self._stack.close()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    with folder(None) as data, contextlib.closing(Mortal(data)) as server:
        server.start()
        yield server


class TestSource:
    @pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 10))])
    def test_killed_while_followed(self, mortal: Mortal, sink18: Place, seed: int) -> None:
        server = mortal.server
        assert server is not None
        with psycopg.connect(server.uri(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop")
        pick = random.Random(seed)
        with Place(server, "shop") as source:
            source.run(SETUP)
            with Drive(source, sink18, [f"public.{t}" for t in TABLES], reader={"batch_rows": 100}) as drive:
                drive.begin()
                drive.copy(rows=500)
                for n in range(3):
                    with Workload(source, seed * 10 + n, truncates=False, alters=False):
                        end = time.monotonic() + pick.uniform(0.1, 1.0)
                        while time.monotonic() < end:
                            drive.step()
                        mortal.kill(source)
                        with pytest.raises(Unavailable):
                            for _ in range(1000):
                                drive.step()
                    with pytest.raises(Unavailable):
                        drive.stop()
                        drive.step()
                    mortal.start()
                    drive.stop()
                drive.follow()
            for table in TABLES:
                assert_same(source, sink18, table)


class Target:
    namespace = "public.documents"


class TestSink:
    def test_killed_between_stage_and_finish(self, mortal: Mortal) -> None:
        """Unlogged tables are empty after a crash: the batch is not finished as if it had been empty."""
        assert mortal.server is not None
        with Place(mortal.server, "postgres") as sink, contextlib.ExitStack() as stack:
            writer = stack.enter_context(contextlib.closing(sink.writer(create=True)))
            staged = [writer.stage([_rows(Target, some(range(5000)))])]
            assert staged[0].detail[0].table
            sink.run("CHECKPOINT")
            mortal.kill(sink)
            with pytest.raises(Unavailable):
                writer.finish(staged, Who("p", "w", 1), {"0": 1})
            mortal.start()
            with pytest.raises(Unavailable, match="staged again"):
                writer.finish(staged, Who("p", "w", 1), {"0": 1})
            staged = [writer.stage([_rows(Target, some(range(5000)))])]
            writer.finish(staged, Who("p", "w", 1), {"0": 1})
            assert sink.ask("SELECT count(*) FROM documents") == [(5000,)]

    @pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.soak)])
    def test_killed_at_any_moment(self, mortal: Mortal, rounds: int) -> None:
        """A counter that every batch raises by one shows whether one was written twice or not at all."""
        assert mortal.server is not None
        with Place(mortal.server, "postgres") as sink:
            sink.run("CREATE TABLE documents (id bigint, text text)")
            batch = 0
            for seed in range(rounds):
                batch = self._until_killed(mortal, sink, batch, seed)
                mortal.start()
            writer = sink.writer()
            restored = writer.restore("p", "w")
            assert restored is not None
            assert restored["offsets"]["0"] in (batch, batch + 1)
            counts = sink.ask("SELECT count(*), count(DISTINCT id), max(id) FROM documents")
            done = restored["offsets"]["0"] + 1
            assert counts == [(done * 300, done, done - 1)]
            writer.close()

    def _until_killed(self, mortal: Mortal, sink: Place, batch: int, seed: int) -> int:
        """Write batches until the server dies; the number of the last that is known to be finished."""
        end = time.monotonic() + random.Random(seed).uniform(0.05, 0.6)
        with contextlib.closing(sink.writer()) as writer, contextlib.suppress(Unavailable):
            restored = writer.restore("p", "w")
            batch = restored["offsets"]["0"] if restored else -1
            while True:
                rows = _keyless([{"id": batch + 1, "text": "x" * 200}] * 300)
                staged = [writer.stage([rows])]
                if time.monotonic() > end and batch >= 0:  # a slow machine may not come to a first batch before
                    mortal.kill(sink)
                writer.finish(staged, Who("p", "w", 1), {"0": batch + 1})
                batch += 1
        return batch


def _keyless(documents):
    rows = _rows(Target, documents)
    return rows.replace_schema_metadata({**rows.schema.metadata, b"keys": b"[]"})


class TestZombie:
    def test_it_is_refused_while_and_after_another_finishes(self, sink18: Place) -> None:
        zombie, successor = sink18.writer(create=True), sink18.writer(create=True)
        for size in (10, 5000):
            old = [zombie.stage([_rows(Target, some(range(size), "old"))])]
            new = [successor.stage([_rows(Target, some(range(size), "new"))])]
            successor.finish(new, Who("p", "w", size + 1), {"0": 10})
            with pytest.raises(Fenced, match="has begun"):
                zombie.finish(old, Who("p", "w", size), {"0": 99})
            assert sink18.ask("SELECT count(*) FROM documents WHERE text LIKE 'old%'") == [(0,)]
            zombie.discard(old)
        assert sink18.ask("SELECT count(*) FROM pg_class WHERE relname LIKE 'stage%'") == [(0,)]
        zombie.close()
        successor.close()

    def test_two_finish_at_once(self, sink18: Place) -> None:
        """The second waits for the first, and then sees that it was overtaken."""
        zombie, successor = sink18.writer(create=True), sink18.writer(create=True)
        successor.finish([], Who("p", "w", 1), {"0": 0})
        old = [zombie.stage([_rows(Target, some([1], "old"))])]
        with sink18.connection.transaction():
            sink18.run("UPDATE tailrace.offsets SET epoch = 2")
            import threading

            caught: list[BaseException] = []

            def late() -> None:
                try:
                    zombie.finish(old, Who("p", "w", 1), {"0": 5})
                except Fenced as error:
                    caught.append(error)

            thread = threading.Thread(target=late)
            thread.start()
            time.sleep(0.5)
            assert thread.is_alive()
        thread.join()
        assert len(caught) == 1
        assert sink18.ask("SELECT to_regclass('documents')") == [(None,)]
        zombie.close()
        successor.close()
