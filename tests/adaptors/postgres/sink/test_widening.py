"""Widening: a column that is wider at the source becomes so in the sink, if nothing is lost."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.postgres.sink.widening import rounds, widens
from tailrace.errors import Rejected
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

WHO = Who("pipeline", "writer", 1)
WIDER = [
    ("smallint", "integer", "30000", "70000"),
    ("integer", "bigint", "7", "5000000000"),
    ("smallint", "bigint", "7", "5000000000"),
    ("real", "double precision", "0.5", "0.1234567890123"),
    ("character varying(3)", "character varying(5)", "abc", "abcde"),
    ("character varying(3)", "text", "abc", "abcde"),
    ("numeric(4,2)", "numeric(6,2)", "12.34", "1234.50"),
    ("numeric(4,2)", "numeric(6,4)", "12.34", "12.3456"),
    ("numeric(4,2)", "numeric", "12.34", "1234.5678"),
    ("integer", "numeric(12,2)", "7", "7.25"),
    ("timestamp(0) without time zone", "timestamp without time zone", "2024-01-02 03:04:05", "2024-01-02 03:04:05.5"),
]
NOT_WIDER = [
    ("bigint", "integer"),
    ("double precision", "real"),
    ("text", "character varying(9)"),
    ("character(3)", "text"),
    ("date", "timestamp without time zone"),
    ("timestamp without time zone", "timestamp with time zone"),
    ("numeric(6,2)", "numeric(6,4)"),
    ("integer", "numeric(9,0)"),
    ("integer", "double precision"),
    ("integer", "text"),
    ("boolean", "integer"),
]


@pytest.mark.parametrize(("now", "wanted"), [*((old, new) for old, new, *_ in WIDER)])
def test_what_is_wider(now: str, wanted: str) -> None:
    assert widens(now, wanted)
    assert not widens(wanted, now)
    assert not widens(now, now)


@pytest.mark.parametrize(("now", "wanted"), [*NOT_WIDER, ("integer", "")])
def test_what_is_not(now: str, wanted: str) -> None:
    assert not widens(now, wanted)


@pytest.mark.parametrize(
    ("here", "source"),
    [("real", "double precision"), ("numeric(6,2)", "numeric(6,4)"), ("date", "timestamp without time zone"),
     ("timestamp without time zone", "timestamp with time zone")],
)  # fmt: skip
def test_what_is_rounded_without_a_word(here: str, source: str) -> None:
    assert rounds(here, source)
    assert not rounds(source, here)


@pytest.mark.parametrize(
    ("here", "source"),
    [("double precision", "bigint"), ("double precision", "numeric"), ("double precision", "numeric(16,2)"),
     ("real", "integer"), ("real", "bigint"), ("real", "numeric(7,2)"), ("numeric(6,2)", "double precision"),
     ("numeric(6,2)", "real"), ("numeric(3,-2)", "integer")],
)  # fmt: skip
def test_binary_fractions_keep_some_digits(here: str, source: str) -> None:
    assert rounds(here, source)


@pytest.mark.parametrize(
    ("here", "source"),
    [("double precision", "integer"), ("double precision", "numeric(15,2)"), ("double precision", "real"),
     ("real", "smallint"), ("real", "numeric(6,2)"), ("real", "text"), ("numeric", "bigint"),
     ("numeric", "double precision")],
)  # fmt: skip
def test_what_keeps_all_digits(here: str, source: str) -> None:
    assert not rounds(here, source)


@pytest.mark.parametrize("source", ["double precision", "numeric(6,1)", "bigint"])
def test_an_integer_refuses_what_it_cannot_hold(source: str) -> None:
    assert not rounds("integer", source)


def types(place: Place) -> list[str]:
    sql = """SELECT format_type(atttypid, atttypmod) FROM pg_attribute
             WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
    return [type for (type,) in place.ask(sql)]


