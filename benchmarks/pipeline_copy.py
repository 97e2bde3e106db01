"""How many rows a second are copied out of a PostgreSQL, into a table and into Parquet?"""

from __future__ import annotations

import atexit
import contextlib
import glob
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
from tests.servers import maven
from tests.servers.postgres import Postgres, postgres

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.java import java_home

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers"
RATE, START, WHOLE = Figure("rows/s"), Figure("start-up s", 1, more=False), Figure("rows/s with start-up")
TABLE = "(id bigint PRIMARY KEY, customer int, total numeric(12,2), at timestamptz, paid bool, note text)"
ROWS = (
    "i, i % 5000, (i % 100000) / 7.0, timestamptz '2026-01-01' + i * interval '1 s', i % 3 = 0, repeat('x', 140) || i"
)
INTO = ("postgresql", "parquet")
KEYED = "postgresql, with its key"
"""A table that is there already, with the source's primary key: the others make theirs without, tailrace with it."""
OURS, SLING, DLT, JDBC = "tailrace", "sling", "dlt", "Spark JDBC"
ALONE = {"SLING_DISABLE_TELEMETRY": "TRUE", "SLING_DUCKDB_COMPUTE": "FALSE", "RUNTIME__DLTHUB_TELEMETRY": "false"}
"""Nobody asks the network for anything."""
PIPELINE = """import tailrace

pipeline = (
    tailrace.pipeline("copy", home="{folder}/home")
    .source("postgres", uri="{source}", namespace=r"^public\\.items$", slot="{slot}")
    .branch().save({sink})
)
"""


@dataclass(frozen=True)
class Job:
    """One copy: from this database into that one, or into this folder; `scratch` is for the program's own files."""

    source: str
    into: str
    scratch: Path
    rows: int

    @property
    def to_table(self) -> bool:
        """Whether it goes into a database."""
        return self.into.startswith("postgresql://")


def ours(job: Job) -> Sequence[str]:
    """A pipeline, run once: through the durable log, on Spark."""
    sink = (
        f'"postgres", uri="{job.into}", create=True' if job.to_table else f'"file", path="{job.into}", format="parquet"'
    )
    text = PIPELINE.format(folder=job.scratch, source=job.source, slot=f"copy_{uuid.uuid4().hex[:8]}", sink=sink)
    (job.scratch / "copied.py").write_text(text)
    return [str(Path(sys.executable).parent / "tailrace"), "run", str(job.scratch / "copied.py"), "--once"]


def sling(job: Job) -> Sequence[str]:
    """Its bulk copy."""
    found = glob.glob(f"{PEERS}/lib/python*/site-packages/sling_linux_amd64/bin/sling-linux-amd64")
    into = ["--tgt-conn", job.into + "?sslmode=disable", "--tgt-object", "public.items"]
    if not job.to_table:
        into = ["--tgt-object", f"file://{job.into}/items.parquet"]
    source = ["--src-conn", job.source + "?sslmode=disable", "--src-stream", "public.items"]
    return [found[0], "run", *source, *into, "--mode", "full-refresh"]


def sling_keyed(job: Job) -> Sequence[str]:
    """The same into a table that is there."""
    return [{"full-refresh": "truncate"}.get(word, word) for word in sling(job)]


def dlt(job: Job) -> Sequence[str]:
    """Its Arrow backend."""
    program = ROOT / "benchmarks" / "copiers" / "dlt_copy.py"
    return [str(PEERS / "bin" / "python"), str(program), job.source, job.into, str(job.scratch / "dlt")]


def jdbc(job: Job) -> Sequence[str]:
    """Spark with PostgreSQL's JDBC driver."""
    jar = next(maven.jars("postgresql-jdbc/42.7.7", "org.postgresql:postgresql:42.7.7").glob("postgresql-*.jar"))
    return [sys.executable, "-m", "benchmarks.copiers.jdbc", job.source, job.into, str(jar), str(job.rows)]


COPIERS: Mapping[str, tuple[Callable[[Job], Sequence[str]], str]] = {
    OURS: (ours, "tailrace run --once: every row through the durable log"),
    SLING: (sling, "sling run --mode full-refresh; Parquet by its own writer, since DuckDB would be downloaded"),
    DLT: (dlt, "sql_table(backend='pyarrow')"),
    JDBC: (jdbc, "format('jdbc') in two tasks by ranges of the key, reWriteBatchedInserts"),
}
INTO_KEYED = {SLING: (sling_keyed, "sling run --mode truncate"), JDBC: (jdbc, "the same, into the table that is there")}


