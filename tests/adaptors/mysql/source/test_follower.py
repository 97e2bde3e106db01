"""Following: transactions, tables without a key, positions."""

from __future__ import annotations

import threading

import pytest

from tailrace.adaptors.rows.rows import messages_of
from tailrace.log.record import Op
from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place

pytestmark = pytest.mark.server


def test_keys_that_change_places_in_one_transaction(source: Place) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with Drive(source, "t") as drive:
        drive.begin()
        drive.copy()
        source.run(
            "BEGIN",
            "UPDATE t SET id = 0 WHERE id = 1",
            "UPDATE t SET id = 1 WHERE id = 2",
            "UPDATE t SET id = 2 WHERE id = 0",
            "DELETE FROM t WHERE id = 3",
            "INSERT INTO t VALUES (3, 'again')",
            "COMMIT",
            "UPDATE t SET id = id + 10 ORDER BY id DESC",
        )
        drive.follow()
        drive.assert_same()


def test_a_rolled_back_transaction_is_not_there(source: Place) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Drive(source, "t") as drive:
        drive.begin()
        source.run("BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK")
        source.run("BEGIN", "INSERT INTO t VALUES (2)", "SAVEPOINT a", "INSERT INTO t VALUES (3)", "ROLLBACK TO a")
        source.run("COMMIT")
        drive.follow()
        drive.assert_same()
        assert [m.data["id"] for b in drive.batches for m in messages_of(b)] == [2]


def test_a_transaction_is_whole_or_not_there(source: Place) -> None:
    """The position moves at its end only: batches in between have none of their own."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (id int PRIMARY KEY)")
    with Drive(source, "t", "u", batch_rows=10) as drive:
        drive.begin()
        drive.copy()
        source.run("BEGIN")
        source.many("INSERT INTO t VALUES (%s, 0)", [[n] for n in range(100)])
        source.run("BEGIN", "INSERT INTO u VALUES (1)", "UPDATE t SET v = v + 1", "COMMIT")
        seen = []
        while not seen or seen[-1][1] < 100:
            changes = drive.step()
            assert (changes.position["gtids"] != seen[-1][0]) == bool(changes.rows) if seen else True
            seen.append(
                (changes.position["gtids"], sum(1 for r in drive.held.of(f"{source.name}.t")[0].values() if r["v"]))
            )
            assert seen[-1][1] in (0, 100)
        drive.follow()
        drive.assert_same()


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_a_table_without_a_key(source: Place, engine: str) -> None:
    """Two equal rows are two rows; those that changed while they were copied are counted once."""
    source.run(f"CREATE TABLE t (a int, b text) ENGINE={engine}")
    source.run("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    with Drive(source, "t") as drive:
        drive.begin()
        source.run("INSERT INTO t VALUES (1, 'x'), (3, 'y')")
        drive.copy()
        source.run("DELETE FROM t WHERE a = 1 LIMIT 1")
        drive.follow()
        assert drive.recopied
        drive.assert_same()
        assert sum(drive.held.counted[f"{source.name}.t"].values()) == 4
        before = len(drive.recopied)
        source.run("INSERT INTO t VALUES (1, 'x')", "UPDATE t SET b = 'z' WHERE a = 2", "DELETE FROM t WHERE a = 3")
        drive.follow()
        drive.assert_same()
        assert len(drive.recopied) == before, "what follows the copy needs no other one"


def test_a_table_without_a_key_under_load(source: Place) -> None:
    """Its new copy and the log agree, though others write all the time."""
    source.run("CREATE TABLE t (a int, b int)", "CREATE TABLE k (id int PRIMARY KEY AUTO_INCREMENT, v int)")
    stop = threading.Event()

    def write(n: int) -> None:
        connection = source.connect()
        with connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute(f"INSERT INTO t VALUES ({n}, 1), ({n}, 1)")
                cursor.execute("INSERT INTO k (v) VALUES (1)")
                cursor.execute(f"DELETE FROM t WHERE a = {n} LIMIT 1")
        connection.close()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    with Drive(source, "t", "k") as drive:
        drive.begin()
        for writer in writers:
            writer.start()
        drive.copy()
        for _ in range(5):
            drive.step()
        drive.stop()
        for _ in range(20):
            drive.step()
        stop.set()
        for writer in writers:
            writer.join()
        drive.follow()
        assert drive.recopied
        drive.assert_same()


def test_a_copy_under_load(source: Place) -> None:
    """Pieces at different moments, rows that move between them, and the log after them."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    source.many("INSERT INTO t VALUES (%s, 0)", [[n] for n in range(2000)])
    source.run("ANALYZE TABLE t")
    stop = threading.Event()

    def write(part: int) -> None:
        connection, n = source.connect(), 0
        with connection.cursor() as cursor:
            while not stop.is_set():
                n += 1
                cursor.execute(f"UPDATE t SET id = id + 4000, v = v + 1 WHERE id = {(n * 7 + part * 1000) % 2000}")
                cursor.execute(f"UPDATE t SET id = id - 4000 WHERE id = {4000 + (n * 3) % 2000}")
                cursor.execute(f"DELETE FROM t WHERE id = {(n * 11) % 2000}")
        connection.close()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    with Drive(source, "t") as drive:
        drive.begin()
        for writer in writers:
            writer.start()
        drive.copy(rows=100)
        for _ in range(3):
            drive.step()
        drive.stop()
        drive.step()
        stop.set()
        for writer in writers:
            writer.join()
        drive.follow()
        drive.assert_same()


