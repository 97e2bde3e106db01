"""How many changes a second of a PostgreSQL can be followed, and how long after its commit is a change there?"""

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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import quantiles

import psycopg
import pyarrow as pa
from tests.servers.postgres import PASSWORD, Postgres, postgres

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect
from benchmarks.pipeline_copy import PEERS, ROOT, run_sql
from tailrace.pipeline.ingest.commit_log import log_name
from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.java import java_home

RATE, MIDDLE, WORST = Figure("changes/s"), Figure("p50 ms", 0, more=False), Figure("p99 ms", 0, more=False)
PACE = 500
TABLE = "orders (id bigint PRIMARY KEY, v text, sent timestamptz DEFAULT clock_timestamp()"
BACKLOG = """
    CREATE PROCEDURE backlog(first bigint, last bigint) LANGUAGE plpgsql AS $$ BEGIN
        FOR n IN first .. last LOOP
            INSERT INTO orders (id, v) VALUES (n, repeat('x', 200));
            COMMIT;
        END LOOP;
    END $$
"""
PIPELINE = """import tailrace

pipeline = (
    tailrace.pipeline("follow", home="{folder}/home")
    .source("postgres", uri="{source}", namespace=r"^public\\.orders$", slot="{slot}")
    .branch({where}).save("postgres", uri="{into}")
)
"""
LOG, SINK = "tailrace, into the commit log", "tailrace, into a table"
DEBEZIUM = {"Debezium, poll 10 ms": "10", "Debezium, as it comes": "default"}


def question(quick: bool) -> Question:
    """Delay at a steady pace, then a backlog of single-row transactions."""
    seconds, backlog = (5, 5_000) if quick else (20, 100_000)
    load = Load(seconds, backlog)
    return Question(
        name="pipeline_follow",
        title="changes of a PostgreSQL followed a second, and how late",
        note=f"One table, single-row transactions. Delays: after the source's commit, at {PACE} changes/s for "
        f"{seconds} s. Rate: {backlog:,} transactions that were committed while the follower was down, from the first "
        "that arrives to the last. The commit log is durable; a table's delay ends when its merge writes the row; "
        "Debezium's ends when its handler is called, which keeps nothing.",
        sides=[
            Side(LOG, "tailrace run, with a writer that wants none of it", partial(opened, partial(Log, load))),
            Side(SINK, "tailrace run, merged exactly once", partial(opened, partial(Sink, load))),
            *(
                Side(
                    name, f"pydbzengine, poll.interval.ms {poll}", partial(opened, partial(Debezium, load, poll)), True
                )
                for name, poll in DEBEZIUM.items()
            ),
        ],
        figures=[RATE, MIDDLE, WORST],
        base=LOG,
        targets=[
            Target("commit log: ≥ 3 times Debezium's rate", _times(LOG), 3),
            Target("commit log: p50 ≤ 50 ms", lambda results: results.of(LOG, MIDDLE.name), 50, at_most=True),
            Target("table: ≥ 1.5 times Debezium's rate", _times(SINK), 1.5),
            Target("table: p50 ≤ 500 ms", lambda results: results.of(SINK, MIDDLE.name), 500, at_most=True),
        ],
        rounds=1 if quick else 2,
    )


def _times(side: str) -> Callable[[Results], float]:
    return lambda results: results.of(side, RATE.name) / results.best_peer(RATE)


@dataclass(frozen=True)
class Load:
    """How long the steady pace lasts, and how long the backlog is."""

    seconds: int
    backlog: int

    @property
    def paced(self) -> int:
        """The changes of the steady pace."""
        return self.seconds * PACE


