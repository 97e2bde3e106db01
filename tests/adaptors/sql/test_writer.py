"""The SQL sink with another dialect than PostgreSQL's."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.rows.rows import make_rows
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.writer import SqlWriter
from tailrace.errors import NotReady, Rejected
from tailrace.log.record import Mode, Op
from tailrace.testing import WriterContract
from tailrace.testing.readercontract import Document
from tests.adaptors.sql.sqlite import CommittingWriter, SqliteDialect, SqliteSink, SqliteWriter

WHO = Who("pipeline", "writer", 1)


class Documents:
    namespace = "documents"

    def __init__(self, kind: type[SqliteWriter], path: Path) -> None:
        self._kind, self._path = kind, str(path)

    def writer(self, **more: bool) -> SqlWriter:
        return self._kind(SqliteSink(path=self._path, **{"create": True, **more}))

    def documents(self) -> list[Document]:
        return [{"id": id, "text": text} for id, text in self.ask('SELECT id, text FROM "main.documents"')]

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(self._path)) as database:
            try:
                return database.execute(sql).fetchall()
            except sqlite3.OperationalError:
                return []


@pytest.fixture(params=[SqliteWriter, CommittingWriter])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Documents:
    return Documents(request.param, tmp_path / "sink.db")


class TestContract(WriterContract):
    @pytest.fixture
    def sink(self, sink: Documents) -> Documents:
        return sink


def rows(columns: dict[str, list[object]], keys: list[str], op: Op = Op.INSERT, open: bool = False) -> pa.RecordBatch:
    return make_rows("documents", pa.RecordBatch.from_pydict(columns), keys, op=op, mode=Mode.SYNC, open=open)


def write(sink: Documents, *batches: pa.RecordBatch, at: int, **more: bool) -> None:
    with contextlib.closing(sink.writer(**more)) as writer:
        writer.finish([writer.stage(batches)], WHO, {"0": at})


def test_staging_tables_do_not_stay(sink: Documents) -> None:
    write(sink, rows({"id": list(range(9000)), "text": ["x" * 20] * 9000}, ["id"]), at=1)
    assert len(sink.documents()) == 9000
    assert sink.ask("SELECT name FROM sqlite_master WHERE name LIKE '%stage%'") == []


def test_columns_are_added_and_a_missing_table_is_told(sink: Documents) -> None:
    with pytest.raises(NotReady, match=r"no table for documents.*set create = true, or: CREATE TABLE"):
        write(sink, rows({"id": [1]}, ["id"]), at=1, create=False)
    write(sink, rows({"id": [1]}, ["id"]), at=1)
    with pytest.raises(NotReady, match=r"has no column text; set alter = true, or: ALTER TABLE"):
        write(sink, rows({"id": [2], "text": ["a"]}, ["id"]), at=2)
    write(sink, rows({"id": [2], "text": ["a"]}, ["id"]), at=2, alter=True)
    assert sorted(sink.documents(), key=str) == [{"id": 1, "text": None}, {"id": 2, "text": "a"}]


@pytest.mark.parametrize("open", [False, True])
def test_a_whole_document_of_an_open_namespace_has_no_other_fields(sink: Documents, open: bool) -> None:
    write(sink, rows({"id": [1, 2], "text": ["a", "b"], "more": ["c", "d"]}, ["id"]), at=1)
    write(sink, rows({"id": [1], "more": ["e"]}, ["id"], open=open), at=2)
    assert sorted(sink.ask('SELECT id, text, more FROM "main.documents"')) == [
        (1, None if open else "a", "e"),
        (2, "b", "d"),
    ]


def test_rows_without_a_key_are_counted(sink: Documents) -> None:
    write(sink, rows({"id": [1, 1, 2], "text": ["a", "a", "b"]}, []), at=1)
    write(sink, rows({"id": [1], "text": ["a"]}, [], Op.DELETE), at=2)
    assert sorted(sink.documents(), key=str) == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]


class IgnoringDialect(SqliteDialect):
    """As MySQL with lower_case_table_names = 1: a table is found under its name in any case."""

    def find(self, connection: SqlConnection, schema: str, name: str) -> str | None:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = %s COLLATE NOCASE"
        row = connection.execute(sql, [f"{schema}.{name}"]).fetchone()
        return row[0] if row else None


class IgnoringWriter(SqliteWriter):
    dialect: ClassVar[Dialect] = IgnoringDialect()


def test_names_that_differ_only_in_case_where_that_is_ignored(tmp_path: Path) -> None:
    sink = Documents(IgnoringWriter, tmp_path / "sink.db")
    columns = pa.record_batch({"id": [1], "text": ["a"]})
    other = make_rows("Documents", columns, ["id"], mode=Mode.SYNC)
    with contextlib.closing(sink.writer()) as writer:
        writer.finish([writer.stage([rows({"id": [1], "text": ["a"]}, ["id"])])], WHO, {"0": 1})
        with pytest.raises(NotReady, match=r"Documents and documents would both be written to"):
            writer.finish([writer.stage([other])], WHO, {"0": 2})
    assert sink.documents() == [{"id": 1, "text": "a"}]


def test_the_refused_row_is_named(sink: Documents) -> None:
    write(sink, rows({"id": [0], "text": ["a"]}, ["id"]), at=1)
    with contextlib.closing(sqlite3.connect(sink._path)) as database:
        database.execute('CREATE UNIQUE INDEX once ON "main.documents" (text)')
    texts = [f"t{n}" for n in range(1, 50)]
    texts[30] = "a"
    with pytest.raises(Rejected, match=r"refuses a row of documents: id 31: UNIQUE constraint failed") as found:
        write(sink, rows({"id": list(range(1, 50)), "text": texts}, ["id"]), at=2)
    assert (found.value.namespace, found.value.id) == ("documents", "31")
    assert len(sink.documents()) == 1


def test_a_dropped_table_is_missed(sink: Documents) -> None:
    write(sink, rows({"id": [1], "text": ["a"]}, ["id"]), at=1)
    with contextlib.closing(sqlite3.connect(sink._path)) as database:
        database.execute('DROP TABLE "main.documents"')
    with contextlib.closing(sink.writer()) as writer:
        assert writer.lost(WHO) == ['the table "main.documents"']
    with pytest.raises(NotReady, match="is gone, or was emptied"):
        write(sink, rows({"id": [2], "text": ["b"]}, ["id"]), at=2)


def test_what_a_batch_wrote_that_fails_at_its_commit_is_not_known_as_written(sink: Documents) -> None:
    """As deferred foreign keys do.  The same writer then writes the parts of the batch."""
    with contextlib.closing(sqlite3.connect(sink._path)) as database:
        database.execute("CREATE TABLE customers (id integer PRIMARY KEY)")
        database.execute(
            'CREATE TABLE "main.orders" (id integer PRIMARY KEY, customer integer REFERENCES customers '
            "DEFERRABLE INITIALLY DEFERRED)"
        )
    good = rows({"id": [1], "text": ["a"]}, ["id"])
    orphan = make_rows("orders", pa.record_batch({"id": [1], "customer": [7]}), ["id"], mode=Mode.SYNC)
    with contextlib.closing(sink.writer()) as writer:
        with pytest.raises(Rejected, match="FOREIGN KEY constraint failed"):
            writer.finish([writer.stage([good, orphan])], WHO, {"0": 2})
        writer.finish([writer.stage([good])], WHO, {"0": 1})
    assert sink.documents() == [{"id": 1, "text": "a"}]
    assert sink.ask('SELECT namespace FROM "tailrace.tables"') == [("documents",)], "it is missed if it is dropped"
