"""Planning the copy of many tables: a few queries for all of them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tailrace.adaptors.postgres import connection_pool
from tailrace.adaptors.postgres.database import Database
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server
TABLES = 40


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each connection for SQL that is opened."""
    found: list[str] = []
    real = Database.open

    def counted(self: Database) -> psycopg.Connection[Any]:
        found.append("opened")
        return real(self)

    connection_pool.forget()
    monkeypatch.setattr(Database, "open", counted)
    return found


def made(source: Place) -> None:
    for n in range(TABLES):
        source.run(f"CREATE TABLE t{n} (id int PRIMARY KEY); INSERT INTO t{n} VALUES (1), (2)")
    source.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    source.run("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9); INSERT INTO p VALUES (1)")


def test_many_tables_are_planned_and_copied_over_a_few_connections(source18: Place, opened: list[str]) -> None:
    made(source18)
    reader = source18.reader()
    names = [namespace.name for namespace in reader.namespaces()]
    reader.begin(names)
    opened.clear()
    pieces = [piece for name in reader.namespaces() for piece in reader.pieces(name.name, 100)]
    assert len(pieces) == len(names) == TABLES + 1
    assert len(opened) == 2, "one to list them, one to plan them"
    opened.clear()
    rows = sum(batch.num_rows for piece in pieces for batch in source18.reader().copy(piece))
    assert rows == 2 * TABLES + 1
    assert len(opened) == 1


def test_one_that_is_written_to_and_one_that_is_not_published_are_looked_at_by_themselves(
    source18: Place, opened: list[str]
) -> None:
    made(source18)
    reader = source18.reader()
    reader.begin([namespace.name for namespace in reader.namespaces()])
    source18.run("CREATE TABLE later (id int PRIMARY KEY)")
    with psycopg.connect(source18.uri) as writing:
        writing.execute("INSERT INTO t3 VALUES (9); INSERT INTO p VALUES (2)")
        names = [namespace.name for namespace in reader.namespaces()]
        opened.clear()
        for name in names:
            assert reader.pieces(name, 100)
        assert len(opened) == 1 + 3
        sql = "SELECT count(*) FROM pg_publication_tables WHERE pubname = %s"
        assert source18.ask(sql, source18.name) == [(TABLES + 2,)]


def test_one_without_columns_is_told_of(source18: Place, caplog: pytest.LogCaptureFixture) -> None:
    source18.run("CREATE TABLE t (); INSERT INTO t DEFAULT VALUES")
    reader = source18.reader(identity="full")
    reader.begin(["public.t"])
    reader.namespaces()
    (piece,) = reader.pieces("public.t", 100)
    assert list(reader.copy(piece)) == []
    assert "public.t has no columns" in caplog.text


def test_a_sample_of_a_table_that_is_not_published_changes_nothing(source18: Place) -> None:
    """`tailrace test` says that nothing was written, also for a pipeline that has run."""
    source18.run("CREATE TABLE t (id int PRIMARY KEY)")
    reader = source18.reader(identity="full")
    reader.begin(["public.t"])
    source18.run("CREATE TABLE bare (v int); INSERT INTO bare VALUES (1), (2)")
    source18.run("CREATE TABLE p (id int) PARTITION BY RANGE (id)")
    source18.run("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9); INSERT INTO p VALUES (1)")
    for name, rows in (("public.bare", 2), ("public.p", 1), ("public.t", 0)):
        assert sum(batch.num_rows for batch in source18.reader(identity="full").sample(name, 1000)) == rows
    sql = "SELECT tablename FROM pg_publication_tables WHERE pubname = %s"
    assert source18.ask(sql, source18.name) == [("t",)]
    assert source18.ask("SELECT relreplident::text FROM pg_class WHERE relname = 'bare'") == [("d",)]