@pytest.mark.server
class TestInASink:
    @pytest.mark.parametrize(("old", "new", "before", "after"), WIDER)
    def test_columns_are_widened(
        self, source18: Place, sink18: Place, old: str, new: str, before: str, after: str
    ) -> None:
        source18.run(f"CREATE TABLE t (id int PRIMARY KEY, v {old}); INSERT INTO t VALUES (1, '{before}')")
        with Drive(source18, sink18, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            source18.run(f"ALTER TABLE t ALTER v TYPE {new}; INSERT INTO t VALUES (2, '{after}')")
            drive.follow()
            source18.run(f"UPDATE t SET v = '{after}' WHERE id = 1")
            drive.follow()
        assert types(sink18) == types(source18) == ["integer", new]
        assert sink18.texts("t") == source18.texts("t")

    def test_the_key_too(self, source18: Place, sink18: Place) -> None:
        source18.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
        with Drive(source18, sink18, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            source18.run("ALTER TABLE t ALTER id TYPE bigint; INSERT INTO t VALUES (5000000000, 'b')")
            drive.follow()
            source18.run("DELETE FROM t WHERE id = 1")
            drive.follow()
        assert types(sink18) == ["bigint", "text"]
        assert sink18.texts("t") == source18.texts("t") == ["(5000000000,b)"]

    def test_without_leave_nothing_is_altered(self, source18: Place, sink18: Place) -> None:
        source18.run("CREATE TABLE t (id int PRIMARY KEY, v bigint); INSERT INTO t VALUES (1, 7)")
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v integer)")
        with Drive(source18, sink18, ["public.t"], writer={"alter": False}) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            assert (types(sink18), sink18.texts("t")) == (["integer", "integer"], ["(1,7)"])
            source18.run("INSERT INTO t VALUES (2, 5000000000)")
            with pytest.raises(Rejected, match=r'ALTER TABLE "public"\."t" ALTER COLUMN "v" TYPE bigint'):
                drive.follow()

    def test_what_a_view_needs_as_it_is_stays(
        self, source18: Place, sink18: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        source18.run("CREATE TABLE t (id int PRIMARY KEY, v bigint); INSERT INTO t VALUES (1, 7)")
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v integer); CREATE VIEW w AS SELECT v FROM t")
        with caplog.at_level(logging.WARNING), contextlib.closing(sink18.writer(alter=True)) as writer:
            for n in range(2):
                writer.finish([writer.stage(list(_copied(source18)))], WHO, {"0": n + 1})
        assert sink18.texts("t") == ["(1,7)"]
        (said,) = [message for message in caplog.messages if "cannot be widened" in message]
        assert 'ALTER COLUMN "v" TYPE bigint' in said

    def test_what_is_rounded_is_said_once(
        self, source18: Place, sink18: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        source18.run("CREATE TABLE t (id int PRIMARY KEY, v numeric(6,4)); INSERT INTO t VALUES (1, 7.1234)")
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v numeric(6,2))")
        with caplog.at_level(logging.WARNING), contextlib.closing(sink18.writer(alter=True)) as writer:
            for n in range(2):
                writer.finish([writer.stage(list(_copied(source18)))], WHO, {"0": n + 1})
        assert sink18.texts("t") == ["(1,7.12)"]
        (said,) = [message for message in caplog.messages if "cut or rounded" in message]
        assert "numeric(6,4) at the source and numeric(6,2) here" in said

    @pytest.mark.parametrize(
        ("kind", "value", "here", "kept"),
        [("bigint", "9007199254740993", "double precision", "9.007199254740992e+15"),
         ("integer", "16777217", "real", "1.6777216e+07"),
         ("numeric", "0.12345678901234567890", "double precision", "0.12345678901234568"),
         ("double precision", "0.12345678901234568", "numeric", "0.12345678901234568"),
         ("real", "0.1", "double precision", "0.1")],
    )  # fmt: skip
    @pytest.mark.parametrize("count", [1, 5000])
    def test_a_number_of_another_type(
        self, source18: Place, sink18: Place, caplog: pytest.LogCaptureFixture,
        kind: str, value: str, here: str, kept: str, count: int,
    ) -> None:  # fmt: skip
        """Few rows go with the statement, many are staged: the value becomes the same."""
        source18.run(f"CREATE TABLE t (v {kind}); INSERT INTO t SELECT {value} FROM generate_series(1, {count})")
        sink18.run(f"CREATE TABLE t (v {here})")
        with caplog.at_level(logging.WARNING), contextlib.closing(sink18.writer()) as writer:
            writer.finish([writer.stage(list(_copied(source18)))], WHO, {"0": 1})
        assert sink18.texts("t") == [f"({kept})"] * count
        assert any(f"{kind} at the source and {here} here" in said for said in caplog.messages) is rounds(here, kind)

    @pytest.mark.parametrize("count", [1, 5000])
    def test_an_integer_refuses_a_fraction(self, source18: Place, sink18: Place, count: int) -> None:
        source18.run(f"CREATE TABLE t (v float8); INSERT INTO t SELECT 1.5 FROM generate_series(1, {count})")
        sink18.run("CREATE TABLE t (v int)")
        with contextlib.closing(sink18.writer()) as writer, pytest.raises(Rejected, match="invalid input syntax"):
            writer.finish([writer.stage(list(_copied(source18)))], WHO, {"0": 1})


def _copied(source: Place) -> Iterator[pa.RecordBatch]:
    with contextlib.closing(source.reader()) as reader:
        for piece in reader.pieces("public.t", 100):
            yield from reader.copy(piece)
