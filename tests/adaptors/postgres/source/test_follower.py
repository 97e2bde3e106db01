"""Following: what changes in the source arrives in the sink, in the forms that tables and transactions take."""

from __future__ import annotations

import time

import pytest

from tailrace.adaptors.postgres.source import session
from tailrace.adaptors.rows.rows import columns_of, messages_of, namespace_of
from tailrace.errors import NotReady
from tailrace.log.record import Op
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


def same(source: Place, sink: Place, *tables: str) -> None:
    for table in tables:
        assert sink.texts(table) == source.texts(table)


def noticed(drive: Drive) -> None:
    """Follow until it is known that a table must be copied from the beginning."""
    deadline = time.monotonic() + 20
    while not drive.position.get("recopy"):
        assert time.monotonic() < deadline, "it was not noticed"
        drive.step()


def ops(drive: Drive, since: int = 0) -> list[tuple[Op, str]]:
    return [(m.op, m.id) for batch in drive.seen[since:] for m in messages_of(batch)]


class TestKeys:
    def test_composite(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (a int, note text, b text, PRIMARY KEY (b, a))")
        source.run("INSERT INTO t SELECT n, 'old', chr(97 + n % 3) FROM generate_series(1, 50) n")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy(rows=7)
            source.run("UPDATE t SET note = 'new' WHERE a % 2 = 0")
            source.run("DELETE FROM t WHERE a % 5 = 0")
            source.run("INSERT INTO t VALUES (1, 'odd', E'x\\x1fy'), (2, 'null', E'\\x1bN')")
            drive.follow()
        same(source, sink, "t")
        assert {b.schema.metadata[b"keys"] for b in drive.seen} == {b'["a","b"]'}
        ids = {m.id for b in drive.seen for m in messages_of(b)}
        assert len(ids) == 52

    def test_a_key_that_changes(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, big text)")
        source.run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
        source.run("INSERT INTO t SELECT n, repeat(n::text, 5000) FROM generate_series(1, 3) n")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            since = len(drive.seen)
            source.run("UPDATE t SET id = 10 WHERE id = 1")
            drive.follow()
            assert ops(drive, since) == [(Op.DELETE, "1"), (Op.INSERT, "10")]
            source.run("UPDATE t SET id = 20 WHERE id = 2")
            source.run("UPDATE t SET id = 21 WHERE id = 20")
            source.run("UPDATE t SET id = 30 WHERE id = 3")
            source.run("DELETE FROM t WHERE id = 30")
            drive.follow()
        same(source, sink, "t")

    def test_none(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (a int, b text)")
        source.run("ALTER TABLE t REPLICA IDENTITY FULL")
        source.run("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL), (NULL, NULL), (NULL, '')")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            source.run("DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE a = 1)")
            source.run("UPDATE t SET b = 'y' WHERE a = 2")
            source.run("UPDATE t SET b = 'y' WHERE a = 2")
            source.run("INSERT INTO t VALUES (1, 'x'), (3, 'z'), (3, 'z')")
            drive.follow()
            same(source, sink, "t")
            source.run("INSERT INTO t VALUES (4, 'both')")
            source.run("DELETE FROM t WHERE a = 4")
            source.run("DELETE FROM t WHERE a IS NULL AND b IS NULL")
            drive.follow()
        same(source, sink, "t")

    def test_none_and_no_identity(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (a int)")
        drive = Drive(source, sink, ["public.t"])
        with pytest.raises(NotReady, match=r'ALTER TABLE "public"\."t" REPLICA IDENTITY FULL;'):
            drive.begin()
        with Drive(source, sink, ["public.t"], reader={"identity": "full"}) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO t VALUES (1), (1), (2)")
            source.run("UPDATE t SET a = 3 WHERE a = 2")
            drive.follow()
        same(source, sink, "t")

    def test_full_identity_with_a_key(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, a text, big text)")
        source.run("ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
        source.run("INSERT INTO t SELECT n, 'a', repeat('x', 9000) FROM generate_series(1, 5) n")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            since = len(drive.seen)
            source.run("UPDATE t SET a = 'b' WHERE id = 1")
            source.run("UPDATE t SET id = 20 WHERE id = 2")
            source.run("DELETE FROM t WHERE id = 3")
            drive.follow()
        same(source, sink, "t")
        assert ops(drive, since) == [(Op.UPDATE, "1"), (Op.DELETE, "2"), (Op.INSERT, "20"), (Op.DELETE, "3")]
        assert all("unset" not in batch.schema.names for batch in drive.seen[since:])

    def test_another_index_as_identity(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, note text)")
        source.run("CREATE UNIQUE INDEX t_code ON t (code); ALTER TABLE t REPLICA IDENTITY USING INDEX t_code")
        source.run("INSERT INTO t SELECT n, 'c' || n, 'old' FROM generate_series(1, 5) n")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            source.run("UPDATE t SET note = 'new' WHERE id = 1")
            source.run("UPDATE t SET code = 'other' WHERE id = 2")
            source.run("DELETE FROM t WHERE id = 3")
            drive.follow()
        same(source, sink, "t")


class TestValues:
    def test_large_values_that_an_update_leaves(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, small int, big text, other text)")
        source.run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL")
        source.run("INSERT INTO t SELECT n, 0, repeat('x', 9000), repeat('o', 9000) FROM generate_series(1, 9) n")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            since = len(drive.seen)
            source.run("UPDATE t SET small = 1 WHERE id < 5")
            source.run("UPDATE t SET big = NULL WHERE id IN (1, 2)")
            source.run("UPDATE t SET other = repeat('p', 9000) WHERE id IN (2, 3)")
            source.run("UPDATE t SET small = 2 WHERE id IN (3, 4)")
            source.run("INSERT INTO t VALUES (10, 0, repeat('y', 9000), NULL); UPDATE t SET small = 3 WHERE id = 10")
            drive.follow()
        same(source, sink, "t")
        messages = [m for batch in drive.seen[since:] for m in messages_of(batch)]
        assert messages[0].data == {"id": 1, "small": 1}
        assert {"big", "other"} & {name for m in messages for name in m.data} == {"big", "other"}

    def test_megabytes(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, big text, bytes bytea, doc jsonb)")
        big = "SELECT n, repeat(md5(n::text), 32768), decode(repeat(md5(n::text), 32768), 'hex'), "
        big += "jsonb_build_object('v', repeat(md5(n::text), 32768)) FROM generate_series(%s::int, %s::int) n"
        source.run(f"INSERT INTO t {big}", 1, 8)
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            source.run(f"INSERT INTO t {big}", 9, 12)
            source.run("UPDATE t SET big = big || 'x' WHERE id = 3")
            drive.follow()
        sums = "SELECT id, md5(big), md5(bytes), md5(doc::text) FROM t ORDER BY 1"
        assert sink.ask(sums) == source.ask(sums)
        assert len(sink.ask(sums)) == 12

    def test_generated_columns(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED, b text)")
        source.run("INSERT INTO t (a, b) VALUES (1, 'x')")
        sink.run("CREATE TABLE t (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED, b text)")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO t (a, b) VALUES (2, 'y')")
            drive.follow()
        same(source, sink, "t")
        sent = [set(m.data) for batch in drive.seen for m in messages_of(batch)]
        assert sent == [{"a", "twice", "b"} if source.server.version >= 18 else {"a", "b"}] * 2

    def test_identity_columns(self, source: Place, sink: Place) -> None:
        for place in (source, sink):
            place.run("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, b text)")
        source.run("INSERT INTO t (b) VALUES ('x'), ('y')")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO t (b) VALUES ('z')")
            source.run("UPDATE t SET b = 'w' WHERE id = 1")
            drive.follow()
        same(source, sink, "t")


class TestSigns:
    def test_while_more_is_known_to_come_no_two_positions_are_alike(
        self, source18: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who stops when nothing is new must not stop before what was there when it began."""
        source = source18
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        position = source.reader().begin(["public.t"])
        source.run("INSERT INTO t SELECT generate_series(1, 10)")
        monkeypatch.setattr(session, "REPORT_INTERVAL_SECONDS", 0.0)
        reader, rows = source.reader(), 0
        for changes in reader.follow(position, ["public.t"]):
            if not changes.rows and changes.position == position:
                break
            rows += sum(batch.num_rows for batch in changes.rows)
            position = changes.position
        reader.close()
        assert rows == 10
        assert "more" not in position


class TestTables:
    def test_names(self, source: Place, sink: Place) -> None:
        tables = ['"ünï cödé 😀"', '"Quoted ""Table"""', '"with.dot"', '"100% sure"', '"s p"."it\'s"', '"select"']
        source.run('CREATE SCHEMA "s p"')
        for table in tables:
            source.run(f'CREATE TABLE {table} ("Id %s" int PRIMARY KEY, "vælue ""x""" text, "a.b" int)')
            source.run(f"INSERT INTO {table} SELECT n, 'v' || n, n FROM generate_series(1, 20) n")
        with Drive(source, sink, []) as drive:
            with_schema = {
                "public." + name for name in ("ünï cödé 😀", '"Quoted ""Table"""', '"with.dot"', "100% sure")
            }
            drive.namespaces = [namespace.name for namespace in source.reader().namespaces()]
            assert set(drive.namespaces) == with_schema | {"s p.it's", "public.select"}
            drive.begin()
            drive.copy()
            for table in tables:
                source.run(f'UPDATE {table} SET "a.b" = 0 WHERE "Id %s" < 5')
                source.run(f'DELETE FROM {table} WHERE "Id %s" > 15')
            drive.follow()
        same(source, sink, *tables)

    def test_empty(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            same(source, sink, "t")  # the sink has the table, too, before there is a row
            source.run("INSERT INTO t VALUES (1)")
            drive.follow()
        same(source, sink, "t")

    def test_partitions(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int, region text, v int, PRIMARY KEY (id, region)) PARTITION BY LIST (region)")
        source.run("CREATE TABLE t_eu (v int, region text NOT NULL, id int NOT NULL)")
        source.run("ALTER TABLE t ATTACH PARTITION t_eu FOR VALUES IN ('eu')")
        source.run("CREATE TABLE t_us PARTITION OF t FOR VALUES IN ('us') PARTITION BY RANGE (id)")
        source.run("CREATE TABLE t_us_1 PARTITION OF t_us FOR VALUES FROM (0) TO (50)")
        source.run("CREATE TABLE t_us_2 PARTITION OF t_us FOR VALUES FROM (50) TO (1000)")
        source.run(
            "INSERT INTO t SELECT n, CASE WHEN n % 2 = 0 THEN 'eu' ELSE 'us' END, n FROM generate_series(1, 99) n"
        )
        with Drive(source, sink, ["public.t"]) as drive:
            assert [n.name for n in source.reader().namespaces()] == ["public.t"]
            drive.begin()
            drive.copy(rows=20)
            source.run("UPDATE t SET v = 0 WHERE id < 10")
            source.run("UPDATE t SET region = 'us' WHERE id = 20")
            source.run("DELETE FROM t_us_1 WHERE id = 3")
            source.run("CREATE TABLE t_asia PARTITION OF t FOR VALUES IN ('asia')")
            source.run("INSERT INTO t VALUES (500, 'asia', 1)")
            drive.follow()
            assert {namespace_of(batch) for batch in drive.seen} == {"public.t"}
            same(source, sink, "t")
            source.run("TRUNCATE t")
            source.run("INSERT INTO t VALUES (1, 'eu', 1)")
            drive.follow()
        same(source, sink, "t")

    def test_partitions_without_a_key(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int, v text) PARTITION BY RANGE (id)")
        source.run("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (50)")
        source.run("CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (50) TO (100)")
        source.run("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 99) n")
        with Drive(source, sink, ["public.t"], reader={"identity": "full"}) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            source.run("UPDATE t SET v = 'y' WHERE id IN (1, 60)")
            source.run("DELETE FROM t WHERE id IN (2, 61)")
            source.run("INSERT INTO t VALUES (3, 'x')")
            drive.follow()
        same(source, sink, "t")

    def test_inheritance_is_not_partitioning(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE parent (id int PRIMARY KEY)")
        source.run("CREATE TABLE child (more text, PRIMARY KEY (id)) INHERITS (parent)")
        source.run("INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 'x')")
        with Drive(source, sink, ["public.parent", "public.child"]) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO parent VALUES (3); INSERT INTO child VALUES (4, 'y')")
            drive.follow()
        assert sink.texts("parent") == source.texts("ONLY parent")
        same(source, sink, "child")

    def test_truncate(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a)")
        source.run("INSERT INTO a SELECT generate_series(1, 9); INSERT INTO b SELECT generate_series(1, 9)")
        with Drive(source, sink, ["public.a", "public.b"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            since = len(drive.seen)
            with source.connection.transaction():
                source.run("INSERT INTO a VALUES (20)")
                source.run("TRUNCATE a, b")
                source.run("INSERT INTO a VALUES (1)")
            drive.follow()
        same(source, sink, "a", "b")
        commands = [b for b in drive.seen[since:] if columns_of(b).schema.names == ["command"]]
        assert sorted(namespace_of(batch) for batch in commands) == ["public.a", "public.b"]
        (message,) = messages_of(commands[0])
        assert (message.op, message.data) == (Op.COMMAND, {"command": "truncate"})

    def test_columns_come_and_go(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, a text, gone int)")
        source.run("INSERT INTO t VALUES (1, 'one', 1)")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            source.run("INSERT INTO t VALUES (2, 'two', 2)")
            source.run("ALTER TABLE t ADD more timestamptz DEFAULT '2024-01-01 00:00:00+00'")
            source.run("INSERT INTO t VALUES (3, 'three', 3, now())")
            source.run("ALTER TABLE t DROP gone")
            source.run("UPDATE t SET a = upper(a)")
            with source.connection.transaction():
                source.run("ALTER TABLE t RENAME a TO b")
                source.run("INSERT INTO t VALUES (4, 'four', NULL)")
                source.run("ALTER TABLE t ALTER b TYPE varchar(99), ADD last int[]")
                source.run("INSERT INTO t VALUES (5, 'five', NULL, '{1,2}')")
            source.run("UPDATE t SET id = id + 10")
            drive.follow()
        columns = "id, b, more, last"
        assert sink.texts("t", columns) == source.texts("t", columns)
        listed = sink.ask("SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0")
        assert {name for (name,) in listed} == {"id", "a", "gone", "more", "b", "last"}

    def test_tables_that_appear(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE a (id int PRIMARY KEY)")
        with Drive(source, sink, ["public.a"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            assert drive.appeared == []
            source.run("CREATE TABLE b (id int PRIMARY KEY, v text)")
            source.run("INSERT INTO b SELECT n, 'x' FROM generate_series(1, 100) n")
            _until(drive, lambda: drive.appeared == ["public.b"])
            source.run("UPDATE b SET v = 'y' WHERE id < 10; INSERT INTO a VALUES (1)")
            drive.follow()
            same(source, sink, "a", "b")
            drive.stop()
            source.run("CREATE TABLE c (id int PRIMARY KEY); INSERT INTO c VALUES (1); DELETE FROM b WHERE id = 1")
            _until(drive, lambda: drive.appeared == ["public.b", "public.c"])
            source.run("INSERT INTO c VALUES (2)")
            drive.follow()
        same(source, sink, "a", "b", "c")

    @pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
    def test_another_table_under_a_name(self, source: Place, sink: Place, key: str) -> None:
        """Nobody publishes it, and the log has changes of the one before it: it is copied, from the beginning."""
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'old')")
        with Drive(source, sink, ["public.t"], reader={"identity": "full"}) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            source.run("INSERT INTO t VALUES (3, 'of the old one, and not read yet')")
            source.run("DROP TABLE t")
            source.run(f"CREATE TABLE t (id int {key}, v text); INSERT INTO t VALUES (1, 'new'), (4, 'new')")
            noticed(drive)
            drive.follow()
            assert sink.texts("t") == source.texts("t")
            source.run("UPDATE t SET v = 'newer' WHERE id = 4; INSERT INTO t VALUES (5, 'newer')")
            drive.follow()
            assert sink.texts("t") == source.texts("t")

    def test_two_that_change_their_names(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 't'), (2, 't')")
        source.run("CREATE TABLE s (id int PRIMARY KEY, v text); INSERT INTO s VALUES (2, 's'), (3, 's')")
        with Drive(source, sink, ["public.s", "public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            source.run("UPDATE t SET v = 'later' WHERE id = 2; INSERT INTO s VALUES (4, 's')")
            source.run("ALTER TABLE t RENAME TO x; ALTER TABLE s RENAME TO t; ALTER TABLE x RENAME TO s")
            source.run("INSERT INTO t VALUES (9, 'new'); DELETE FROM s WHERE id = 1")
            noticed(drive)
            drive.follow()
            same(source, sink, "s", "t")

    def test_another_table_while_nobody_followed(self, source: Place, sink: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'old')")
        with Drive(source, sink, ["public.t"]) as drive:
            drive.begin()
            drive.copy()
            drive.follow()
            drive.stop()
            source.run("INSERT INTO t VALUES (3, 'old'); CREATE TABLE s (id int PRIMARY KEY, v text)")
            source.run("ALTER TABLE t RENAME TO before; ALTER TABLE s RENAME TO t; INSERT INTO t VALUES (2, 'new')")
            noticed(drive)
            drive.stop()  # killed once that is known, or a little later
            drive.step()
            drive.stop()
            drive.follow()
            assert sink.texts("t") == source.texts("t") == ["(2,new)"]

    def test_a_thousand_tables(self, source18: Place) -> None:
        source = source18
        tables = [f"t{n}" for n in range(1000)]
        for start in range(0, 1000, 100):
            some = tables[start : start + 100]
            source.run(
                "".join(
                    f"CREATE TABLE {t} (id int PRIMARY KEY, v text); INSERT INTO {t} VALUES (1, 'x');" for t in some
                )
            )
        with Drive(source, None, [f"public.{t}" for t in tables]) as drive:
            drive.begin()
            with source.connection.transaction():
                for table in tables:
                    source.run(f"INSERT INTO {table} VALUES (2, 'y')")
            drive.follow()
        assert {namespace_of(batch) for batch in drive.seen} == set(drive.namespaces)
        assert len(source.reader().namespaces()) == 1000


def _until(drive: Drive, there) -> None:
    for _ in range(100):
        if there():
            return
        drive.step()
    raise AssertionError(f"{drive.appeared}")


def test_it_says_when_it_has_caught_up(source18: Place) -> None:
    """At once, however busy the server is, and not before all is given that there was."""
    source18.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Drive(source18, None, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        source18.run("INSERT INTO t SELECT generate_series(1, 2000)")
        source18.run("INSERT INTO t SELECT generate_series(2001, 4000)")
        began = time.monotonic()
        while not drive.step().caught_up:
            source18.run("SELECT pg_logical_emit_message(false, 'busy', repeat('x', 1000))")
            assert time.monotonic() - began < 20
        assert sum(batch.num_rows for batch in drive.seen) == 4000
        drive.stop()
        began = time.monotonic()
        while not drive.step().caught_up:
            assert time.monotonic() - began < 20
        assert time.monotonic() - began < session.REPORT_INTERVAL_SECONDS, "nobody waits where nothing is to come"
