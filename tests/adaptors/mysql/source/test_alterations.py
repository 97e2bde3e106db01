"""DDL, in its place in the log."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.adaptors.contract import DROP, RENAME, Command
from tailrace.adaptors.mysql.source import snapshot
from tailrace.errors import Unavailable
from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place

pytestmark = pytest.mark.server


CHANGING = [
    "ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 7",
    "ALTER TABLE t ADD (n int DEFAULT 7, m text)",
    "ALTER TABLE t CHANGE v u varchar(30)",
    "ALTER TABLE t MODIFY COLUMN w bigint unsigned",
    "ALTER TABLE t MODIFY v varchar(20) CHARACTER SET latin1",
    "ALTER TABLE t ADD g int AS (w * 2) STORED",
    "ALTER TABLE /* a comment, */ t CONVERT TO CHARACTER SET utf8mb4, ADD INDEX (w)",
]


@pytest.mark.parametrize("sql", CHANGING)
def test_what_changed_rows_has_the_table_copied_again(drive: Drive, sql: str) -> None:
    source = drive.source
    source.run("UPDATE t SET w = 9 WHERE id = 2", sql, "INSERT INTO t (id, w) VALUES (4, 4)")
    drive.follow()
    assert drive.altered == [f"{source.name}.t"]
    drive.assert_same()


def test_a_renamed_column(drive: Drive) -> None:
    if drive.source.server.flavor == "mysql":
        drive.source.run("ALTER TABLE t RENAME COLUMN v TO u")
    else:
        drive.source.run("ALTER TABLE t RENAME COLUMN IF EXISTS v TO u")
    drive.follow()
    assert drive.altered == [f"{drive.source.name}.t"]
    drive.assert_same()


HARMLESS = [
    "ALTER TABLE t ADD COLUMN n int",
    "ALTER TABLE t ADD INDEX i (v), ADD UNIQUE KEY u (w), COMMENT='primary, of course'",
    "CREATE INDEX i ON t (v)",
    "ALTER TABLE t ALTER COLUMN w SET DEFAULT 5",
    "ALTER TABLE t ENGINE=InnoDB",
    "ALTER TABLE t AUTO_INCREMENT=100",
    "OPTIMIZE TABLE t",
    "CREATE TABLE IF NOT EXISTS t (id int)",
    "CREATE TEMPORARY TABLE t (id int)",
]


@pytest.mark.parametrize("sql", HARMLESS)
def test_what_changed_no_row_copies_nothing(drive: Drive, sql: str) -> None:
    source = drive.source
    source.run(sql)
    source.hang_up()
    source.run("UPDATE t SET w = 9 WHERE id = 2", "INSERT INTO t (id, w) VALUES (4, 4)")
    drive.follow()
    assert (drive.altered, drive.recopied) == ([], [])
    found = drive.held.keyed[f"{source.name}.t"]
    assert {id: row["w"] for id, row in found.items()} == {"1": 1, "2": 9, "3": 3, "4": 4}


@pytest.mark.parametrize(
    "sql",
    [
        ("ALTER TABLE t DROP v", "UPDATE t SET w = 9 WHERE id = 1", "ALTER TABLE t ADD COLUMN v varchar(20)"),
        ("ALTER TABLE t DROP COLUMN v, ADD (u int, v varchar(20))",),
        ("ALTER TABLE t CHANGE v u varchar(20)", "ALTER TABLE t ADD COLUMN v varchar(20)"),
    ],
)
def test_a_column_that_comes_back_empty(drive: Drive, sql: tuple[str, ...]) -> None:
    """The sink has the values of the one that was dropped; the position remembers that it was."""
    source = drive.source
    for statement in sql:
        source.run(statement)
        drive.altered.clear()
        drive.follow()
    assert drive.altered == [f"{source.name}.t"]
    drive.assert_same()


def test_a_timestamp_that_is_filled_by_itself(drive: Drive) -> None:
    """With explicit_defaults_for_timestamp = OFF, as in MariaDB before 10.10, a TIMESTAMP is never null by itself."""
    source = drive.source
    source.run("SET SESSION explicit_defaults_for_timestamp = OFF", "ALTER TABLE t ADD COLUMN at TIMESTAMP")
    source.hang_up()
    drive.follow()
    assert drive.altered == [f"{source.name}.t"]
    drive.assert_same()


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
class TestStatementsOfMariaDB:
    def test_rows_that_a_unique_index_deletes(self, drive: Drive) -> None:
        """The log has the statement, and not the rows that IGNORE deletes."""
        drive.source.run("UPDATE t SET w = 2", "ALTER IGNORE TABLE t ADD UNIQUE (w)")
        drive.follow()
        drive.assert_same()

    def test_partitions_that_become_tables_and_tables_that_become_partitions(self, source: Place) -> None:
        source.run(
            "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), "
            "PARTITION b VALUES LESS THAN (20))",
            "INSERT INTO p VALUES (1), (11)",
        )
        with Drive(source, "p") as drive:
            drive.begin()
            drive.copy()
            source.run("ALTER TABLE p CONVERT PARTITION b TO TABLE x", "INSERT INTO x VALUES (12)")
            drive.follow()
            assert drive.appeared == [f"{source.name}.x"]
            drive.assert_same()
            source.run("ALTER TABLE p CONVERT TABLE x TO PARTITION b VALUES LESS THAN (20)")
            drive.follow()
            assert drive.ended == [f"{source.name}.x"]
            drive.assert_same("p")
            source.run("ALTER TABLE p CONVERT PARTITION b TO TABLE x")
            drive.follow()
            drive.assert_same()


def test_a_dropped_column_copies_nothing(drive: Drive) -> None:
    drive.source.run("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (4, 4)")
    drive.follow()
    assert (drive.altered, drive.recopied) == ([], [])
    assert drive.held.keyed[f"{drive.source.name}.t"]["4"] == {"id": 4, "w": 4}


REKEYING = [
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, w)",
    "ALTER TABLE t DROP PRIMARY KEY",
    "ALTER TABLE t CHANGE id number int",
    "ALTER TABLE t DROP COLUMN id, ADD PRIMARY KEY (w)",
    "ALTER TABLE t CHANGE ID number int",
    "ALTER TABLE t MODIFY id varchar(20)",
    "ALTER TABLE t DROP INDEX `PRIMARY`",
    "DROP INDEX `PRIMARY` ON t",
]


@pytest.mark.parametrize("sql", REKEYING)
def test_another_key_has_the_table_emptied_and_copied(drive: Drive, sql: str) -> None:
    source = drive.source
    source.run("DELETE FROM t WHERE id = 3", sql, "UPDATE t SET v = 'z' WHERE w = 2", "DELETE FROM t WHERE w = 1")
    drive.follow()
    assert f"{source.name}.t" in drive.recopied
    drive.assert_same()


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE bare ADD c int", "ALTER TABLE bare DROP b", "ALTER TABLE bare ADD COLUMN c int DEFAULT 1"]
)
def test_other_columns_of_a_table_without_a_key(drive: Drive, sql: str) -> None:
    source = drive.source
    source.run("INSERT INTO bare VALUES (3, 'z')", sql, "DELETE FROM bare WHERE a = 1 LIMIT 1")
    drive.follow()
    assert f"{source.name}.bare" in drive.recopied
    drive.assert_same()


def test_an_alteration_between_the_snapshot_and_its_first_read(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot cannot read the table any more, and another one can."""
    source, cut = drive.source, snapshot.cut

    def altered(*given: Any) -> Any:
        found = cut(*given)
        monkeypatch.setattr(snapshot, "cut", cut)
        source.run("ALTER TABLE bare ADD z int, ALGORITHM = COPY")
        return found

    monkeypatch.setattr(snapshot, "cut", altered)
    source.run("ALTER TABLE bare ADD y int", "INSERT INTO bare VALUES (3, 'z', 3)")
    with pytest.raises(Unavailable, match=r"copying .* again"):
        drive.follow()
    source.run("INSERT INTO bare VALUES (4, 'u', 4, 4)")
    drive.follow()
    drive.assert_same()


