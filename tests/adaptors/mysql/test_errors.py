"""What is said when something is not set up: one line, with the command that mends it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pymysql
import pytest

from tailrace.adaptors.mysql.settings import MySQLSource
from tailrace.adaptors.mysql.source.reader import MySQLReader
from tailrace.errors import BadSetting, NotReady, NotThere, PositionLost, TailraceError, Unavailable
from tests.adaptors.mysql.place import Place
from tests.conftest import started
from tests.servers import mariadb as mariadbs
from tests.servers import mysql as mysqls
from tests.servers.mysql import FAST, MySQL
from tests.servers.process import HOST, free_ports

pytestmark = pytest.mark.server


def said(reader: MySQLReader, kind: type[TailraceError] = NotReady) -> str:
    with pytest.raises(kind) as caught:
        reader.check()
    text = str(caught.value)
    assert "\n" not in text
    assert mysqls.PASSWORD not in text
    assert mysqls.PASSWORD not in repr(reader)
    return text


@pytest.fixture
def user(source: Place) -> Iterator[str]:
    """A user without any right but to connect."""
    name = f"u{source.name}"[:30]
    source.run(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'its-secret'")
    yield name
    source.run(f"DROP USER '{name}'@'%'")


class TestRights:
    def reader(self, source: Place, user: str, password: str = "its-secret", **more: str) -> MySQLReader:
        return MySQLReader(MySQLSource(uri=source.server.uri(source.name, user=user, password=password), **more))

    def test_a_wrong_password(self, source: Place, user: str) -> None:
        text = said(self.reader(source, user, "another"))
        assert "check user and password in the uri" in text
        assert "another" not in text

    def test_no_such_user(self, source: Place) -> None:
        assert "check user and password" in said(self.reader(source, "nobody"))

    def test_the_right_to_replicate_is_named_and_helps(self, source: Place, user: str) -> None:
        source.run(f"GRANT SELECT ON {source.name}.* TO '{user}'@'%'")
        text = said(self.reader(source, user))
        command = text[text.index("GRANT") :]
        assert command == f"GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%';"
        source.run(command)
        self.reader(source, user).check()

    def test_the_right_to_select_is_named_and_helps(self, source: Place, user: str) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        source.run(f"GRANT INSERT, REPLICATION SLAVE ON *.* TO '{user}'@'%'")
        reader = self.reader(source, user)
        reader.check()
        with pytest.raises(NotReady) as caught:
            list(reader.copy(reader.pieces(f"{source.name}.t", 10)[0]))
        command = str(caught.value)[str(caught.value).index("GRANT") :]
        source.run(command)
        assert list(reader.copy(reader.pieces(f"{source.name}.t", 10)[0]))

    def test_a_database_without_rights(self, source: Place, user: str) -> None:
        assert "GRANT SELECT ON" in said(self.reader(source, user))

    def test_with_the_least_rights_everything_works(self, source: Place, user: str) -> None:
        source.run(f"GRANT SELECT ON {source.name}.* TO '{user}'@'%'")
        source.run(f"GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%'")
        source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE b (a int)", "INSERT INTO b VALUES (1)")
        reader = self.reader(source, user)
        reader.check()
        position = reader.begin([f"{source.name}.t", f"{source.name}.b"])
        source.run("INSERT INTO t VALUES (1)", "INSERT INTO b VALUES (1)")
        for changes in reader.follow(position, [f"{source.name}.t", f"{source.name}.b"]):
            if changes.caught_up:
                break
        reader.close()


class TestPlaces:
    def test_no_server(self) -> None:
        (port,) = free_ports(1)
        text = said(MySQLReader(MySQLSource(uri=f"mysql://a:{mysqls.PASSWORD}@{HOST}:{port}/x")), Unavailable)
        assert "is it running there" in text

    def test_no_such_database(self, source: Place) -> None:
        assert "create it, or name another one" in said(MySQLReader(MySQLSource(uri=source.server.uri("not_there"))))

    @pytest.mark.parametrize(
        "uri",
        ["postgresql://a@b/c", "mysql://", "a", "mysql://u:p@ss/w@h/d", f"mysql://u:{mysqls.PASSWORD}@h:port/d"],
    )
    def test_a_uri_that_cannot_be_understood(self, uri: str) -> None:
        with pytest.raises(BadSetting, match="looks like mysql://") as caught:
            MySQLReader(MySQLSource(uri=uri)).check()
        assert mysqls.PASSWORD not in str(caught.value)

    def test_options_of_the_uri(self) -> None:
        with pytest.raises(BadSetting, match="did you mean 'ssl-mode'"):
            MySQLReader(MySQLSource(uri="mysql://h/d?sslmode=x")).check()
        with pytest.raises(BadSetting, match="REQUIRED"):
            MySQLReader(MySQLSource(uri="mysql://h/d?ssl-mode=never")).check()
        for seconds in ("abc", "0", "-1", "1.5", "99999999999"):
            with pytest.raises(BadSetting, match="connect-timeout"):
                MySQLReader(MySQLSource(uri=f"mysql://h/d?connect-timeout={seconds}")).check()

    def test_a_missing_table(self, source: Place) -> None:
        with pytest.raises(NotThere, match="there is no table"):
            source.reader().pieces(f"{source.name}.none", 10)


class TestTLS:
    def test_a_server_with_a_certificate(self, mysql: MySQL) -> None:
        """MySQL makes itself an authority and a certificate at its first start."""
        uri = mysql.uri()
        MySQLReader(MySQLSource(uri=f"{uri}?ssl-mode=REQUIRED")).check()
        MySQLReader(MySQLSource(uri=f"{uri}?ssl-mode=VERIFY_CA&ssl-ca={mysql.data}/ca.pem")).check()
        MySQLReader(MySQLSource(uri=f"{uri}?ssl-mode=DISABLED")).check()
        assert "ssl-ca=" in said(MySQLReader(MySQLSource(uri=f"{uri}?ssl-mode=VERIFY_CA")))
        with pytest.raises(BadSetting, match="cannot be read"):
            MySQLReader(MySQLSource(uri=f"{uri}?ssl-ca=/nowhere")).check()

    def test_a_server_without_tls(self, mariadb: MySQL) -> None:
        MySQLReader(MySQLSource(uri=mariadb.uri())).check()
        assert "PREFERRED" in said(MySQLReader(MySQLSource(uri=f"{mariadb.uri()}?ssl-mode=REQUIRED")))


class TestSettings:
    """Each is set, refused, mended by the very command that was said, and then will do."""

    @pytest.mark.parametrize(
        ("name", "value"),
        [("binlog_format", "STATEMENT"), ("binlog_row_image", "MINIMAL"), ("binlog_row_metadata", "MINIMAL")],
    )
    def test_the_command_mends_it(self, source: Place, name: str, value: str) -> None:
        source.run(f"SET GLOBAL {name} = '{value}'")
        try:
            text = said(source.reader())
            assert f"{name} = {value}" in text
            command = text[text.index("SET ") : text.index(";", text.index("SET "))]
            source.run(command)
            source.reader().check()
        finally:
            source.run(f"SET GLOBAL {name} = '{'ROW' if name == 'binlog_format' else 'FULL'}'")
            if source.server.flavor == "mysql":
                source.run(f"RESET PERSIST IF EXISTS {name}")

    def test_partial_json(self, mysql: MySQL) -> None:
        with Place(mysql, "") as place:
            place.run("SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
            try:
                text = said(place.reader())
                assert "binlog_row_value_options = '';" in text
            finally:
                place.run("SET GLOBAL binlog_row_value_options = ''")

    @pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
    def test_without_a_binlog(self, flavor: str) -> None:
        off = {"skip-log-bin": "1"}
        start = mysqls.mysql if flavor == "mysql" else mariadbs.mariadb
        given = {**FAST, **off, "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"} if flavor == "mysql" else off
        with started(flavor, lambda: start(settings=given)) as server, Place(server, "") as place:
            text = said(place.reader())
            assert "log_bin" in text
            assert "restart the server" in text
            place.run("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
            reader = place.reader(follow=False)
            reader.check()
            assert reader.begin(["d.t"]) is None
            assert sum(b.num_rows for b in reader.copy(reader.pieces("d.t", 1)[0])) == 1
            with pytest.raises(BadSetting, match="another name"):
                place.reader().follow(None, ["d.t"])

    def test_without_gtids(self) -> None:
        off = {**FAST, "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
        with started("MySQL", lambda: mysqls.mysql(settings=off)) as server, Place(server, "") as place:
            text = said(place.reader())
            for command in text[text.index("SET") :].rstrip(";").split(";"):
                place.run(command)
            place.reader().check()


def test_a_purged_log(source: Place) -> None:
    """Told before anything is read, with what to do."""
    source.run("CREATE TABLE t (id int PRIMARY KEY)")
    reader = source.reader()
    position = reader.begin([f"{source.name}.t"])
    source.run("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS")
    last = source.ask("SHOW BINARY LOGS")[-1][0]
    source.run("INSERT INTO t VALUES (2)")
    deadline = time.monotonic() + 20
    while source.ask("SHOW BINARY LOGS")[0][0] != last:  # a file that is still sent, or needed for recovery, stays
        assert time.monotonic() < deadline
        source.run(f"PURGE BINARY LOGS TO '{last}'")
        time.sleep(0.05)
    with pytest.raises(PositionLost, match="copy the tables afresh") as caught:
        next(reader.follow(position, [f"{source.name}.t"]))
    assert "keep its log for longer" in str(caught.value)
    reader.close()


def test_another_flavor(mysql: MySQL, mariadb: MySQL) -> None:
    with Place(mysql, "") as one, Place(mariadb, "") as other:
        position = one.reader().begin([])
        with pytest.raises(NotReady, match="copy the tables afresh"):
            next(other.reader().follow(position, []))


def test_a_lost_connection_is_not_an_end(source: Place) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)")
    reader = source.reader()
    changes = reader.follow(reader.begin([f"{source.name}.t"]), [f"{source.name}.t"])
    next(changes)
    for number, *_, command, _, _, _ in [row[:8] for row in source.ask("SHOW PROCESSLIST")]:
        if str(command).startswith("Binlog Dump"):
            with contextlib.suppress(pymysql.Error):  # it has ended by itself
                source.run(f"KILL {number}")
    with pytest.raises(Unavailable):
        for _ in range(100):
            next(changes)
    reader.close()
