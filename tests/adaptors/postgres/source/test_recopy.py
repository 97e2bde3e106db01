"""Tables without a key: copied again when they changed meanwhile, or are no longer what was copied."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from tailrace.adaptors.postgres.source.position import Cut
from tailrace.adaptors.postgres.source.transaction import Collected
from tailrace.adaptors.rows.rows import keys_of, ops_of
from tailrace.errors import Unavailable
from tailrace.log.record import Op
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

KEYLESS = "CREATE TABLE t (a int, b text); ALTER TABLE t REPLICA IDENTITY FULL;"


def same(source: Place, sink: Place) -> None:
    columns = ", ".join(source.columns("t"))
    assert sink.texts("t", columns) == source.texts("t", columns)


def copied(drive: Drive, source: Place) -> None:
    """Copy, and follow until no change can be of rows that the copy has."""
    drive.begin()
    drive.copy()
    drive.step()
    source.run("SELECT pg_logical_emit_message(true, 'test', 'on')")
    drive.follow()
    assert "copied" not in drive.position


def emptied(drive: Drive) -> int:
    return sum(ops_of(batch)[0].as_py() == Op.COMMAND for batch in drive.seen)


@pytest.mark.server
class TestAltered:
    @pytest.mark.parametrize(
        "alter",
        [
            "ALTER TABLE t ADD e int",
            "ALTER TABLE t ADD e int DEFAULT 7",
            "ALTER TABLE t DROP b",
            "ALTER TABLE t RENAME b TO c",
            "ALTER TABLE t ALTER a TYPE bigint",
        ],
    )
    def test_while_followed(self, source18: Place, sink18: Place, alter: str) -> None:
        """Rows that came just before have another id after it, and so another way to the sink."""
        source, sink = source18, sink18
        source.run(KEYLESS + "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
        with Drive(source, sink, ["public.t"]) as drive:
            copied(drive, source)
            source.run("INSERT INTO t SELECT n, 'x' FROM generate_series(21, 40) n")
            source.run(alter)
            source.run("UPDATE t SET a = a + 100 WHERE a % 2 = 0; DELETE FROM t WHERE a % 3 = 0")
            drive.follow()
            same(source, sink)
            assert emptied(drive) == 1
            source.run("DELETE FROM t WHERE a % 5 = 0")
            drive.follow()
            assert emptied(drive) == 1
        same(source, sink)

    def test_a_key_is_added(self, source18: Place, sink18: Place) -> None:
        """The log's messages look as before, but rows have another id."""
        source, sink = source18, sink18
        source.run(KEYLESS + "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
        with Drive(source, sink, ["public.t"]) as drive:
            copied(drive, source)
            source.run("INSERT INTO t VALUES (21, 'x')")
            drive.follow()
            source.run("ALTER TABLE t ADD PRIMARY KEY (a)")
            source.run("UPDATE t SET a = a + 100 WHERE a % 2 = 0; DELETE FROM t WHERE a % 3 = 0")
            drive.follow()
            assert emptied(drive) == 1
            assert "shapes" not in drive.position
            source.run("UPDATE t SET b = 'y' WHERE a > 100")
            drive.follow()
        same(source, sink)
        assert keys_of(drive.seen[-1]) == ("a",)

    def test_while_nobody_followed(self, source: Place, sink: Place) -> None:
        source.run(KEYLESS + "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
        with Drive(source, sink, ["public.t"]) as drive:
            copied(drive, source)
            drive.stop()
            source.run("ALTER TABLE t ADD e int DEFAULT 7")
            source.run("DELETE FROM t WHERE a < 10")
            drive.follow()
            same(source, sink)
            drive.stop()
            source.run("DELETE FROM t WHERE a < 15")
            drive.follow()
            assert emptied(drive) == 1
        same(source, sink)

    def test_a_run_that_only_catches_up_goes_on_with_it(self, source: Place, sink: Place) -> None:
        source.run(KEYLESS + "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
        with Drive(source, sink, ["public.t"]) as drive:
            copied(drive, source)
            source.run("ALTER TABLE t ADD e int DEFAULT 7")
            source.run("DELETE FROM t WHERE a < 10")
            while not drive.position.get("recopy"):
                drive.step()
            drive.catch_up()
        same(source, sink)

    def test_not_altered(self, source: Place, sink: Place) -> None:
        """What the catalog says of a table's rows is what the log says."""
        source.run("""
            CREATE DOMAIN price AS numeric(7,2); CREATE TYPE mood AS ENUM ('sad');
            CREATE TABLE t (a int, gone int, b varchar(9), c price, m mood[],
                            twice int GENERATED ALWAYS AS (a * 2) STORED) PARTITION BY RANGE (a);
            CREATE TABLE t_1 (c price, a int, b varchar(9), gone int, m mood[],
                              twice int GENERATED ALWAYS AS (a * 2) STORED);
            ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES FROM (0) TO (50);
            ALTER TABLE t DROP gone;
            INSERT INTO t (a, b, c, m) SELECT n, 'x', n, '{sad}' FROM generate_series(1, 20) n""")
        with Drive(source, sink, ["public.t"], reader={"identity": "full"}) as drive:
            copied(drive, source)
            for n in range(3):
                source.run(f"ANALYZE t; DELETE FROM t WHERE a = {n + 1}")
                drive.follow()
                drive.stop()
            assert emptied(drive) == 0
            assert set(drive.position["shapes"]) == {"public.t"}
        assert sink.ask("SELECT count(*), sum(c) FROM t") == source.ask("SELECT count(*), sum(c) FROM t")

    def test_one_that_appeared(self, source18: Place, sink18: Place) -> None:
        source, sink = source18, sink18
        with Drive(source, sink, []) as drive:
            drive.begin()
            source.run(KEYLESS + "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
            while not drive.appeared:
                drive.step()
            source.run("ALTER TABLE t ADD e int DEFAULT 7; DELETE FROM t WHERE a < 10")
            drive.follow()
        same(source, sink)


@pytest.mark.server
class TestLock:
    def test_somebody_is_altering_it(self, source18: Place, sink18: Place) -> None:
        """A table that is rewritten is empty to snapshots from before."""
        source, sink = source18, sink18
        source.run(KEYLESS)
        with Drive(source, sink, ["public.t"]) as drive, psycopg.connect(source.uri) as other:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
            other.execute("ALTER TABLE t ALTER a TYPE bigint")
            threading.Thread(target=_commit_once_waited_for, args=(source.uri, other)).start()
            drive.follow()
        assert len(sink.texts("t")) == 20
        same(source, sink)

    def test_for_too_long(self, source18: Place) -> None:
        source = source18
        source.run(KEYLESS)
        with (
            Drive(source, None, ["public.t"], reader={"patience": 0.1}) as drive,
            psycopg.connect(source.uri) as other,
        ):
            drive.begin()
            source.run("INSERT INTO t VALUES (1, 'x')")
            other.execute("LOCK TABLE t")
            with pytest.raises(Unavailable, match=r"copying public\.t again: .*lock timeout"):
                drive.follow()
            other.rollback()
            drive.stop()
            drive.follow()
            assert sum(batch.num_rows for batch in drive.seen) - emptied(drive) == 1

    def test_dropped_meanwhile(self, source18: Place) -> None:
        source = source18
        source.run(KEYLESS + "CREATE TABLE u (id int PRIMARY KEY)")
        with Drive(source, None, ["public.t", "public.u"]) as drive:
            drive.begin()
            source.run("INSERT INTO t VALUES (1, 'x'); DROP TABLE t; INSERT INTO u VALUES (1)")
            drive.follow()
            assert sum(batch.num_rows for batch in drive.seen) - emptied(drive) == 1


def _commit_once_waited_for(uri: str, other: psycopg.Connection) -> None:
    sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass::oid"
    with psycopg.connect(uri, autocommit=True) as watching:
        deadline = time.monotonic() + 30
        while watching.execute(sql).fetchone() == (0,) and time.monotonic() < deadline:
            time.sleep(0.02)
    other.commit()


class TestSkipping:
    def test_all_that_is_skipped_must_be_seen(self) -> None:
        """Also what came after the copies, once the table is to be copied again."""
        collected = Collected(lambda _: None, lambda *_: [], max_rows=10, max_bytes=1000)
        collected.copied = 100
        found = []
        for lsn, xid in ((50, 1), (150, 2)):
            collected.begin(lsn, 0, xid)
            found.append(collected.skips("t"))
        assert found == [True, True]
        assert collected.unsettled == {"t": {1, 2}}

    def test_other_rows_than_were_copied(self) -> None:
        collected = Collected(lambda _: None, lambda *_: [], max_rows=10, max_bytes=1000)
        collected.shapes, collected.cuts = {"t": "new", "u": "old"}, {"t": Cut("10:10:", 0)}
        for xid, namespace, shape, unsettled in (
            (9, "t", "old", set()),  # told late: the copy has it
            (11, "t", "new", set()),
            (11, "u", "old", set()),
            (12, "u", "new", {12}),
            (13, "v", "any", {13}),
            (14, "w", "", set()),
        ):
            collected.begin(1000, 0, xid)
            collected.watches(namespace, shape)
            assert collected.unsettled.get(namespace, set()) == unsettled