def test_truncate_is_in_its_place(drive: Drive) -> None:
    source = drive.source
    source.run("INSERT INTO t VALUES (5, 'e', 5)", "TRUNCATE t", "INSERT INTO t VALUES (1, 'new', 1)")
    source.run("TRUNCATE TABLE bare", "INSERT INTO bare VALUES (1, 'x')")
    drive.follow()
    assert (drive.altered, drive.recopied) == ([], [])
    drive.assert_same()


def test_a_dropped_table_ends_and_another_one_of_its_name_is_another_one(drive: Drive) -> None:
    source = drive.source
    source.run("DROP TABLE t, bare")
    drive.follow()
    assert sorted(drive.ended) == [f"{source.name}.bare", f"{source.name}.t"]
    assert sorted(drive.held.commands) == [(name, Command(DROP)) for name in sorted(drive.ended)]
    source.run("CREATE TABLE t (id int PRIMARY KEY, other text)", "INSERT INTO t VALUES (9, 'x')")
    source.run("CREATE TABLE IF NOT EXISTS bare (a int)", "INSERT INTO bare VALUES (7)")
    drive.follow()
    drive.assert_same()


def test_a_table_that_appears(drive: Drive) -> None:
    source = drive.source
    source.run("CREATE TABLE n (id int PRIMARY KEY)", "INSERT INTO n VALUES (1)", "CREATE TABLE gone (id int)")
    source.run("CREATE TABLE l LIKE t", "CREATE TABLE bare2 (a int)", "INSERT INTO bare2 VALUES (1), (1)")
    source.run("DROP TABLE gone", "INSERT INTO n VALUES (2)")
    drive.follow()
    assert sorted(drive.appeared) == [f"{source.name}.{name}" for name in ("bare2", "l", "n")]
    source.run("INSERT INTO n VALUES (3)", "INSERT INTO l VALUES (1, 'l', 1)", "INSERT INTO bare2 VALUES (1)")
    drive.follow()
    drive.assert_same()


