"""Every type of PostgreSQL, from table to table, by copy and by log."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.file.sink.current import current
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.postgres.arrays import elements, texts
from tailrace.adaptors.postgres.types import Type, from_texts, typed
from tailrace.adaptors.rows.rows import columns_of, messages_of
from tailrace.log.record import Mode
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place
from tests.adaptors.postgres.values import BUILT_IN, CATALOG, MADE, SETUP, sample

FORMS = """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
           WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"""


def make(source: Place, types: list[tuple[str, list[str]]]) -> None:
    columns = ", ".join(f"c{n} {type}" for n, (type, _) in enumerate(types))
    source.run(f"CREATE TABLE every (id serial PRIMARY KEY, phase text, {columns})")


def fill(source: Place, types: list[tuple[str, list[str]]], phase: str) -> None:
    """A row for the n-th value of every type, one of nulls, and one more of the first values."""
    for row in range(max(len(values) for _, values in types)):
        given = [values[row] if row < len(values) else None for _, values in types]
        _insert(source, types, phase, given)
    _insert(source, types, phase, [None] * len(types))
    _insert(source, types, phase, [values[0] for _, values in types])


def _insert(source: Place, types: list[tuple[str, list[str]]], phase: str, given: list[str | None]) -> None:
    casts = ", ".join(f"%s::text::{type}" for type, _ in types)
    source.run(f"INSERT INTO every SELECT nextval('every_id_seq'), %s, {casts}", phase, *given)


@pytest.mark.server
class TestRoundTrip:
    def test_built_in_types(self, source: Place, sink: Place) -> None:
        make(source, BUILT_IN)
        fill(source, BUILT_IN, "copy")
        with Drive(source, sink, ["public.every"]) as drive:
            drive.begin()
            drive.copy()
            fill(source, BUILT_IN, "sync")
            drive.follow()
        assert len(source.texts("every")) == 18
        assert sink.texts("every") == source.texts("every")
        assert sink.ask(FORMS, "public.every") == source.ask(FORMS, "public.every")

    def test_every_type_of_the_catalog(self, source: Place, sink: Place, tmp_path: Path) -> None:
        """Into PostgreSQL, where each value has the same text, and into Parquet."""
        found = source.ask(CATALOG)
        assert len(found) > 150
        by_type = {type: name for type, _, _, name in found}
        values = [
            f"ARRAY[{sample(of, by_type[of])}]::{type}" if array else sample(type, name)
            for type, array, of, name in found
        ]
        assert sum(value.startswith("NULL") for value in values) <= 7
        columns = ", ".join(f"c{n} {type}" for n, (type, *_) in enumerate(found))
        source.run(f"CREATE TABLE every (id serial PRIMARY KEY, phase text, {columns})")
        row = f"INSERT INTO every SELECT nextval('every_id_seq'), 'phase', {', '.join(values)}"
        source.run(row)
        source.run("INSERT INTO every (phase) VALUES ('null')")
        with Drive(source, sink, ["public.every"]) as drive:
            drive.begin()
            drive.copy()
            source.run(row)
            source.run("UPDATE every SET phase = 'updated' WHERE id = 1")
            drive.follow()
        assert len(source.texts("every")) == 3
        assert sink.texts("every") == source.texts("every")
        writer = FileWriter(FileSink(path=str(tmp_path), format="parquet"))
        writer.check()
        writer.finish([writer.stage(drive.seen)], Who("p", "w", 1), {"0": 1})
        assert len(current(tmp_path, "public.every")) == 3

    def test_updated_and_deleted_values(self, source: Place, sink: Place) -> None:
        make(source, BUILT_IN)
        fill(source, BUILT_IN, "copy")
        with Drive(source, sink, ["public.every"]) as drive:
            drive.begin()
            drive.copy()
            columns = ", ".join(f"c{n} = o.c{n}" for n in range(len(BUILT_IN)))
            source.run(f"UPDATE every e SET {columns} FROM every o WHERE o.id = 9 - e.id")
            source.run("DELETE FROM every WHERE id = 4")
            drive.follow()
        assert sink.texts("every") == source.texts("every")

    def test_values_are_the_same_by_copy_and_by_log(self, source: Place) -> None:
        make(source, BUILT_IN)
        fill(source, BUILT_IN, "phase")
        with Drive(source, None, ["public.every"]) as drive:
            drive.begin()
            drive.copy()
            source.run("UPDATE every SET phase = phase")
            drive.follow()
        copied = {m.id: m.data for b in drive.seen for m in messages_of(b) if m.mode == Mode.COPY}
        followed = {m.id: m.data for b in drive.seen for m in messages_of(b) if m.mode == Mode.SYNC}
        assert copied.keys() == followed.keys()
        assert [repr(copied[id]) for id in copied] == [repr(followed[id]) for id in copied]
        kinds = {str(columns_of(b).schema.remove_metadata()) for b in drive.seen}
        assert len(kinds) == 1

    def test_made_types_that_the_sink_knows(self, source: Place, sink: Place) -> None:
        source.run(SETUP)
        sink.run(SETUP)
        self._made(source, sink)
        assert sink.ask(FORMS, "public.every") == source.ask(FORMS, "public.every")

    def test_made_types_that_it_does_not(self, source: Place, sink: Place) -> None:
        source.run(SETUP)
        self._made(source, sink)
        kinds = dict(sink.ask(FORMS, "public.every"))
        assert [kinds[f"c{n}"] for n in range(5)] == ["text", "text", "integer", "numeric(7,2)", "text"]

    def _made(self, source: Place, sink: Place) -> None:
        make(source, MADE)
        fill(source, MADE, "copy")
        with Drive(source, sink, ["public.every"]) as drive:
            drive.begin()
            drive.copy()
            fill(source, MADE, "sync")
            drive.follow()
        columns = "id, phase, " + ", ".join(f"c{n}::text" for n in range(len(MADE)))
        assert sink.texts("every", columns) == source.texts("every", columns)

    def test_xml(self, postgres15: Any, source: Place, sink: Place) -> None:
        if source.server.version != 15:
            pytest.skip("the embedded server is built without XML")
        source.run("CREATE TABLE x (id int PRIMARY KEY, x xml)")
        source.run("INSERT INTO x VALUES (1, '<a>b</a>'), (2, XMLPARSE(CONTENT 'text <b/>')), (3, NULL)")
        with Drive(source, sink, ["public.x"]) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO x SELECT id + 10, x FROM x")
            drive.follow()
        assert sink.texts("x") == source.texts("x")
        assert sink.ask(FORMS, "public.x") == source.ask(FORMS, "public.x")


class TestArrow:
    @pytest.mark.parametrize(
        ("type", "text", "value"),
        [
            (Type("integer", kind="int4"), b"7", 7),
            (Type("boolean", kind="bool"), b"f", False),
            (Type("numeric(10,2)", kind="numeric", modifier=655366), b"-1.50", Decimal("-1.50")),
            (Type("numeric", kind="numeric"), b"1.500", "1.500"),
            (Type("date", kind="date"), b"2024-02-29", datetime.date(2024, 2, 29)),
            (Type("time", kind="time"), b"01:02:03.5", datetime.time(1, 2, 3, 500000)),
            (Type("bytea", kind="bytea"), b"\\x00ff", b"\x00\xff"),
            (Type("jsonb", kind="jsonb"), b'{"a": 1}', '{"a": 1}'),
            (Type("uuid", kind="uuid"), b"a0", "a0"),
            (Type("integer[]", kind="_int4", element="int4"), b"{1,NULL}", [1, None]),
            (Type("text[]", kind="_text", element="text"), b'{"a b",NULL}', ["a b", None]),
        ],
    )
    def test_values(self, type: Type, text: bytes, value: Any) -> None:
        array = from_texts(type, [text, None])
        assert array.type == type.arrow
        assert array.to_pylist() == [value, None]

    @pytest.mark.parametrize(
        ("type", "text"),
        [
            (Type("numeric(10,2)", kind="numeric", modifier=655366), "NaN"),
            (Type("timestamp", kind="timestamp"), "infinity"),
            (Type("timestamptz", kind="timestamptz"), "10000-01-01 00:00:00+00"),
            (Type("date", kind="date"), "0044-03-15 BC"),
            (Type("time", kind="time"), "24:00:00"),
            (Type("integer[]", kind="_int4", element="int4"), "{{1},{2}}"),
            (Type("integer[]", kind="_int4", element="int4"), "[0:0]={1}"),
        ],
    )
    def test_what_does_not_fit_stays_text(self, type: Type, text: str) -> None:
        array = typed(type, pa.array([text, None]))
        assert array.type == pa.string()
        assert array.to_pylist() == [text, None]

    def test_fields_say_what_they_are(self) -> None:
        field = Type("public.price", "numeric(7,2)", "numeric", modifier=458758).field("p")
        assert field.metadata == {b"pg": b"public.price", b"pg.base": b"numeric(7,2)"}
        assert field.type == pa.decimal128(7, 2)

    @pytest.mark.parametrize("text", ["{}", "{1}", '{a,NULL,"NULL","a\\"b\\\\c","",x y}', '{"{","}",","}'])
    def test_array_texts_there_and_back(self, text: str) -> None:
        column = pa.array([elements(text), None, []], pa.list_(pa.string()))
        again = [None if t is None else elements(t) for t in texts(column).to_pylist()]
        assert again == column.to_pylist()