def question(quick: bool) -> Question:
    """One table by four programs, into two kinds of place."""
    rows = 50_000 if quick else 1_000_000
    return Question(
        name="pipeline_copy",
        title="rows copied out of a PostgreSQL a second",
        note=f"{rows:,} rows of 200 bytes, one table, one PostgreSQL for all, each program in a process of its own. "
        "Its start-up is how long the same command takes for an empty table, and is shown apart; it is not the first "
        "on this machine. What an empty run does one after the other a full one may do at once, so the rate without "
        "start-up flatters who does: look at both. Only tailrace makes its table with the source's primary key; what a "
        "key costs the others is shown too, except for dlt, which does not write into tables that it has not made.",
        sides=[
            Side(f"{name}, into {into}", mode, partial(opened, copier, into, rows))
            for into, copiers in ((INTO[0], COPIERS), (KEYED, INTO_KEYED), (INTO[1], COPIERS))
            for name, (copier, mode) in copiers.items()
        ],
        figures=[RATE, START, WHOLE],
        base=f"{OURS}, into {INTO[0]}",
        targets=[at_least(peer, into, times) for into in INTO for peer, times in ((SLING, 1.5), (DLT, 4), (JDBC, 1))],
        rounds=1 if quick else 3,
    )


def at_least(peer: str, into: str, times: float) -> Target:
    """So many times what the peer makes."""

    def ratio(results: Results) -> float:
        return results.of(f"{OURS}, into {into}", RATE.name) / results.of(f"{peer}, into {into}", RATE.name)

    return Target(f"into {into}: ≥ {times:g} times {peer}", ratio, times)


@cache
def server(rows: int) -> Postgres:
    """One for all sides, with a full and an empty database to copy from; it ends with this process."""
    class_archive.make(java_home())
    made = _alive.enter_context(postgres())
    for name, count in ("full", rows), ("empty", 0):
        run_sql(made.uri(), f"CREATE DATABASE source_{name}")
        with psycopg.connect(made.uri(f"source_{name}"), autocommit=True) as connection:
            connection.execute(f"CREATE TABLE items {TABLE}")
            connection.execute(f"INSERT INTO items SELECT {ROWS} FROM generate_series(1, {count}) i")
            connection.execute("VACUUM ANALYZE items")
    return made


_alive = contextlib.ExitStack()
atexit.register(_alive.close)


def run_sql(uri: str, sql: str) -> list[tuple[Any, ...]]:
    """One statement, and what it gives."""
    with psycopg.connect(uri, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def opened(copier: Callable[[Job], Sequence[str]], into: str, rows: int, folder: Path) -> Iterator[Run]:
    """One round copies the empty table, then the full one."""
    place = server(rows)

    def run() -> Figures:
        start = once(copier, place, "empty", into, 0, folder)
        whole = once(copier, place, "full", into, rows, folder)
        return {RATE.name: rows / max(whole - start, 1e-9), START.name: start, WHOLE.name: rows / whole}

    yield run


def once(
    copier: Callable[[Job], Sequence[str]], place: Postgres, source: str, into: str, rows: int, folder: Path
) -> float:
    """The seconds of one copy into a new place, with its rows counted after it."""
    scratch = folder / uuid.uuid4().hex
    scratch.mkdir(parents=True)
    name = f"sink_{uuid.uuid4().hex[:8]}"
    if into == "parquet":
        (target := scratch / "out").mkdir()
        where = str(target)
    else:
        run_sql(place.uri(), f"CREATE DATABASE {name}")
        where = place.uri(name)
    if into == KEYED:
        run_sql(where, f"CREATE TABLE items {TABLE}")
    try:
        command = copier(Job(place.uri(f"source_{source}"), where, scratch, rows))
        seconds, done = timed(lambda: execute(command))
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        if rows:
            expect("rows copied", count(where, into), rows)
        return seconds
    finally:
        if into != "parquet":
            run_sql(place.uri(), f"DROP DATABASE {name} WITH (FORCE)")
        run_sql(place.uri(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        shutil.rmtree(scratch, ignore_errors=True)


def execute(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A program, at its end."""
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **ALONE}, cwd=ROOT)


def count(where: str, into: str) -> int:
    """The rows that are there now."""
    if into == "parquet":
        files = [path for path in glob.glob(f"{where}/**/*.parquet", recursive=True) if "/_" not in path]
        return sum(ds.dataset(file).count_rows() for file in files)
    tables = run_sql(where, "SELECT schemaname FROM pg_tables WHERE tablename = 'items'")
    return max(int(run_sql(where, f'SELECT count(*) FROM "{schema}".items')[0][0]) for (schema,) in tables)
