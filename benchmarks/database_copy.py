"""How many rows a second are copied out of a MySQL or a MongoDB, into a table of PostgreSQL and into Parquet?"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import glob
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pymysql
from bson import Decimal128, Int64
from tests.servers.mongodb import Mongo, mongod
from tests.servers.mysql import PASSWORD, MySQL, mysql
from tests.servers.postgres import Postgres, postgres
from tests.servers.process import HOST

from benchmarks.harness import Figures, Question, Run, Side, expect, timed
from benchmarks.pipeline_copy import (
    DLT,
    INTO,
    OURS,
    PEERS,
    RATE,
    ROOT,
    SLING,
    START,
    WHOLE,
    Job,
    at_least,
    count,
    execute,
    run_sql,
)
from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.java import java_home

TABLE = "(id bigint PRIMARY KEY, customer int, total decimal(12,2), at datetime(6), paid boolean, note text)"
NUMBERS = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
ROWS = (
    "SELECT i, i % 5000, (i % 100000) / 7.0, TIMESTAMP '2026-01-01 00:00:00' + INTERVAL i SECOND, i % 3 = 0, "
    "CONCAT(REPEAT('x', 140), i) FROM n"
)
EMPTY_ROWS = 1
"""The rows of the table that stands for an empty one: some programs fail where there is none."""
DOCUMENTS_AT_ONCE = 10_000
PIPELINE = """import tailrace

pipeline = (
    tailrace.pipeline("copy", home="{folder}/home")
    .source({source}, namespace=r"^{database}\\.items$")
    .branch().save({sink})
)
"""


class Source:
    """A server with two databases, whose `items` are many (`source_full`) or hardly any (`source_empty`)."""

    kind: str
    settings: str = ""
    """More settings of the pipeline's source."""

    def uri(self, database: str) -> str:
        """Where one of its databases is."""
        raise NotImplementedError

    def fill(self, database: str, rows: int) -> None:
        """Make a database with so many items."""
        raise NotImplementedError


@dataclass(frozen=True)
class MySQLSource(Source):
    """A MySQL 8.0."""

    server: MySQL
    kind = "mysql"

    def uri(self, database: str) -> str:
        """Where one of its databases is."""
        return self.server.uri(database)

    def fill(self, database: str, rows: int) -> None:
        """Make a database with a table of so many rows."""
        with contextlib.closing(connect(self.server)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION cte_max_recursion_depth = {rows + 1}")
            cursor.execute(f"CREATE DATABASE {database}")
            cursor.execute(f"CREATE TABLE {database}.items {TABLE}")
            cursor.execute(f"INSERT INTO {database}.items {NUMBERS.format(rows=rows)} {ROWS}")
            cursor.execute(f"ANALYZE TABLE {database}.items")


@dataclass(frozen=True)
class MongoSource(Source):
    """A MongoDB 6.0, a replica set of one member."""

    server: Mongo
    kind = "mongodb"
    settings = ', shape="columns"'

    def uri(self, database: str) -> str:
        """Where one of its databases is."""
        return self.server.uri(database)

    def fill(self, database: str, rows: int) -> None:
        """Make a database with a collection of so many documents."""
        with self.server.client() as client:
            for first in range(1, rows + 1, DOCUMENTS_AT_ONCE):
                some = range(first, min(first + DOCUMENTS_AT_ONCE, rows + 1))
                client[database]["items"].insert_many(map(_document, some), ordered=False)


def _document(i: int) -> dict[str, Any]:
    at = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=i)
    total = Decimal128(f"{(i % 100000) / 7:.2f}")
    return {
        "_id": Int64(i), "customer": i % 5000, "total": total, "at": at, "paid": i % 3 == 0, "note": "x" * 140 + str(i),
    }  # fmt: skip


def connect(server: MySQL, database: str | None = None) -> Any:
    """A connection of MySQL's root."""
    return pymysql.connect(
        host=HOST, port=server.port, user="root", password=PASSWORD, database=database, autocommit=True
    )


# -- the programs
def ours(source: Source, job: Job) -> Sequence[str]:
    """A pipeline, run once: through the durable log, on Spark."""
    sink = f'"postgres", uri="{job.into}", create=True' if job.to_table else f'"file", path="{job.into}"'
    sink += "" if job.to_table else ', format="parquet"'
    given = f'"{source.kind}", uri="{source.uri(job.source)}"{source.settings}'
    text = PIPELINE.format(folder=job.scratch, source=given, database=job.source, sink=sink)
    (job.scratch / "copied.py").write_text(text)
    return [str(Path(sys.executable).parent / "tailrace"), "run", str(job.scratch / "copied.py"), "--once"]


