"""Trouble: one clear error each, and never a password in it."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pyspark import SparkContext

import tailrace
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.errors import failed, refused
from tailrace.adaptors.postgres.settings import PostgresSink, PostgresSource
from tailrace.adaptors.postgres.sink.writer import PostgresWriter
from tailrace.adaptors.postgres.source.reader import PostgresReader
from tailrace.adaptors.registry import make_reader
from tailrace.errors import BadSetting, NotInstalled, NotReady, NotThere, PositionLost, Rejected, Unavailable
from tailrace.pipeline.define.definition import Definition, SinkDefinition, SourceDefinition
from tailrace.pipeline.operate.ledger import remember
from tailrace.pipeline.run.runner import Runner
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.servers import postgres as servers
from tests.servers.postgres import PASSWORD, Postgres
from tests.servers.process import folder

SECRET = "hunter2-very-secret"


def never() -> SparkContext:
    raise RuntimeError("Spark was started")


def said(kind: type[BaseException], do: Callable[[], object], *, secret: str = PASSWORD) -> str:
    """The message of an error of this kind, after looking for the password in all that is printed of it."""
    with pytest.raises(kind) as caught:
        do()
    printed = "".join(traceback.format_exception(caught.value))
    assert secret not in printed
    assert secret not in repr(caught.value)
    return str(caught.value)


def reader(uri: str, **settings: object) -> PostgresReader:
    return PostgresReader(PostgresSource(uri=uri, **settings))


@pytest.mark.server
class TestConnecting:
    def test_wrong_password(self, postgres18: Postgres) -> None:
        for check in (reader(postgres18.uri(password=SECRET)).check, _writer(postgres18.uri(password=SECRET)).check):
            text = said(NotReady, check, secret=SECRET)
            assert 'password authentication failed for user "postgres"; check user and password' in text

    def test_a_password_that_is_mended(self, source18: Place) -> None:
        name = f"clerk_{source18.name}"
        source18.run(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'other'")
        source18.run(f"GRANT CREATE ON DATABASE {source18.name} TO {name}")
        uri = source18.server.uri(source18.name, user=name, password=SECRET)
        ends = reader(uri), _writer(uri)
        for end in ends:
            assert f'password authentication failed for user "{name}"' in said(NotReady, end.check, secret=SECRET)
        source18.run(f"ALTER ROLE {name} PASSWORD '{SECRET}'")
        for end in ends:
            end.check()
        source18.run(f"DROP OWNED BY {name}; DROP ROLE {name}")

    def test_no_such_database(self, postgres18: Postgres) -> None:
        text = said(NotReady, reader(postgres18.uri("nowhere")).check)
        assert 'database "nowhere" does not exist; create it, or name another one in the uri' in text

    def test_nobody_there(self) -> None:
        text = said(Unavailable, reader(f"postgresql://u:{SECRET}@127.0.0.1:1/shop").check, secret=SECRET)
        assert text.startswith(
            "PostgreSQL at 127.0.0.1:1/shop cannot be reached: Connection refused; is it running there"
        )

    def test_copies_and_logs_say_the_same(self, postgres18: Postgres) -> None:
        database = Database(postgres18.uri(password=SECRET))
        for connect in (database.open, database.arrow, database.log):
            assert "password authentication failed" in said(NotReady, connect, secret=SECRET)

    @pytest.mark.parametrize(
        "uri",
        [
            f"user {SECRET}", f"postgresql://u:{SECRET}@h/d?nonsense=1", f"postgresql://[{SECRET}",
            f"postgresql://u:a@{SECRET}@h/d", f"postgresql://u:a/{SECRET}@h/d", f"postgresql://u:1/{SECRET}@h/d",
            f"postgresql://u:a?b@{SECRET}@h/d", f"postgresql://u:{SECRET}/b",
        ],
    )  # fmt: skip
    def test_no_uri(self, uri: str) -> None:
        text = said(BadSetting, reader(uri).check, secret=SECRET)
        assert "looks like postgresql://" in text
        assert "@ and / in a password are written %40 and %2F" in text

    @pytest.mark.parametrize(
        "uri",
        [
            "postgresql://u:a%40b%2Fc@127.0.0.1:1/d%40e",
            "postgresql:///d?host=@socket",
            "postgresql://h:1,i:2/d",
            "dbname=a@b",
        ],
    )
    def test_a_uri_as_odd_as_it_may_be(self, uri: str) -> None:
        Database(uri)


def _writer(uri: str) -> PostgresWriter:
    return PostgresWriter(PostgresSink(uri=uri))


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Postgres]:
    """A server that keeps next to no log for its slots."""
    settings = FAST | {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with started("PostgreSQL 18", lambda: servers.postgres(settings=settings)) as server:
        yield server


@pytest.fixture
def poor(source: Place) -> Iterator[str]:
    """The uri of a user with no rights at all."""
    name = f"poor_{source.name}"
    source.run(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    yield source.server.uri(source.name, user=name, password=SECRET)
    source.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.server
class TestSource:
    def test_a_table_without_a_key_is_known_before_anything_is_changed(self, source: Place) -> None:
        source.run("CREATE TABLE nameless (a int)")
        text = said(NotReady, lambda: reader(source.uri).check_namespaces(["public.nameless"]))
        assert "public.nameless: no primary key" in text
        assert "ALTER TABLE" in text
        reader(source.uri, identity="full").check_namespaces(["public.nameless"])
        assert source.ask("SELECT relreplident::text FROM pg_class WHERE relname = 'nameless'") == [("d",)]
        assert source.ask("SELECT count(*) FROM pg_publication") == [(0,)]

    def test_log_level(self) -> None:
        """What it says is done, and then the same reader works."""
        start = lambda port, **settings: started(  # noqa: E731
            "PostgreSQL 18", lambda: servers.postgres(data=home, port=port, settings=FAST | settings)
        )
        with folder(None) as home:
            with start(None, wal_level="replica") as server, Place(server, "postgres") as source:
                source.run("CREATE TABLE t (id int PRIMARY KEY)")
                one = source.reader()
                for do in (one.check, lambda: one.begin(["public.t"])):
                    text = said(NotReady, do)
                    assert "wal_level = replica" in text
                    assert "ALTER SYSTEM SET wal_level = 'logical'; and restart the server" in text
            with start(server.port):
                one.check()
                assert "lsn" in one.begin(["public.t"])

    def test_rights(self, source: Place, poor: str) -> None:
        """Each error says what to do, and the next one comes when that is done."""
        user = f"poor_{source.name}"
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        text = said(NotReady, reader(poor).check, secret=SECRET)
        assert f"ALTER ROLE {user} REPLICATION;" in text
        source.run(f"ALTER ROLE {user} REPLICATION")
        reader(poor).check()
        begin = lambda: reader(poor, slot=source.name).begin(["public.t"])  # noqa: E731
        text = said(NotReady, begin, secret=SECRET)
        assert "must be owner of table t" in text or "permission denied for database" in text
        assert f'CREATE PUBLICATION "{source.name}" FOR TABLE "public"."t" WITH (publish_via_partition_root' in text
        source.run(text.rsplit(": ", 1)[1])
        begin()
        text = said(NotReady, lambda: list(reader(poor, slot=source.name).copy(_piece(source))), secret=SECRET)
        assert "permission denied for table t" in text
        source.run(f"GRANT SELECT ON t TO {user}")
        list(reader(poor, slot=source.name).copy(_piece(source)))

    def test_hidden_rows(self, source: Place, poor: str) -> None:
        """Row security would hide rows without a word."""
        source.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        source.run(f"GRANT SELECT ON t TO poor_{source.name}")
        text = said(NotReady, lambda: list(reader(poor, slot=source.name).copy(_piece(source))), secret=SECRET)
        assert "row-level security" in text

    def test_no_such_table(self, source18: Place) -> None:
        """It was dropped since it was listed: that ends nothing, and the caller of `pieces` leaves it out."""
        assert "lsn" in source18.reader().begin(["public.nothing"])
        text = said(NotThere, lambda: source18.reader().pieces("public.nothing", 10))
        assert "has no table public.nothing; create it, or leave it out of the namespace" in text
        source18.run("CREATE TABLE nothing (id int PRIMARY KEY)")
        assert "lsn" in source18.reader().begin(["public.nothing"])
        assert len(source18.reader().pieces("public.nothing", 10)) == 1

    def test_slot_in_use(self, source: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        with Drive(source, None, ["public.t"]) as drive:
            drive.begin()
            drive.step()
            ((pid,),) = source.ask("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", source.name)
            text = said(NotReady, source.reader().check)
            assert f"is in use by pid {pid}" in text
            assert f"SELECT pg_terminate_backend({pid})" in text
            drive.stop()
            source.reader().check()

    def test_slot_of_another_kind(self, source: Place) -> None:
        source.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", source.name)
        assert "choose another name: slot = '…'" in said(NotReady, source.reader().check)

    def test_slot_gone(self, source: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        drive = Drive(source, None, ["public.t"])
        drive.begin()
        source.run("SELECT pg_drop_replication_slot(%s)", source.name)
        text = said(PositionLost, drive.step)
        assert f"changes from {drive.position['lsn']} can no longer be read" in text
        assert "Copy the tables afresh: give the pipeline another name, and empty its sinks" in text

    def test_slot_of_another_pipeline(self, source18: Place, tmp_path: Path) -> None:
        """What the second one had read would be lost to the first."""
        source18.run("CREATE TABLE t (id int PRIMARY KEY)")
        settings = {"uri": source18.uri, "slot": source18.name}
        sink = SinkDefinition("lake", "file", {"path": str(tmp_path / "out")})
        first = Definition("first", str(tmp_path / "home"), SourceDefinition("postgres", settings), (sink,))
        with tailrace.open(tmp_path / "home") as home:
            remember(home, first)
        second = Runner(replace(first, name="second"), never)
        with pytest.raises(RuntimeError, match="Spark"):  # the slot is nobody's yet: of a beginning that was cut off
            second.run(once=True)
        third = Runner(replace(first, name="third"), never)
        text = said(BadSetting, lambda: third.run(once=True))
        assert f"reads slot {source18.name!r} of the same source" in text
        assert "give 'third' another slot" in text
        other = replace(first.source, settings={**settings, "slot": f"{source18.name}_2"})
        with pytest.raises(RuntimeError, match="Spark"):
            Runner(replace(first, name="third", source=other), never).run(once=True)

    def test_slot_made_anew(self, source: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        drive = Drive(source, None, ["public.t"])
        drive.begin()
        source.run("SELECT pg_drop_replication_slot(%s)", source.name)
        source.run("INSERT INTO t VALUES (1)")
        source.reader().begin(["public.t"])
        assert "it was made again or read by another program, so changes from" in said(PositionLost, drive.step)

    def test_log_removed(self, forgetful: Postgres) -> None:
        with Place(forgetful, "postgres") as source:
            source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
            drive = Drive(source, None, ["public.t"])
            drive.begin()
            deadline = time.monotonic() + 60
            while source.ask("SELECT wal_status FROM pg_replication_slots") != [("lost",)]:
                source.run("SELECT pg_switch_wal()")
                source.run(
                    "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, 20)"
                )
                source.run("CHECKPOINT")
                assert time.monotonic() < deadline
            text = said(PositionLost, drive.step)
            assert "the server removed the log it should have kept (wal_removed)" in text
            assert f"so changes from {drive.position['lsn']} can no longer be read.  Copy the tables afresh" in text
            assert "pg_drop_replication_slot('postgres')" in text
            assert said(PositionLost, source.reader().check) == text
            source.run("INSERT INTO t VALUES (1, 'missed')")
            source.run("SELECT pg_drop_replication_slot('postgres')")
            drive.stop()
            drive.begin()
            drive.copy()
            assert sum(batch.num_rows for batch in drive.seen) == 1
            drive.step()
            drive.close()

    def test_ended_while_followed(self, source: Place) -> None:
        source.run("CREATE TABLE t (id int PRIMARY KEY)")
        with Drive(source, None, ["public.t"]) as drive:
            drive.begin()
            drive.step()
            source.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
            text = said(Unavailable, lambda: [drive.step() for _ in range(100)])
            assert "following" in text
            drive.stop()
            source.run("INSERT INTO t VALUES (1)")
            drive.follow()
            assert sum(batch.num_rows for batch in drive.seen) == 1


def _piece(source: Place):
    ((piece),) = source.reader().pieces("public.t", 10)
    return piece


class TestSettings:
    def test_their_text_has_no_password(self) -> None:
        uri = f"postgresql://u:{SECRET}@h/d"
        for settings in (PostgresSource(uri=uri), PostgresSink(uri=uri)):
            for text in (repr(settings), str(settings), f"{settings}", repr([settings])):
                assert SECRET not in text
                assert "uri=***" in text
        assert SECRET not in repr(reader(uri)) + repr(_writer(uri)) + repr(Database(uri))

    def test_a_typo(self) -> None:
        with pytest.raises(BadSetting, match="has no 'slott'; did you mean 'slot'"):
            make_reader("postgres", {"uri": f"postgresql://u:{SECRET}@h/d", "slott": "x"})

    def test_a_slot_that_cannot_be_one(self) -> None:
        with pytest.raises(BadSetting, match="slot"):
            make_reader("postgres", {"uri": "postgresql://h/d", "slot": "Not A Slot"})

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(NotInstalled, match=r"pip install 'tailrace\[postgres\]'"):
            reader("postgresql://h/d").check()


class TestKinds:
    @pytest.mark.parametrize(
        ("state", "kind"),
        [
            ("08006", Unavailable), ("57P01", Unavailable), ("40P01", Unavailable), ("53300", Unavailable),
            ("55P03", Unavailable), ("25006", Unavailable), ("22003", Rejected), ("23505", Rejected),
            ("42501", NotReady), ("42P01", NotReady), ("53400", NotReady),
        ],
    )  # fmt: skip
    def test_states(self, state: str, kind: type[Exception]) -> None:
        error = psycopg.errors.lookup(state)("it happened") if state != "57P01" else psycopg.errors.AdminShutdown("x")
        assert type(failed(error, "h/d", "doing", "n")) is kind

    def test_without_a_state(self) -> None:
        assert type(failed(psycopg.OperationalError("gone"), "h/d", "doing")) is Unavailable
        assert type(failed(psycopg.DataError("no"), "h/d", "doing")) is Rejected
        assert type(failed(psycopg.ProgrammingError("no"), "h/d", "doing")) is NotReady

    def test_a_user_that_is_not_there_does_not_come_by_waiting(self) -> None:
        """Where no password is asked for, the server says so."""
        error = refused(ConnectionError('connection failed: FATAL:  role "clerk" does not exist'), "h/d", {})
        assert type(error) is NotReady
        assert 'role "clerk" does not exist; create it, or name another user in the uri' in str(error)

    @pytest.mark.parametrize(
        "text", ["the database system is starting up", "sorry, too many clients already", "timeout expired"]
    )
    def test_refusals_that_pass(self, text: str) -> None:
        assert type(refused(ConnectionError(f"connection failed: FATAL:  {text}"), "h/d", {})) is Unavailable
