"""PostgreSQL to PostgreSQL on Spark, while everything about the source changes: row by row the same in the end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.errors import PositionLost
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.run.runner import Runner
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place, assert_same
from tests.adaptors.postgres.workload import SETUP, TABLES, Workload
from tests.conftest import started
from tests.pipeline.runs import caught_up, going, until
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module", params=["18", "15"])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    binaries = servers.debian if request.param == "15" else servers.embedded
    with started(f"PostgreSQL {request.param}", lambda: servers.postgres(binaries(), settings=FAST)) as made:
        yield made


@pytest.fixture
def ends(server: Postgres) -> Iterator[tuple[Place, Place]]:
    name = f"shop_{random.randrange(1 << 30)}"
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        for kind in ("source", "sink"):
            admin.execute(f"CREATE DATABASE {name}_{kind} TEMPLATE template0")
    with Place(server, f"{name}_source") as source, Place(server, f"{name}_sink") as sink:
        yield source, sink


def test_everything_changes_while_it_is_copied_and_followed(
    spark: SparkSession, ends: tuple[Place, Place], tmp_path: Path
) -> None:
    source, sink = ends
    source.run(SETUP)
    made = (
        tailrace.pipeline("shop", home=tmp_path / "home", partitions=3, piece_rows=300)
        .source("postgres", uri=source.uri, namespace=r"^public\.", slot=source.name)
        .save("postgres", uri=sink.uri, create=True, alter=True)
        .definition()
    )
    with going(made, spark) as runner:
        with Workload(source, 3) as work:
            until(lambda: work.done > 100 and runner.status.state == "following")
            source.run("CREATE TABLE late (id int PRIMARY KEY, v text)")
            source.run("INSERT INTO late SELECT n, 'copied' FROM generate_series(1, 500) n")
            until(lambda: "public.late" in runner.status.sources)
            source.run("UPDATE late SET v = 'changed' WHERE id % 7 = 0")
            done = work.done
            until(lambda: work.done > done + 50)
        until(lambda: caught_up(runner))
    Runner(made, spark).run(once=True)
    for table in (*TABLES, "late"):
        assert_same(source, sink, table)


def test_what_no_log_says_of_altered_rows_comes_by_itself(
    spark: SparkSession, ends: tuple[Place, Place], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, sink = ends
    source.run("CREATE TABLE t (id int PRIMARY KEY, a text, n int)")
    source.run("INSERT INTO t SELECT n, 'old', n FROM generate_series(1, 1000) n")
    made = (
        tailrace.pipeline("shop", home=tmp_path / "home", partitions=3, piece_rows=300)
        .source("postgres", uri=source.uri, slot=source.name, discover=0.5)
        .save("postgres", uri=sink.uri, create=True, alter=True)
        .definition()
    )

    def same() -> bool:
        columns = ", ".join(source.columns("t"))
        return sink.texts("t", columns) == source.texts("t", columns)

    Runner(made, spark).run(once=True)
    assert not caplog.messages
    source.run("ALTER TABLE t RENAME a TO b")
    Runner(made, spark).run(once=True)
    assert same()
    assert caplog.messages == ["public.t: altered at the source in a way that no log tells; copied again"]
    with going(made, spark) as runner:
        until(lambda: runner.status.state == "following")
        source.run("ALTER TABLE t ADD more float8 DEFAULT random()")
        until(lambda: runner.status.state == "copying")
        until(lambda: runner.status.sources["public.t"].copied == 1000 and caught_up(runner))
        assert (runner.status.sources["public.t"].phase, runner.status.state) == ("sync", "following")
    assert same()


def test_after_a_slot_is_lost_the_advice_leads_to_what_the_source_has(
    spark: SparkSession, ends: tuple[Place, Place], tmp_path: Path
) -> None:
    source, sink = ends
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")

    def pipeline(name: str) -> Definition:
        slot = f"{name}_{source.name}"
        begun = tailrace.pipeline(name, home=tmp_path / "home").source("postgres", uri=source.uri, slot=slot)
        return begun.save("postgres", uri=sink.uri, create=True).definition()

    Runner(pipeline("shop"), spark).run(once=True)
    held = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    until(lambda: source.ask(held, f"shop_{source.name}") == [(False,)])
    source.run(f"SELECT pg_drop_replication_slot('shop_{source.name}')")
    source.run("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (4, 'd')")
    with pytest.raises(PositionLost, match=r"is gone.*afresh: give the pipeline another name, and empty its sinks"):
        Runner(pipeline("shop"), spark).run(once=True)
    assert sink.texts("t") == ["(1,a)", "(2,b)", "(3,c)"]
    sink.run("TRUNCATE t")
    Runner(pipeline("again"), spark).run(once=True)
    assert sink.texts("t") == source.texts("t") == ["(1,a)", "(3,c)", "(4,d)"]