def test_renamed_tables(drive: Drive) -> None:
    source = drive.source
    source.run("RENAME TABLE t TO moved", "INSERT INTO moved VALUES (7, 'x', 7)")
    drive.follow()
    assert drive.ended == [f"{source.name}.t"]
    assert drive.held.commands == [(f"{source.name}.t", Command(RENAME, f"{source.name}.moved"))]
    assert drive.appeared == [f"{source.name}.moved"]
    drive.assert_same("moved", "bare")
    source.run("ALTER TABLE moved RENAME TO t", "DELETE FROM t WHERE id = 7")
    drive.follow()
    drive.assert_same("t", "bare")


def test_tables_that_swap_their_names(drive: Drive) -> None:
    source = drive.source
    source.run("CREATE TABLE other LIKE t", "INSERT INTO other VALUES (1, 'other', 1), (8, 'h', 8)")
    drive.follow()
    source.run("RENAME TABLE t TO tmp, other TO t, tmp TO other", "INSERT INTO t VALUES (9, 'i', 9)")
    source.run("DELETE FROM other WHERE id = 1")
    drive.follow()
    drive.assert_same()


def test_partitions(source: Place) -> None:
    source.run(
        "CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), "
        "PARTITION b VALUES LESS THAN (20), PARTITION c VALUES LESS THAN MAXVALUE)",
        "INSERT INTO p VALUES (1, 1), (11, 1), (21, 1)",
        "CREATE TABLE x (id int PRIMARY KEY, v int)",
        "INSERT INTO x VALUES (12, 12)",
    )
    with Drive(source, "p", "x") as drive:
        drive.begin()
        drive.copy()
        source.run("UPDATE p SET id = 2 WHERE id = 21", "ALTER TABLE p TRUNCATE PARTITION a", "UPDATE p SET v = 5")
        drive.follow()
        drive.assert_same()
        source.run("ALTER TABLE p DROP PARTITION a")
        drive.follow()
        drive.assert_same()
        source.run("ALTER TABLE p EXCHANGE PARTITION b WITH TABLE x")
        drive.follow()
        drive.assert_same()
        before = len(drive.recopied)
        source.run("ALTER TABLE p REMOVE PARTITIONING", "INSERT INTO p VALUES (30, 1)")
        drive.follow()
        drive.assert_same()
        assert len(drive.recopied) == before


def test_a_dropped_database(source: Place) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Drive(source, "t", uri=source.server.uri()) as drive:
        drive.begin()
        drive.copy()
        source.run(f"DROP DATABASE {source.name}")
        drive.follow()
        assert drive.ended == [f"{source.name}.t"]
        source.run(f"CREATE DATABASE {source.name}")
        source.hang_up()


