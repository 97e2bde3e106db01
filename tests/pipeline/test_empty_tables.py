"""Tables without rows: every sink that has tables gets them, too, and nothing else is disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.pipeline.functions import each, rename
from tailrace.pipeline.run.runner import Runner
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.pipeline.runs import going, until
from tests.servers import postgres as servers

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module")
def ends() -> Iterator[tuple[Place, Place]]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as server:
        with psycopg.connect(server.uri(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE sink TEMPLATE template0")
        with Place(server, "postgres") as source, Place(server, "sink") as sink:
            yield source, sink


def columns(place: Place, table: str) -> list[tuple[str, str]]:
    sql = """SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
             WHERE attrelid = to_regclass(%s) AND attnum > 0"""
    return place.ask(sql, table)


def test_tables_without_rows_come_into_every_sink(
    spark: SparkSession, ends: tuple[Place, Place], tmp_path: Path
) -> None:
    source, sink = ends
    source.run("CREATE TABLE nothing (id int PRIMARY KEY, v numeric(6,2), j jsonb); CREATE TABLE keyless (a int)")
    source.run("CREATE TABLE arrays (id int PRIMARY KEY, us uuid[], js jsonb[])")
    source.run("ALTER TABLE keyless REPLICA IDENTITY FULL; CREATE TABLE full_one (id int PRIMARY KEY)")
    source.run("INSERT INTO full_one VALUES (1)")
    made = (
        tailrace.pipeline("shop", home=tmp_path / "home", partitions=2)
        .source("postgres", uri=source.uri, slot="empty_slot", namespace=r"^public\.", discover=0.2)
        .branch()
        .save("postgres", uri=sink.uri, create=True, name="tables")
        .branch()
        .transform(rename(v="w"))
        .save("file", path=str(tmp_path / "state"), keep="state", name="state", every=0.0)
        .branch()
        .save("file", path=str(tmp_path / "changes"), name="changes")
        .branch()
        .save("tailrace", home=str(tmp_path / "topics"), name="topics")
        .branch(namespace=r"\.nothing$")
        .transform(each(lambda message: message))
        .save("postgres", uri=sink.uri, schema="own", create=True, name="own")
        .definition()
    )
    Runner(made, spark).run(once=True)
    for table in ("nothing", "keyless", "full_one", "arrays"):
        assert columns(sink, table) == columns(source, table) != []
    assert sink.texts("nothing") == sink.texts("keyless") == []
    state = pq.read_table(tmp_path / "state" / "public.nothing")
    assert (state.num_rows, state.schema.names) == (0, ["id", "w", "j"])
    assert state.schema.field("w").type == pa.decimal128(6, 2)
    assert pq.read_table(tmp_path / "state" / "public.arrays").schema.names == ["id", "us", "js"]
    assert not (tmp_path / "state" / "public.keyless").exists()
    assert not (tmp_path / "changes" / "public.nothing").exists()
    with tailrace.open(tmp_path / "topics") as home:
        assert set(home.topics()) == {f"public-{name}" for name in ("nothing", "keyless", "full_one", "arrays")}
        assert list(home.topic("public-nothing").records()) == []
    assert columns(sink, "own.nothing") == []  # what the function makes of a row nobody knows yet

    with going(made, spark) as runner:
        until(lambda: runner.status.state == "following")
        source.run("CREATE TABLE late (id int PRIMARY KEY, v text)")
        until(lambda: columns(sink, "late") != [])
        source.run("INSERT INTO nothing VALUES (1, 1.5, '{}'); INSERT INTO late VALUES (1, 'a')")
        until(lambda: sink.texts("late") == ["(1,a)"])
        until(lambda: columns(sink, "own.nothing") != [])  # this writer makes its table with the first row
        until(lambda: sink.texts("own.nothing") == ["(1,1.50,{})"])
    assert sink.texts("nothing") == ["(1,1.50,{})"]
    assert columns(sink, "late") == columns(source, "late")
