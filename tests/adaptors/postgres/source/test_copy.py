"""Copying, and what happens meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import psycopg
import pyarrow as pa
import pytest

from tailrace.adaptors.postgres.catalog import Leaf
from tailrace.adaptors.postgres.source import copy as copying
from tailrace.adaptors.postgres.source.copy import cut
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import Unavailable
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place, assert_same
from tests.adaptors.postgres.workload import SETUP, TABLES, Workload


class TestPieces:
    def test_an_empty_table_is_one_piece(self) -> None:
        assert cut([Leaf(7, "s", "t", 0, 0)], 100) == [([(7, 0, None)], 0)]

    def test_no_partitions_at_all_are_one_piece(self) -> None:
        assert cut([], 100) == [([], 0)]

    def test_a_large_one_is_cut_into_blocks(self) -> None:
        parts = [part for some, _ in cut([Leaf(7, "s", "t", 10, 350)], 100) for part in some]
        assert parts == [(7, 0, 2), (7, 2, 5), (7, 5, 7), (7, 7, None)]

    def test_never_more_pieces_than_blocks(self) -> None:
        assert len(cut([Leaf(7, "s", "t", 2, 1000)], 1)) == 2

    def test_small_partitions_share_a_piece(self) -> None:
        leaves = [Leaf(n, "s", f"p{n}", 1, 40) for n in range(5)]
        assert [len(some) for some, _ in cut(leaves, 100)] == [2, 2, 1]


@pytest.mark.server
class TestMeanwhile:
    @pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 20))])
    def test_everything_changes(self, source: Place, sink: Place, seed: int) -> None:
        source.run(SETUP)
        with Drive(source, sink, [f"public.{t}" for t in TABLES], reader={"batch_rows": 50}) as drive:
            with Workload(source, seed) as work:
                drive.begin()
                drive.copy(rows=200)
                for _ in range(3):
                    end = time.monotonic() + 0.7
                    while time.monotonic() < end:
                        drive.step()
                    drive.stop()
            drive.catch_up(seconds=120)
        assert work.done > 50
        for table in TABLES:
            assert_same(source, sink, table)

    def test_a_row_that_moves_between_pieces(self, source: Place, sink: Place) -> None:
        """No piece has it, and its change lacks a large value: that is read from the table."""
        source.run("CREATE TABLE t (id int PRIMARY KEY, v int, pad text, big text)")
        source.run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL, ALTER pad SET STORAGE PLAIN")
        source.run("INSERT INTO t SELECT n, 0, repeat('p', 1500), repeat('b', 9000) FROM generate_series(1, 40) n")
        source.run("ANALYZE t")
        reader = source.reader()
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            first, second = reader.pieces("public.t", 20)
            rows = list(reader.copy(first))
            source.run("DELETE FROM t WHERE id <= 8")
            source.run("VACUUM t")
            source.run("UPDATE t SET v = 1 WHERE id > 36")
            moved = source.ask(
                "SELECT id FROM t WHERE v = 1 AND ctid < %s::text::tid", f"({second.bounds['parts'][0][1]},0)"
            )
            assert moved
            rows += list(reader.copy(second))
            assert not {n for (n,) in moved} & {m.data["id"] for batch in rows for m in messages_of(batch)}
            drive._write(rows)
            drive.follow()
        assert sink.texts("t") == source.texts("t")

    @pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
    @pytest.mark.parametrize("rewrite", ["VACUUM FULL t", "ALTER TABLE t ALTER pad TYPE varchar", "TRUNCATE t"])
    def test_all_rows_move_between_pieces(self, source18: Place, sink18: Place, key: str, rewrite: str) -> None:
        """They lie where was read already, and the log says nothing."""
        source, sink = source18, sink18
        source.run(f"CREATE TABLE t (id int {key}, pad text)")
        source.run("INSERT INTO t SELECT n, repeat('p', 1500) FROM generate_series(1, 40) n; ANALYZE t")
        with Drive(source, sink, ["public.t"], reader={"identity": "full"}) as drive:
            drive.begin()
            first, *others = source.reader().pieces("public.t", 10)
            drive.copy_piece(first)
            source.run("DELETE FROM t WHERE id <= 20")
            source.run(rewrite)
            for piece in others:
                drive.copy_piece(piece)
            drive.catch_up()
            source.run("INSERT INTO t VALUES (41, 'later')")
            drive.catch_up()
            assert "files" not in drive.position
        assert sink.texts("t") == source.texts("t")

    def test_all_rows_move_and_the_run_dies_before_it_is_noted(self, source18: Place, sink18: Place) -> None:
        source, sink = source18, sink18
        with Drive(source, sink, []) as drive:
            drive.begin()
            source.run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
            source.run("INSERT INTO t SELECT n, repeat('p', 1500) FROM generate_series(1, 40) n; ANALYZE t")
            real = drive.copy

            def copy(names: list[str]) -> None:
                first, *others = source.reader().pieces("public.t", 10)
                drive.copy_piece(first)
                source.run("DELETE FROM t WHERE id <= 20")
                source.run("VACUUM FULL t")
                for piece in others:
                    drive.copy_piece(piece)

            drive.copy = copy  # type: ignore[assignment, method-assign]
            while not drive.appeared:
                drive.step()
            drive.copy = real  # type: ignore[method-assign]
            drive.stop()
            drive.catch_up()
            assert "files" not in drive.position
        assert sink.texts("t") == source.texts("t")

    @pytest.mark.parametrize(
        "change",
        [
            "DROP TABLE t",
            "DROP TABLE t_1",
            "ALTER TABLE t_1 RENAME TO t_one",
            "ALTER TABLE t RENAME v TO w",
            "ALTER TABLE t DROP v",
            "ALTER TABLE t ALTER v TYPE bigint",
            "CREATE TABLE t_3 PARTITION OF t FOR VALUES IN (3); INSERT INTO t VALUES (31, 3, 1)",
        ],
    )
    def test_it_is_another_one_when_a_piece_is_read(self, source18: Place, sink18: Place, change: str) -> None:
        """Before its columns are looked up, or after."""
        source, sink = source18, sink18
        source.run("CREATE TABLE t (id int, part int, v int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)")
        for n in range(3):
            source.run(f"CREATE TABLE t_{n} PARTITION OF t FOR VALUES IN ({n})")
        source.run("INSERT INTO t SELECT n, n % 3, n FROM generate_series(1, 30) n; ANALYZE t")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            pieces = source.reader().pieces("public.t", 10)
            assert len(pieces) == 3
            drive.copy_piece(pieces[0])
            real, changes = copying.read, [change]

            def late(*args: Any) -> Iterator[pa.RecordBatch]:
                if changes:
                    source.run(changes.pop())
                yield from real(*args)

            with patch.object(copying, "read", late):
                drive.copy_piece(pieces[1])
            drive.copy_piece(pieces[2])
            drive.catch_up()
        if change == "DROP TABLE t":
            assert not source.ask("SELECT to_regclass('t') IS NOT NULL")[0][0]
        else:
            columns = ", ".join(source.columns("t"))
            if change == "DROP TABLE t_1":  # its rows go without a word in the log
                sink.run("DELETE FROM t WHERE part = 1")
            assert sink.texts("t", columns) == source.texts("t", columns)

    def test_a_table_that_is_asked_for_later(self, source18: Place, sink18: Place) -> None:
        """It is copied from a position that was over the copies before: no copy need have what changed meanwhile."""
        source, sink = source18, sink18
        source.run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, v int, big text)")
        source.run("ALTER TABLE b ALTER big SET STORAGE EXTERNAL; INSERT INTO b VALUES (1, 0, repeat('b', 9000))")
        with Drive(source, sink, ["public.a"], reader={"discover": 1e9}) as drive:
            drive.begin()
            drive.copy()
            drive.step()
            source.run("INSERT INTO a VALUES (1)")
            drive.follow()
            drive.stop()
            assert "copied" not in drive.position
            source.reader().pieces("public.b", 100)
            source.run("UPDATE b SET v = 1")
            drive.namespaces.append("public.b")
            drive.follow()
        assert sink.texts("b") == source.texts("b")

    def test_a_writer_from_before_it_was_published(self, source: Place, sink: Place) -> None:
        """Its changes are in no log: the copy waits for it."""
        source.run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        with Drive(source, sink, ["public.a"]) as drive:
            drive.begin()
            with psycopg.connect(source.uri) as early, psycopg.connect(source.uri) as late:
                early.execute("INSERT INTO b VALUES (1)")
                with pytest.raises(Unavailable, match=f"pg_terminate_backend.{early.info.backend_pid}"):
                    source.reader(patience=0.3).pieces("public.b", 100)
                late.execute("INSERT INTO b VALUES (2)")
                threading.Timer(0.5, early.commit).start()
                drive.namespaces.append("public.b")
                drive.copy(["public.b"])
                late.commit()
            source.run("INSERT INTO b VALUES (3)")
            drive.follow()
        assert sink.texts("b") == ["(1)", "(2)", "(3)"]

    def test_a_long_transaction_when_it_begins(self, source: Place, caplog: pytest.LogCaptureFixture) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        with psycopg.connect(source.uri) as other:
            other.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(Unavailable, match=f"pid {other.info.backend_pid} for [0-9]+ s"):
                source.reader(patience=0.3).begin(["public.t"])
            caplog.clear()
            with ThreadPoolExecutor(1) as pool:
                begun = pool.submit(source.reader(patience=120).begin, ["public.t"])
                deadline = time.monotonic() + 60
                while f"pid {other.info.backend_pid} for" not in caplog.text and time.monotonic() < deadline:
                    time.sleep(0.1)
                assert f"pid {other.info.backend_pid} for" in caplog.text, "named long before patience is over"
                assert not begun.done()
                other.commit()
                begun.result(60)

    def test_a_publication_of_somebody_else(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, secret text, v int)")
        source.run("INSERT INTO t SELECT n, 'secret', n FROM generate_series(1, 10) n")
        source.run("CREATE PUBLICATION theirs FOR TABLE t (id, v) WHERE (id > 3)")
        with Drive(source, sink, ["public.t"], reader={"publication": "theirs"}) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO t VALUES (1000, 'secret', 1), (2, 'secret', 1) ON CONFLICT (id) DO NOTHING")
            source.run("UPDATE t SET v = 0 WHERE id IN (3, 4)")
            drive.follow()
        assert sink.texts("t", "*") == source.texts("t WHERE id > 3", "id, v")