def test_alterations_while_nobody_follows(drive: Drive) -> None:
    """There and back: the catalog is as it was, and the log tells it all the same."""
    source = drive.source
    drive.stop()
    source.run("ALTER TABLE t MODIFY v varchar(1)", "UPDATE t SET v = 'q' WHERE id = 1")
    source.run("ALTER TABLE t MODIFY v varchar(20)", "INSERT INTO t VALUES (4, 'long enough', 4)")
    source.run("ALTER TABLE bare MODIFY b varchar(1)", "ALTER TABLE bare MODIFY b varchar(9)")
    drive.follow()
    drive.assert_same()


def test_a_copy_that_was_cut_off_is_made_again(drive: Drive) -> None:
    """The position passes an alteration only with the copy that it asks for."""
    source = drive.source
    source.run("INSERT INTO t VALUES (4, 'd', 4)", "ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 7")
    kept = drive.position
    while True:
        reader = source.reader()
        changes = next(iter(_steps(reader, kept, drive)))
        reader.close()
        if changes is None:
            break
        kept = changes
    drive.position = kept
    drive.follow()
    assert drive.altered == [f"{source.name}.t"]
    drive.assert_same()


def _steps(reader, position, drive: Drive):
    """Positions that become durable before the copy; None when it is asked for."""
    for changes in reader.follow(position, drive.namespaces):
        if changes.altered:
            yield None
            return
        for batch in changes.rows:
            drive.held.write(batch)
        if changes.rows:
            yield changes.position
            return
        assert not changes.caught_up, "the copy was never asked for"


def test_left_as_they_are(source: Place) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    with Drive(source, "t", altered="leave") as drive:
        drive.begin()
        drive.copy()
        source.run("ALTER TABLE t ADD n int NOT NULL DEFAULT 7", "UPDATE t SET v = 5 WHERE id = 1")
        drive.follow()
        assert drive.altered == []
        assert [row.get("n") for row in drive.held.keyed[f"{source.name}.t"].values()] == [7, None]


class TestXA:
    def test_a_transaction_counts_once_it_is_committed(self, drive: Drive) -> None:
        source = drive.source
        source.run("XA START 'a', 'b'", "UPDATE t SET v = 'xa' WHERE id = 1", "INSERT INTO bare VALUES (5, 'xa')")
        source.run("XA END 'a', 'b'", "XA PREPARE 'a', 'b'")
        source.hang_up()
        source.run("INSERT INTO t VALUES (4, 'd', 4)")
        drive.follow()
        assert drive.held.keyed[f"{source.name}.t"]["1"]["v"] == "a"
        source.run("XA COMMIT 'a', 'b'")
        drive.follow()
        drive.assert_same()
        assert drive.held.keyed[f"{source.name}.t"]["1"]["v"] == "xa"

    def test_one_that_is_rolled_back_never_was(self, drive: Drive) -> None:
        source = drive.source
        source.run("XA START 'c'", "DELETE FROM t", "XA END 'c'", "XA PREPARE 'c'", "XA ROLLBACK 'c'")
        source.run("XA START 'd'", "UPDATE t SET v = 'one' WHERE id = 2", "XA END 'd'", "XA COMMIT 'd' ONE PHASE")
        drive.follow()
        drive.assert_same()
        assert drive.held.keyed[f"{source.name}.t"]["2"]["v"] == "one"

    def test_one_that_was_prepared_before_the_beginning(self, source: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
        source.run("XA START 'e'", "UPDATE t SET v = 5 WHERE id = 1", "DELETE FROM t WHERE id = 2")
        source.run("XA END 'e'", "XA PREPARE 'e'")
        source.hang_up()
        with Drive(source, "t") as drive:
            drive.begin()
            drive.copy()
            source.run("XA COMMIT 'e'")
            drive.follow()
            drive.assert_same()


def test_statements_in_place_of_rows(drive: Drive) -> None:
    """A session with binlog_format = STATEMENT, or without full images, cannot make a sink differ."""
    source = drive.source
    source.run("SET SESSION binlog_format = 'STATEMENT'", "UPDATE t SET w = w + 1", "DELETE FROM bare WHERE a = 1")
    source.run("SET SESSION binlog_format = 'ROW'", "SET SESSION binlog_row_image = 'MINIMAL'")
    source.run("UPDATE t SET v = 'm' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t (id, w) VALUES (6, 6)")
    source.hang_up()
    drive.follow()
    drive.assert_same()