def sling(source: Source, job: Job) -> Sequence[str]:
    """Its bulk copy."""
    found = glob.glob(f"{PEERS}/lib/python*/site-packages/sling_linux_amd64/bin/sling-linux-amd64")
    into = ["--tgt-conn", job.into + "?sslmode=disable", "--tgt-object", "public.items"]
    if not job.to_table:
        into = ["--tgt-object", f"file://{job.into}/items.parquet"]
    given = ["--src-conn", source.uri(job.source), "--src-stream", f"{job.source}.items"]
    return [found[0], "run", *given, *into, "--mode", "full-refresh"]


def dlt(source: Source, job: Job) -> Sequence[str]:
    """Its Arrow backend for SQL; a resource over pymongo's `find` for documents."""
    program = ROOT / "benchmarks" / "copiers" / "dlt_copy.py"
    return [str(PEERS / "bin" / "python"), str(program), source.uri(job.source), job.into, str(job.scratch / "dlt")]


Copier = Callable[[Source, Job], Sequence[str]]
COPIERS: Mapping[str, Mapping[str, tuple[Copier, str]]] = {
    "mysql": {
        OURS: (ours, "tailrace run --once: every row through the durable log"),
        SLING: (sling, "sling run --mode full-refresh"),
        DLT: (dlt, "sql_table(backend='pyarrow')"),
    },
    "mongodb": {
        OURS: (ours, "tailrace run --once, shape = columns: every document through the durable log"),
        SLING: (sling, "sling run --mode full-refresh: a document is one column of JSON"),
        DLT: (dlt, "a resource over pymongo's find(): dlt has no source of its own for it in the package"),
    },
}
NAMES = {"mysql": "MySQL", "mongodb": "MongoDB"}


def from_mysql(quick: bool) -> Question:
    """One table by three programs, into two kinds of place."""
    return question("mysql", quick)


def from_mongodb(quick: bool) -> Question:
    """One collection by three programs, into two kinds of place."""
    return question("mongodb", quick)


def question(kind: str, quick: bool) -> Question:
    """The same for each kind of source."""
    rows = 200_000 if quick else 1_000_000
    return Question(
        name=f"{kind}_copy",
        title=f"rows copied out of a {NAMES[kind]} a second",
        note=f"{rows:,} rows of 200 bytes, one {NAMES[kind]} and one PostgreSQL for all, each program in a process of "
        "its own. Its start-up is how long the same command takes for a table of one row, and is shown apart. What "
        "such a run does one after the other a full one may do at once, so the rate without start-up flatters who "
        "does: look at both. Only tailrace makes its table with the source's key.",
        sides=[
            Side(f"{name}, into {into}", mode, partial(opened, kind, copier, into, rows), name != OURS)
            for into in INTO
            for name, (copier, mode) in COPIERS[kind].items()
        ],
        figures=[RATE, START, WHOLE],
        base=f"{OURS}, into {INTO[0]}",
        targets=[at_least(peer, into, times) for into in INTO for peer, times in ((SLING, 1.5), (DLT, 2))],
        rounds=1 if quick else 3,
    )


# -- the servers
@cache
def source_of(kind: str, rows: int) -> Source:
    """One for all sides, filled; it ends with this process."""
    class_archive.make(java_home())
    made: Source
    if kind == "mysql":
        made = MySQLSource(_alive.enter_context(mysql()))
    else:
        made = MongoSource(_alive.enter_context(mongod()))
    made.fill("source_full", rows)
    made.fill("source_empty", EMPTY_ROWS)
    return made


@cache
def warehouse() -> Postgres:
    """The PostgreSQL that is copied into; it ends with this process."""
    return _alive.enter_context(postgres())


_alive = contextlib.ExitStack()
atexit.register(_alive.close)


@contextlib.contextmanager
def opened(kind: str, copier: Copier, into: str, rows: int, folder: Path) -> Iterator[Run]:
    """One round copies the table of one row, then the full one."""
    source = source_of(kind, rows)

    def run() -> Figures:
        start = once(source, copier, "source_empty", into, EMPTY_ROWS, folder)
        whole = once(source, copier, "source_full", into, rows, folder)
        return {RATE.name: rows / max(whole - start, 1e-9), START.name: start, WHOLE.name: rows / whole}

    yield run


def once(source: Source, copier: Copier, database: str, into: str, rows: int, folder: Path) -> float:
    """The seconds of one copy into a new place, with its rows counted after it."""
    place, scratch = warehouse(), folder / uuid.uuid4().hex
    scratch.mkdir(parents=True)
    name = f"sink_{uuid.uuid4().hex[:8]}"
    if into == "parquet":
        (target := scratch / "out").mkdir()
        where = str(target)
    else:
        run_sql(place.uri(), f"CREATE DATABASE {name}")
        where = place.uri(name)
    try:
        command = copier(source, Job(database, where, scratch, rows))
        seconds, done = timed(lambda: execute(command))
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        expect("rows copied", count(where, into), rows)
        return seconds
    finally:
        if into != "parquet":
            run_sql(place.uri(), f"DROP DATABASE {name} WITH (FORCE)")
        shutil.rmtree(scratch, ignore_errors=True)
