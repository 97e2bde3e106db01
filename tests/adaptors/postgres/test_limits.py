"""What the guide says that a PostgreSQL source does not carry: it ends nothing, and the rest arrives."""

from __future__ import annotations

import contextlib
import time

import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.rows.rows import definition_of, keys_of, messages_of, namespace_of
from tailrace.log.record import Op
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


def test_virtual_columns(source18: Place, sink18: Place) -> None:
    source18.run("CREATE TABLE t (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) VIRTUAL, b text)")
    source18.run("INSERT INTO t (a, b) VALUES (1, 'x')")
    with Drive(source18, sink18, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        source18.run("INSERT INTO t (a, b) VALUES (2, 'y'); UPDATE t SET b = 'z' WHERE a = 1")
        drive.follow()
    assert sink18.texts("t") == source18.texts("t", "a, b")


def test_one_partition_that_is_emptied(source18: Place, sink18: Place) -> None:
    source18.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    for n in range(2):
        source18.run(f"CREATE TABLE t{n} PARTITION OF t FOR VALUES FROM ({n * 10}) TO ({n * 10 + 10})")
    source18.run("INSERT INTO t VALUES (1), (11)")
    with Drive(source18, sink18, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        source18.run("TRUNCATE t0; INSERT INTO t VALUES (2), (12)")
        drive.follow()
        assert sink18.texts("t") == ["(1)", "(11)", "(12)", "(2)"], "the log does not tell of it"
        source18.run("DROP TABLE t1; INSERT INTO t VALUES (3); TRUNCATE t; INSERT INTO t VALUES (4)")
        drive.follow()
    assert sink18.texts("t") == source18.texts("t") == ["(4)"]


def ended(drive: Drive) -> None:
    """Follow until a table has ended."""
    deadline = time.monotonic() + 60
    while not drive.ended:
        assert time.monotonic() < deadline, "nobody missed it"
        drive.step()


def test_a_table_that_is_dropped_has_ended_once_all_of_it_is_read(source18: Place, sink18: Place) -> None:
    source18.run("CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (1)")
    source18.run("CREATE TABLE stays (id int PRIMARY KEY)")
    with Drive(source18, sink18, ["public.gone", "public.stays"]) as drive:
        drive.begin()
        drive.copy()
        drive.step()
        assert drive.ended == []
        source18.run("INSERT INTO gone SELECT n FROM generate_series(2, 3000) n; DROP TABLE gone")
        ended(drive)
        assert drive.ended == ["public.gone"]
        assert sink18.ask("SELECT count(*) FROM gone") == [(3000,)]
        source18.run("INSERT INTO stays VALUES (1)")
        drive.follow()
        source18.run("CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (7)")
        deadline = time.monotonic() + 60
        while sink18.texts("gone") != ["(7)"]:
            assert time.monotonic() < deadline
            drive.step()
        assert drive.ended == ["public.gone"]
        drive.ended.clear()
        drive.follow()  # until its copy is done, which keeps it from being renamed
        source18.run("ALTER TABLE gone RENAME TO elsewhere")
        ended(drive)
        assert drive.ended == ["public.gone"]
    assert sink18.texts("stays") == ["(1)"]


def test_an_empty_table_tells_its_columns(source18: Place) -> None:
    source18.run("CREATE TABLE t (id int PRIMARY KEY, v numeric(6,2), j jsonb, u uuid, a int[], at timestamptz)")
    with contextlib.closing(source18.reader()) as reader:
        (piece,) = reader.pieces("public.t", 100)
        (batch,) = reader.copy(piece)
    assert (batch.num_rows, namespace_of(batch), keys_of(batch)) == (0, "public.t", ("id",))
    (told,) = messages_of(definition_of(batch, 5))
    assert (told.op, told.timestamp) == (Op.NOOP, 5)
    assert set(told.data) == {"id", "v", "j", "u", "a", "at"}


def test_a_table_without_rows_is_made_only_where_that_is_asked_for(source18: Place, sink18: Place) -> None:
    source18.run("CREATE TABLE t (id int PRIMARY KEY, v numeric(6,2))")
    with contextlib.closing(source18.reader()) as reader:
        (piece,) = reader.pieces("public.t", 100)
        (batch,) = reader.copy(piece)
    who = Who("pipeline", "writer", 1)
    for n, create in enumerate([False, True, True]):
        with contextlib.closing(sink18.writer(create=create)) as writer:
            writer.finish([writer.stage([batch])], who, {"0": n})
            assert writer.lost(who) == []
        assert (sink18.ask("SELECT to_regclass('t')::text") == [("t",)]) == create
    assert sink18.texts("t") == []
    sink18.run("DROP TABLE t")
    with contextlib.closing(sink18.writer(create=True)) as writer:
        assert writer.lost(who) == ['the table "public"."t"']