@dataclass
class Arrivals:
    """What has arrived: for each group when, how many so far, and how late each was in seconds."""

    groups: list[tuple[float, int, list[float]]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """All so far."""
        return self.groups[-1][1] if self.groups else 0

    def delays(self) -> list[float]:
        """How late each was."""
        return [delay for _, _, delays in self.groups for delay in delays]

    def rate(self) -> float:
        """From the first group to the last, which the first does not count in."""
        (first, already, _), (last, whole, _) = self.groups[0], self.groups[-1]
        return (whole - already) / max(last - first, 1e-9)


@contextlib.contextmanager
def opened(make: Callable[[Postgres, Path], Follower], folder: Path) -> Iterator[Run]:
    """A server of its own for each side, as it comes: with synchronous_commit = off a commit is only sent once the
    server's own writer has made it durable, every 200 ms, which would be the delay of every follower."""
    class_archive.make(java_home())  # else the first run here would have it made beside the second
    with postgres() as server:

        def run() -> Figures:
            scratch = folder / uuid.uuid4().hex
            scratch.mkdir(parents=True)
            return make(server, scratch).figures()

        yield run


class Follower:
    """One program that follows the table of one database."""

    def __init__(self, load: Load, server: Postgres, folder: Path) -> None:
        self.load, self.server, self.folder, self.sent = load, server, folder, 0
        self.name = f"follow_{uuid.uuid4().hex[:8]}"
        self.uri, self.into = server.uri(self.name), server.uri(f"{self.name}_into")
        for name in self.name, f"{self.name}_into":
            run_sql(server.uri(), f"CREATE DATABASE {name}")
        run_sql(self.uri, f"CREATE TABLE {TABLE})")
        run_sql(self.uri, BACKLOG)
        run_sql(self.into, f"CREATE TABLE {TABLE}, arrived timestamptz DEFAULT clock_timestamp())")

    def command(self) -> Sequence[str]:
        """How it is started."""
        raise NotImplementedError

    def arrivals(self, first: int) -> Arrivals:
        """What has arrived, without the first so many."""
        raise NotImplementedError

    def figures(self) -> Figures:
        """The steady pace, and after a stop the backlog."""
        with self.running():
            self.send_slowly()
            paced = self.wait(0, self.load.paced)
        self.sent = self.load.paced
        quickly = f"{self.uri}?options=-csynchronous_commit%3Doff"
        run_sql(quickly, f"CALL backlog({self.load.paced + 1}, {self.load.paced + self.load.backlog})")
        with self.running():
            late = self.wait(self.load.paced, self.load.backlog)
        expect("changes", (paced.count, late.count), (self.load.paced, self.load.backlog))
        delays = quantiles([delay * 1000 for delay in paced.delays()], n=100)
        return {RATE.name: late.rate(), MIDDLE.name: delays[49], WORST.name: delays[98]}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The program, once it follows."""
        with (self.folder / "out.txt").open("w") as out:
            process = subprocess.Popen(self.command(), stdout=out, stderr=out, cwd=ROOT)
            try:
                self.until(self.follows, process)
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
                process.wait()
        self.until(lambda: not self.holds_slot())

    def holds_slot(self) -> bool:
        """Whether somebody reads the database's log."""
        return bool(run_sql(self.uri, "SELECT 1 FROM pg_replication_slots WHERE active"))

    def follows(self) -> bool:
        """Whether what happens from now on is a change to it."""
        return self.holds_slot()

    def until(self, true: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
        """Wait for it."""
        end = time.monotonic() + 300
        while not true():
            if time.monotonic() > end or (process is not None and process.poll() is not None):
                raise RuntimeError(f"{self.name} did not come so far: {(self.folder / 'out.txt').read_text()[-1500:]}")
            time.sleep(0.02)

    def send_slowly(self) -> None:
        """A steady pace."""
        begin = time.monotonic()
        with psycopg.connect(self.uri, autocommit=True) as connection:
            for n in range(self.load.paced):
                time.sleep(max(0.0, begin + n / PACE - time.monotonic()))
                connection.execute("INSERT INTO orders (id, v) VALUES (%s, repeat('x', 200))", [n + 1])

    def wait(self, first: int, count: int) -> Arrivals:
        """Until so many have arrived after the first."""
        self.until(lambda: self.arrivals(first).count >= count)
        return self.arrivals(first)


class Debezium(Follower):
    """The engine, and a handler that counts."""

    def __init__(self, load: Load, poll: str, server: Postgres, folder: Path) -> None:
        super().__init__(load, server, folder)
        self._poll = poll

    def command(self) -> Sequence[str]:
        """The peers' Python."""
        program = str(ROOT / "benchmarks" / "copiers" / "debezium_follow.py")
        place = ["127.0.0.1", str(self.server.port), self.name, PASSWORD]
        return [str(PEERS / "bin" / "python"), program, *place, self.name, self._poll, str(self.folder), str(self.sent)]

    def arrivals(self, first: int) -> Arrivals:
        """What its handler wrote down since it was started, without what it had before and is given again."""
        path, found = self.folder / "arrived.jsonl", Arrivals()
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        for at, count, times in (json.loads(line) for line in lines if line.endswith("\n")):
            found.groups.append((at, count, [at - ms / 1000 for ms in times]))
        return found


class Log(Follower):
    """A pipeline whose only writer wants nothing: looks at the commit log's end every few milliseconds."""

    where = 'namespace=r"^none$"'

    def __init__(self, load: Load, server: Postgres, folder: Path) -> None:
        super().__init__(load, server, folder)
        self._seen: list[tuple[float, int, list[float]]] = []

    def command(self) -> Sequence[str]:
        """`tailrace run`."""
        file = self.folder / "follow.py"
        file.write_text(
            PIPELINE.format(folder=self.folder, source=self.uri, slot=self.name, where=self.where, into=self.into)
        )
        return [str(Path(sys.executable).parent / "tailrace"), "run", str(file)]

    def follows(self) -> bool:
        """Once the copy, of nothing, is over."""
        return "following" in (self.folder / "out.txt").read_text()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The run, and beside it a thread that watches what arrives."""
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(stop,))
        watcher.start()
        try:
            with super().running():
                yield
        finally:
            stop.set()
            watcher.join()

    def _watch(self, stop: threading.Event) -> None:
        with tailrace.open(self.folder / "home") as home:
            while log_name("follow") not in home.topics():
                if stop.wait(0.02):
                    return
            topic = home.topic(log_name("follow"))
            ends = {q: end for q, (_, end) in topic.ends().items()}
            while not stop.wait(0.004):
                now, found = time.time(), {q: end for q, (_, end) in topic.ends().items()}
                if found != ends:
                    self._seen.append((now, sum(found.values()), _delays(topic, ends, found, now)))
                    ends = found

    def arrivals(self, first: int) -> Arrivals:
        """What the watcher saw."""
        return Arrivals([(at, count - first, delays) for at, count, delays in list(self._seen) if count > first])


def _delays(topic: tailrace.Topic, ends: dict[int, int], found: dict[int, int], now: float) -> list[float]:
    """How late the records between two looks are; of many, none is asked for."""
    if sum(found.values()) - sum(ends.values()) > PACE:
        return []
    out: list[float] = []
    for q, end in found.items():
        if end > ends[q]:
            batches = list(topic.read(q, ends[q]))
            stamps = [stamp for batch in batches for stamp in batch.column("timestamp").cast(pa.int64()).to_pylist()]
            out += [now - stamp / 1000 for stamp in stamps[: end - ends[q]]]
    return out


class Sink(Log):
    """The same with a table: its own clock says when a row was written."""

    where = ""

    def arrivals(self, first: int) -> Arrivals:
        """Groups by merge."""
        rows = run_sql(
            self.into,
            "SELECT extract(epoch FROM max(arrived)), count(*), array_agg(extract(epoch FROM arrived - sent)::float8) "
            f"FROM orders WHERE id > {first} GROUP BY date_trunc('milliseconds', arrived) ORDER BY 1",
        )
        begun = [at for at, count, _ in self._seen if count > first]
        out, whole = Arrivals([(begun[0], 0, [])] if begun and rows else []), 0
        for at, count, delays in rows:
            whole += count
            out.groups.append((float(at), whole, list(delays)))
        return out
