"""What dies while a pipeline runs: the run itself, a worker, either server, the network, the disk.

Afterwards the sinks equal the source, and a sink that keeps every message has each of them once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.log.record import Op
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.operate import operator
from tailrace.pipeline.run.runner import Runner
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place
from tests.adaptors.postgres.test_faults import Mortal
from tests.conftest import started
from tests.pipeline.runs import caught_up, going, process, until, workers
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres
from tests.servers.process import folder
from tests.servers.proxy import Proxy, proxied

pytestmark = [pytest.mark.spark, pytest.mark.server]

SETUP = """
CREATE TABLE orders (id int PRIMARY KEY, v text);
CREATE TABLE notes (a int, b text);
ALTER TABLE notes REPLICA IDENTITY FULL;
INSERT INTO orders SELECT n, 'copied' FROM generate_series(1, 3000) n;
INSERT INTO notes SELECT n % 50, 'copied' FROM generate_series(1, 500) n;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as made:
        yield made


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    with folder(None) as data, contextlib.closing(Mortal(data)) as made:
        made.start()
        yield made


class Shop:
    """A source that changes when told to, a sink, and the pipeline between them."""

    def __init__(self, source: Place, sink: Place, folder: Path) -> None:
        self.source, self.sink, self.folder, self._rng, self._next = source, sink, folder, random.Random(1), 10_000

    def definition(self, sink_uri: str | None = None, files: Path | None = None) -> Definition:
        """Into tables, exactly once; into a topic, where each message is kept; perhaps into files."""
        plan = (
            tailrace.pipeline("shop", home=self.folder / "home", partitions=2, piece_rows=500)
            .source("postgres", uri=self.source.uri, namespace=r"^public\.", slot=self.source.name)
            .branch().save("postgres", uri=sink_uri or self.sink.uri, create=True)
            .branch().save("tailrace", home=str(self.folder / "topics"), topic="all")
        )  # fmt: skip
        return (plan.branch().save("file", path=str(files)) if files else plan).definition()

    def trade(self, times: int = 20) -> None:
        """Some changes, one transaction each."""
        for _ in range(times):
            self._next += 1
            id = self._rng.randrange(1, 3000)
            self.source.run("INSERT INTO orders VALUES (%s, 'new')", self._next)
            self.source.run("UPDATE orders SET v = v || '.' WHERE id = %s", id)
            self.source.run("DELETE FROM orders WHERE id = %s", self._rng.randrange(1, 3000))
            self.source.run("INSERT INTO notes VALUES (%s, 'new')", id % 50)
            self.source.run("DELETE FROM notes WHERE ctid = (SELECT min(ctid) FROM notes WHERE a = %s)", id % 50)

    def check(self) -> None:
        """Source and sink row by row; the topic against the commit log, message by message."""
        for table in ("orders", "notes"):
            assert self.sink.texts(table) == self.source.texts(table), table
        with tailrace.open(self.folder / "home") as home, tailrace.open(self.folder / "topics") as topics:
            log = operator.messages(home, "shop", {0: 0, 1: 0}, {})
            told = [m.message for m in log if m.message.op is not Op.COMMAND]
            sent = Counter(f"{m.namespace}\0{m.id}".encode() for m in told)
            kept = Counter(r.key for r in topics.topic("all").records() if r.op is not Op.COMMAND)
        assert kept == sent, "each message once"


