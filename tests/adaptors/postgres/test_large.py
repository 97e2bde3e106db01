"""Large things: transactions that are streamed, a million rows, many columns."""

from __future__ import annotations

import resource
import time

import psycopg
import pytest

from tailrace.adaptors.rows.rows import messages_of
from tailrace.log.record import Op
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


@pytest.fixture
def streaming(source: Place) -> Place:
    """A database whose transactions are streamed as soon as they are not tiny."""
    source.run(f"ALTER DATABASE {source.name} SET logical_decoding_work_mem = '64kB'")
    return source


class TestStreamed:
    def test_parts_that_are_rolled_back(self, streaming: Place, sink: Place) -> None:
        source = streaming
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        source.run("CREATE TABLE small (id int PRIMARY KEY)")
        with Drive(source, sink, ["public.t", "public.small"]) as drive:
            drive.begin()
            drive.copy()
            with psycopg.connect(source.uri) as other, other.transaction():
                _insert(other, 0, 3000)
                with pytest.raises(ZeroDivisionError), other.transaction():
                    _insert(other, 3000, 6000)
                    other.execute("ALTER TABLE t ADD more int")
                    other.execute("UPDATE t SET more = 1")
                    raise ZeroDivisionError
                source.run("INSERT INTO small VALUES (1)")
                with other.transaction():
                    _insert(other, 6000, 9000)
                    with pytest.raises(ZeroDivisionError), other.transaction():
                        other.execute("DELETE FROM t")
                        raise ZeroDivisionError
                other.execute("UPDATE t SET v = 'second' WHERE id % 10 = 0")
                drive.follow()
                assert sink.texts("small") == ["(1)"]
            source.run("INSERT INTO small VALUES (2)")
            drive.follow()
        assert len(sink.texts("t")) == 6000
        assert sink.texts("t") == source.texts("t")
        assert sink.texts("small") == source.texts("small")
        assert _streamed(source)

    def test_wholly_rolled_back(self, streaming: Place, sink: Place) -> None:
        source = streaming
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            with psycopg.connect(source.uri) as other:
                _insert(other, 0, 5000)
                other.execute("ALTER TABLE t ADD more int")
                _insert(other, 5000, 9000)
                assert _streamed(source, drive)
                other.rollback()
            source.run("INSERT INTO t VALUES (1, 'one')")
            drive.follow()
        assert sink.texts("t") == ["(1,one)"]

    def test_schema_changes_inside(self, streaming: Place, sink: Place) -> None:
        source = streaming
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            with source.connection.transaction():
                _insert(source.connection, 0, 2000)
                source.run("ALTER TABLE t ADD more int DEFAULT 7")
                _insert(source.connection, 2000, 4000)
                source.run("TRUNCATE t")
                _insert(source.connection, 4000, 6000)
                source.run("UPDATE t SET more = id")
            drive.follow()
        assert sink.texts("t") == source.texts("t")

    def test_two_at_a_time_come_in_commit_order(self, streaming: Place) -> None:
        source = streaming
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with Drive(source, None, ["public.t"]) as drive:
            drive.begin()
            with psycopg.connect(source.uri) as first, psycopg.connect(source.uri) as second:
                for n in range(0, 3000, 1000):
                    _insert(first, n, n + 1000)
                    _insert(second, 10_000 + n, 10_000 + n + 1000)
                second.commit()
                first.execute("UPDATE t SET v = 'first'")
                first.commit()
            drive.follow()
        ids = [int(m.id) for batch in drive.seen for m in messages_of(batch) if m.op == Op.INSERT]
        assert ids == [*range(10_000, 13_000), *range(3000)]
        stamps = [m.timestamp for batch in drive.seen for m in messages_of(batch)]
        assert stamps == sorted(stamps)


def _insert(connection: psycopg.Connection, first: int, end: int) -> None:
    connection.execute(
        "INSERT INTO t (id, v) SELECT n, repeat('x', 50) FROM generate_series(%s::int, %s::int - 1) n", [first, end]
    )


def _streamed(source: Place, drive: Drive | None = None) -> bool:
    """Whether the server has really streamed, perhaps to somebody who goes on; its statistics come a moment later."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = source.ask("SELECT stream_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = %s", source.name)
        if found == [(True,)]:
            return True
        drive.step() if drive else time.sleep(0.1)
    return False


class TestMany:
    @pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
    def test_one_transaction(self, source18: Place, rows: int) -> None:
        source = source18
        source.run("CREATE TABLE t (id bigint PRIMARY KEY, v text, n numeric(12,2), at timestamptz)")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Drive(source, None, ["public.t"]) as drive:
            drive.begin()
            source.run(
                "INSERT INTO t SELECT n, repeat('x', 150), n / 7.0, now() FROM generate_series(1, %s::int) n", rows
            )
            start = time.perf_counter()
            drive.follow(seconds=240)
            took = time.perf_counter() - start
            got = sum(batch.num_rows for batch in drive.seen)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        print(f"\n{rows:,} rows in one transaction: {took:.1f} s, memory grew by {grown} MiB")
        assert got == rows
        assert grown < 300

    def test_1600_columns(self, source: Place, sink: Place) -> None:
        columns = ", ".join(f"column_{n} {'int' if n % 2 else 'boolean'}" for n in range(1599))
        source.run(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
        source.run("INSERT INTO wide (id, column_0, column_1598) SELECT n, true, false FROM generate_series(1, 30) n")
        source.run(f"INSERT INTO wide SELECT 99, {', '.join(str(n) if n % 2 else 'true' for n in range(1599))}")
        with Drive(source, sink, ["public.wide"]) as drive:
            drive.begin()
            drive.copy()
            source.run("UPDATE wide SET column_7 = id, column_8 = NULL WHERE id > 20")
            source.run("DELETE FROM wide WHERE id < 5")
            drive.follow()
        everything = "SELECT md5(w::text) FROM wide w ORDER BY id"
        assert sink.ask(everything) == source.ask(everything)
        assert len(sink.ask(everything)) == 27

    def test_a_small_piece_of_a_large_table(self, source18: Place) -> None:
        source = source18
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        source.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
        source.run("ANALYZE t")
        reader = source.reader()
        pieces = reader.pieces("public.t", 1000)
        assert 15 <= len(pieces) <= 25
        counts = [sum(batch.num_rows for batch in reader.copy(piece)) for piece in pieces]
        assert sum(counts) == 20000
        assert max(counts) < 1500
        ((plan,),) = source.ask("EXPLAIN (FORMAT JSON) SELECT id FROM t WHERE ctid >= '(10,0)' AND ctid < '(20,0)'")
        assert plan[0]["Plan"]["Node Type"] == "Tid Range Scan"