def test_two_databases(source: Place) -> None:
    """Without a name in the uri all databases are read; tables of the same name are two."""
    other = f"{source.name}_b"
    source.run(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id int PRIMARY KEY)")
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    try:
        with Drive(source, "t", uri=source.server.uri()) as drive:
            drive.namespaces.append(f"{other}.t")
            drive.begin()
            drive.copy()
            source.run(f"INSERT INTO {other}.t VALUES (5)", "INSERT INTO t VALUES (2)")
            drive.follow()
            assert set(drive.held.keyed[f"{other}.t"]) == {"5"}
            assert set(drive.held.keyed[f"{source.name}.t"]) == {"1", "2"}
    finally:
        source.run(f"DROP DATABASE {other}")


def test_odd_names(source: Place) -> None:
    source.run('CREATE TABLE `a.b "c` (`the ``id` int PRIMARY KEY, `ü %s` text)')
    with Drive(source) as drive:
        drive.namespaces = [n.name for n in source.reader().namespaces()]
        drive.begin()
        source.run("INSERT INTO `a.b \"c` VALUES (1, 'x')")
        drive.copy()
        source.run("UPDATE `a.b \"c` SET `ü %s` = 'y'")
        drive.follow()
        drive.assert_same()
        (name,) = drive.namespaces
        assert drive.held.keyed[name]["1"] == {"the `id": 1, "ü %s": "y"}
        source.run('TRUNCATE `a.b "c`')
        drive.follow()
        drive.assert_same()


def test_keys_of_many_kinds_are_cut_in_pieces(source: Place) -> None:
    """Each row is in exactly one piece, whatever its key is."""
    kinds = {
        "a": ("varchar(20) COLLATE utf8mb4_general_ci", lambda n: f"'{'aAbBäÄ'[n % 6]}{n}'"),
        "b": ("varbinary(8)", lambda n: f"X'{n:06x}'"),
        "c": ("decimal(30,10)", lambda n: f"{n}.{n:010d}"),
        "d": ("datetime(6)", lambda n: f"'2024-01-01 00:{n % 60:02d}:{n // 60:02d}.{n:06d}'"),
        "e": ("varchar(20) CHARACTER SET latin1", lambda n: f"'é{n}'"),
        "f": ("bigint unsigned", lambda n: f"{2**64 - 1 - n * n}"),
        "g": ("date", lambda n: f"DATE_ADD('2000-01-01', INTERVAL {n} DAY)"),
    }
    for table, (kind, value) in kinds.items():
        source.run(f"CREATE TABLE {table} (x int, id {kind}, PRIMARY KEY (id))")
        source.run(f"INSERT INTO {table} VALUES {', '.join(f'({n}, {value(n)})' for n in range(300))}")
    source.run("CREATE TABLE z (a int, b varchar(9), x int, PRIMARY KEY (a, b))")
    source.run(f"INSERT INTO z VALUES {', '.join(f'({n % 3}, {n}, {n})' for n in range(300))}")
    tables = [*kinds, "z"]
    source.run(f"ANALYZE TABLE {', '.join(tables)}")
    reader = source.reader()
    for table in tables:
        pieces = reader.pieces(f"{source.name}.{table}", 20)
        assert 5 < len(pieces) < 80, table
        found = [m.data["x"] for piece in pieces for batch in reader.copy(piece) for m in messages_of(batch)]
        assert sorted(found) == list(range(300)), table
        assert all(m.op == Op.INSERT for piece in pieces[:1] for b in reader.copy(piece) for m in messages_of(b))