@contextlib.contextmanager
def shop(source: Postgres, sink: Postgres, folder: Path) -> Iterator[Shop]:
    name = f"shop_{random.randrange(1 << 30)}"
    for server, kind in ((source, "source"), (sink, "sink")):
        with psycopg.connect(server.uri(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}_{kind} TEMPLATE template0")
    with Place(source, f"{name}_source") as from_, Place(sink, f"{name}_sink") as to:
        from_.run(SETUP)
        yield Shop(from_, to, folder)


def test_the_source_dies(spark: SparkSession, mortal: Mortal, server: Postgres, tmp_path: Path) -> None:
    assert mortal.server is not None
    with shop(mortal.server, server, tmp_path) as it:
        with going(it.definition(), spark) as runner:
            until(lambda: caught_up(runner))
            it.trade()
            mortal.kill(it.source)
            until(lambda: runner.status.state == "waiting")
            mortal.start()
            it.trade()
            until(lambda: caught_up(runner))
        Runner(it.definition(), spark).run(once=True)
        it.check()


def test_the_sink_dies(spark: SparkSession, mortal: Mortal, server: Postgres, tmp_path: Path) -> None:
    assert mortal.server is not None
    with shop(server, mortal.server, tmp_path) as it:
        with going(it.definition(), spark) as runner:
            until(lambda: caught_up(runner))
            it.trade()
            mortal.kill(it.sink)
            it.trade()
            until(lambda: runner.status.sinks["postgres"].state == "waiting")
            assert runner.status.sinks["tailrace"].state == "running", "the other writer goes on"
            time.sleep(4)  # it is asked again meanwhile, more than once
            assert runner.status.sinks["postgres"].state == "waiting"
            mortal.start()
            until(lambda: caught_up(runner))
        Runner(it.definition(), spark).run(once=True)
        it.check()


@pytest.mark.parametrize("fault", ["reset_before", "reset_after"])
def test_the_network_is_cut(spark: SparkSession, server: Postgres, tmp_path: Path, fault: Any) -> None:
    with shop(server, server, tmp_path) as it, proxied(f"http://127.0.0.1:{server.port}") as proxy:
        made = it.definition(_through(proxy, it.sink.uri))
        with going(made, spark) as runner:
            until(lambda: caught_up(runner))
            with proxy.failing(fault):
                it.trade()
                until(lambda: runner.status.sinks["postgres"].state == "waiting")
            until(lambda: caught_up(runner))
        Runner(made, spark).run(once=True)
        it.check()


def _through(proxy: Proxy, uri: str) -> str:
    return f"{uri.rpartition('@')[0]}@{proxy.url.removeprefix('http://')}/{uri.rpartition('/')[2]}"


def test_workers_die(spark: SparkSession, server: Postgres, tmp_path: Path) -> None:
    with shop(server, server, tmp_path) as it:
        with going(it.definition(), spark) as runner:
            for _ in range(4):
                it.trade(5)
                until(workers)
                for pid in workers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            until(lambda: caught_up(runner))
        Runner(it.definition(), spark).run(once=True)
        it.check()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("no right to mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_the_disk_is_full(spark: SparkSession, server: Postgres, tmp_path: Path, small: Path) -> None:
    with shop(server, server, tmp_path) as it:
        made = it.definition(files=small / "out")
        with going(made, spark) as runner:
            until(lambda: caught_up(runner))
            with contextlib.suppress(OSError), (small / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(b"x" * 4096)
            it.trade()
            until(lambda: runner.status.sinks["file"].state == "waiting")
            assert "disk full" in runner.status.sinks["file"].error
            it.trade()
            (small / "ballast").unlink()
            until(lambda: caught_up(runner))
        Runner(made, spark).run(once=True)
        it.check()


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(5, marks=pytest.mark.timeout(900)),
        pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)]),
    ],
)
def test_the_run_is_killed(server: Postgres, tmp_path: Path, rounds: int) -> None:
    """At any point: while it starts, copies, follows."""
    rng = random.Random(rounds)
    with shop(server, server, tmp_path) as it:
        (tmp_path / "shop.py").write_text(FILE.format(home=tmp_path, source=it.source.name))
        env = {"SHOP": it.source.uri, "WAREHOUSE": it.sink.uri}
        for n in range(rounds):
            with process(tmp_path, "run", "shop.py", env=env) as run:
                early = rng.choice([("copying", "following"), ("following",)])
                come = lambda n=n, run=run, early=early: _said(tmp_path, n + 1, *early) or run.poll() is not None  # noqa: E731
                until(come, 300)
                assert run.poll() is None, (tmp_path / "said").read_text()
                end = time.monotonic() + rng.uniform(0, 3)
                while time.monotonic() < end:
                    it.trade(1)
                run.kill()
        with process(tmp_path, "run", "shop.py", "--once", env=env) as run:
            assert run.wait(240) == 0, (tmp_path / "said").read_text()
        it.check()
        orders = pq.read_table(tmp_path / "state" / "public.orders" / "state.parquet").to_pylist()
        assert sorted(f"({row['id']},{row['v']})" for row in orders) == sorted(it.source.texts("orders"))
        assert "not-a-secret" not in (tmp_path / "said").read_text()


def _said(folder: Path, times: int, *states: str) -> bool:
    """Whether so many runs have come so far."""
    runs = (folder / "said").read_text().split("starting Spark")[1:]
    return len(runs) >= times and any(f"\n{state}" in runs[times - 1] for state in states)


FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", home="{home}/home", partitions=2, piece_rows=500)
    .source("postgres", uri="${{SHOP}}", namespace=r"^public\\.", slot="{source}")
    .branch().save("postgres", uri="${{WAREHOUSE}}", create=True)
    .branch().save("tailrace", home="{home}/topics", topic="all")
    .branch(namespace="orders").save("file", path="{home}/state", keep="state")
)
"""
