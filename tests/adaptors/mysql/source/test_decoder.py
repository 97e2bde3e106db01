"""What the log has in place of rows."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from tailrace.adaptors.mysql.source.decoder import Decoder
from tailrace.errors import NotReady
from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place
from tests.servers import mariadb as mariadbs
from tests.servers.mysql import FAST

FUNCTION = "CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA BEGIN DELETE FROM t WHERE id = 1; RETURN 8; END"


def _event(kind: int, flags: int = 0) -> bytes:
    return bytes([0, 0, 0, 0, kind, *bytes(12), flags, 0])


def test_an_event_of_a_kind_that_is_not_known_is_refused() -> None:
    decoder = Decoder(None, None, "mysql")  # type: ignore[arg-type]
    decoder.feed(_event(35))
    decoder.feed(_event(200, flags=0x80))
    with pytest.raises(NotReady, match="event of kind 200"):
        decoder.feed(_event(200))


@pytest.mark.server
@pytest.mark.parametrize(
    "definition", ["(id int PRIMARY KEY)", "(id int PRIMARY KEY, v int, w enum('a', 'b'))", "(id int)"]
)
def test_changes_without_the_names_of_columns(source: Place, definition: str) -> None:
    """As a replica logs them that has another setting, and then takes over."""
    source.run(f"CREATE TABLE t {definition}", "INSERT INTO t (id) VALUES (1), (2), (3)")
    with Drive(source, "t") as drive:
        drive.begin()
        drive.copy()
        source.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
        try:
            source.run(
                "INSERT INTO t (id) VALUES (4)", "UPDATE t SET id = 7 WHERE id = 1", "DELETE FROM t WHERE id = 2"
            )
            with pytest.raises(NotReady, match=r"has binlog_row_metadata = MINIMAL.*SET .* = 'FULL'"):
                drive.follow()
        finally:
            source.run("SET GLOBAL binlog_row_metadata = 'FULL'")
        source.run("DELETE FROM t WHERE id = 3", "INSERT INTO t (id) VALUES (8)")
        drive.follow()
        drive.assert_same()
        assert drive.recopied
        before = list(drive.recopied)
        source.run("INSERT INTO t (id) VALUES (9)")
        drive.follow()
        drive.assert_same()
        assert drive.recopied == before, "once is enough"


@pytest.mark.server
def test_a_file_that_a_statement_loads(drive: Drive, tmp_path: Path) -> None:
    """With binlog_format = STATEMENT the log has the file, and a statement of a kind of its own."""
    loaded = Path(drive.source.server.data) / f"{drive.source.name}.csv"
    loaded.write_text("7,g,7\n8,h,8\n")
    loaded.chmod(0o644)
    source = drive.source
    source.run(
        "SET SESSION binlog_format = 'STATEMENT'", f"LOAD DATA INFILE '{loaded}' INTO TABLE t FIELDS TERMINATED BY ','"
    )
    source.hang_up()
    loaded.unlink()
    drive.follow()
    drive.assert_same()


@pytest.mark.server
@pytest.mark.parametrize(
    ("made", "statement"),
    [
        ("CREATE TRIGGER g AFTER INSERT ON other FOR EACH ROW UPDATE t SET w = NEW.id", "INSERT INTO other VALUES (7)"),
        (FUNCTION, "INSERT INTO other SELECT F()"),
        (FUNCTION, "SET @x = f()"),
        ("CREATE VIEW seen AS SELECT * FROM t", "UPDATE seen SET w = 9"),
    ],
)
def test_tables_that_a_statement_does_not_name(drive: Drive, made: str, statement: str) -> None:
    source = drive.source
    source.run("CREATE TABLE other (id int PRIMARY KEY)", "SET GLOBAL log_bin_trust_function_creators = 1", made)
    drive.follow()
    source.run("SET SESSION binlog_format = 'STATEMENT'", statement)
    source.hang_up()
    drive.follow()
    drive.assert_same()


@pytest.mark.server
def test_rows_that_the_server_could_not_log(source: Place) -> None:
    """A change of a table without transactions that is too large for the log's memory leaves an incident in it."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text) ENGINE = MyISAM", "INSERT INTO t VALUES (1, 'a')")
    with Drive(source, "t") as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        source.run("SET GLOBAL max_binlog_stmt_cache_size = 4096", "SET GLOBAL binlog_stmt_cache_size = 4096")
        source.hang_up()
        with pytest.raises(pymysql.Error, match="max_binlog_stmt_cache_size"):
            source.run("INSERT INTO t VALUES " + ", ".join(f"({n}, REPEAT('x', 100))" for n in range(2, 200)))
        source.run(
            "SET GLOBAL max_binlog_stmt_cache_size = DEFAULT",
            "SET GLOBAL binlog_stmt_cache_size = DEFAULT",
            "INSERT INTO t VALUES (1000, 'b')",
        )
        source.hang_up()
        drive.follow()
        assert len(drive.held.keyed[f"{source.name}.t"]) > 50
        drive.assert_same()
        before = list(drive.recopied)
        assert before
        for _ in range(3):  # MariaDB sends the incident again with every connection
            drive.follow()
            source.run("UPDATE t SET v = CONCAT(v, 'c') WHERE id = 1000")
        drive.follow()
        drive.assert_same()
        assert drive.recopied == before
    with Drive(source, "t") as later:
        later.begin()
        later.copy()
        later.follow()
        later.assert_same()
        assert not later.recopied, "the incident was before the copy"


@pytest.mark.server
def test_an_incident_at_the_very_end_of_the_log(source: Place) -> None:
    """No transaction comes after it: only the position tells that the tables have been copied since."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text) ENGINE = MyISAM", "INSERT INTO t VALUES (1, 'a')")
    with Drive(source, "t") as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        source.run("SET GLOBAL max_binlog_stmt_cache_size = 4096", "SET GLOBAL binlog_stmt_cache_size = 4096")
        source.hang_up()
        with pytest.raises(pymysql.Error, match="max_binlog_stmt_cache_size"):
            source.run("INSERT INTO t VALUES " + ", ".join(f"({n}, REPEAT('x', 100))" for n in range(2, 200)))
        source.run("SET GLOBAL max_binlog_stmt_cache_size = DEFAULT", "SET GLOBAL binlog_stmt_cache_size = DEFAULT")
        source.hang_up()
        drive.follow()
        drive.assert_same()
        before = list(drive.recopied)
        assert before
        drive.follow()
        assert drive.recopied == before


@pytest.mark.server
def test_names_that_the_server_keeps_in_lower_case() -> None:
    """With lower_case_table_names = 1 the log has statements as they were written."""
    with mariadbs.mariadb(settings={**FAST, "lower-case-table-names": "1"}) as server, Place(server, "") as admin:
        admin.run("CREATE DATABASE Shop")
        with Place(server, "shop") as source:
            source.run("CREATE TABLE Orders (id int PRIMARY KEY)", "INSERT INTO Orders VALUES (1)")
            with Drive(source, "orders") as drive:
                drive.begin()
                drive.copy()
                source.run("TRUNCATE Orders", "INSERT INTO Orders VALUES (2)")
                drive.follow()
                drive.assert_same()
                source.run("USE Shop", "ALTER TABLE ORDERS ADD n int DEFAULT 1", "RENAME TABLE Orders TO Kept")
                drive.follow()
                assert drive.appeared == ["shop.kept"]
                drive.assert_same("kept")
