"""Servers that are killed, that go back in time, that are taken over from; transactions larger than memory."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.mysql.sink.writer import MySQLWriter
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import PositionLost, Unavailable
from tailrace.log.record import Mode
from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place
from tests.servers import mariadb as mariadbs
from tests.servers import mysql as mysqls
from tests.servers.mysql import PASSWORD, MySQL
from tests.servers.process import HOST, Missing, free_ports

pytestmark = [pytest.mark.server, pytest.mark.processes]
SAFE = {"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1"}
Start = Callable[..., Any]


@pytest.fixture(params=["mysql", "mariadb"])
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a server of either kind in a folder."""
    try:
        mysqls.program() if request.param == "mysql" else mariadbs.installed()
    except Missing as missing:
        pytest.skip(str(missing))
    return mysqls.mysql if request.param == "mysql" else mariadbs.mariadb


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def database(server: MySQL, stack: ExitStack) -> Place:
    """A database of a server that is the test's own."""
    with Place(server, "") as admin:
        admin.run("CREATE DATABASE IF NOT EXISTS d")
    return stack.enter_context(Place(server, "d"))


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)])])
def test_the_server_is_killed_again_and_again(start: Start, tmp_path: Path, rounds: int) -> None:
    """While somebody writes and while it is copied and followed; it comes back where it was."""
    (port,) = free_ports(1)
    stop = threading.Event()

    def write(server: MySQL, number: int) -> None:
        try:
            with Place(server, "d") as place:
                n = 0
                while not stop.is_set():
                    n += 1
                    place.run(
                        f"INSERT INTO t (v) VALUES ({number * 100000 + n})", f"UPDATE t SET v = v + 1 WHERE id = {n}"
                    )
                    place.run(f"DELETE FROM t WHERE id = {n * 3}")
        except pymysql.Error:
            pass  # the server is gone

    drive: Drive | None = None
    for number in range(rounds + 1):
        with ExitStack() as stack:
            server = stack.enter_context(start(tmp_path / "server", SAFE, port))
            place = database(server, stack)
            if drive is None:
                place.run("CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, v int)")
                place.run(f"INSERT INTO t (v) VALUES {', '.join('(0)' for _ in range(500))}", "ANALYZE TABLE t")
                drive = Drive(place, "t")
                drive.begin()
            drive.source = place
            drive.stop()
            if number == rounds:
                drive.copy()  # pieces that were copied are copied again, later
                drive.follow()
                drive.assert_same()
                break
            writer = threading.Thread(target=write, args=(server, number))
            writer.start()
            if number == 0:
                drive.copy(rows=50)
            with pytest.raises(Unavailable):
                for step in range(1000):
                    drive.step()
                    if step == 5:
                        os.kill(server.pid, signal.SIGKILL)
            stop.set()
            writer.join()
            stop.clear()


def test_the_server_of_a_sink_is_killed_in_the_middle_of_a_batch(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it commits, it has nothing of the batch; the batch that is delivered again is in it once."""
    (port,) = free_ports(1)
    schema = pa.schema([("a", pa.int64()), ("v", pa.string())])
    batches = [
        make_rows(name, pa.record_batch([range(5000), [text] * 5000], schema=schema), keys, mode=Mode.SYNC)
        for name, keys in (("d.keyed", ["a"]), ("d.bare", []))
        for text in ("one", "two")
    ]
    who, expected = Who("pipeline", "writer", 1), [("two", 5000, 5000), ("one", 5000, 10000), ("two", 5000, 10000)]
    with ExitStack() as stack:
        server = stack.enter_context(start(tmp_path / "server", SAFE, port))
        place = database(server, stack)
        place.run("CREATE TABLE keyed (a bigint PRIMARY KEY, v text)", "CREATE TABLE bare (a bigint, v text)")
        writer = stack.enter_context(closing(place.writer()))
        staged, merge = [writer.stage(batches)], MySQLWriter._one

        def fatal(self: MySQLWriter, connection: Any, one: Any) -> None:
            merge(self, connection, one)
            if one.rows.namespace == "d.bare":
                os.kill(server.pid, signal.SIGKILL)

        with monkeypatch.context() as patched, pytest.raises(Unavailable):
            patched.setattr(MySQLWriter, "_one", fatal)
            writer.finish(staged, who, {"0": 1})
    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "server", SAFE, port)), stack)
        writer = stack.enter_context(closing(place.writer()))
        assert writer.restore("pipeline", "writer") is None
        assert place.ask("SELECT (SELECT count(*) FROM keyed) + (SELECT count(*) FROM bare)") == [(0,)]
        for _ in range(2):
            writer.finish([writer.stage(batches)], who, {"0": 1})
        found = "SELECT v, count(*), (SELECT count(*) FROM {0}) FROM {0} GROUP BY v ORDER BY v"
        assert [*place.ask(found.format("keyed")), *place.ask(found.format("bare"))] == expected


def test_a_server_that_went_back_in_time(start: Start, tmp_path: Path) -> None:
    """Restored from an older copy it has never executed what was read of it."""
    import shutil

    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "server", SAFE)), stack)
        place.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    shutil.copytree(tmp_path / "server", tmp_path / "backup")
    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "server", SAFE)), stack)
        drive = stack.enter_context(Drive(place, "t"))
        drive.begin()
        drive.copy()
        place.run("INSERT INTO t VALUES (2)")
        drive.follow()
        position = drive.position
    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "backup", SAFE)), stack)
        reader = place.reader()
        with pytest.raises(PositionLost, match="never executed"):
            next(reader.follow(position, ["d.t"]))
        reader.close()


def test_a_server_that_went_back_and_has_gone_on_since(start: Start, tmp_path: Path) -> None:
    """It gives the GTIDs that were read to other transactions, so that it seems to have all of them."""
    import shutil

    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "server", SAFE)), stack)
        place.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    shutil.copytree(tmp_path / "server", tmp_path / "backup")
    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "server", SAFE)), stack)
        drive = stack.enter_context(Drive(place, "t"))
        drive.begin()
        drive.copy()
        place.run("SET timestamp = 1700000000", "INSERT INTO t VALUES (2)")
        drive.follow()
        position = drive.position
        drive.stop()
        place.run("SET timestamp = 1700003600", "INSERT INTO t VALUES (3)")
        drive.follow()  # the same server still has what was read
    with ExitStack() as stack:
        place = database(stack.enter_context(start(tmp_path / "backup", SAFE)), stack)
        place.run("SET timestamp = 1700007200", *(f"INSERT INTO t VALUES ({n})" for n in range(10, 20)))
        reader = place.reader()
        with pytest.raises(PositionLost, match="has another transaction"):
            next(reader.follow(position, ["d.t"]))
        reader.close()


def test_fail_over_to_a_replica(start: Start, tmp_path: Path) -> None:
    """Another server with other files, which has the transactions; and then changes of its own."""
    more = {"log-slave-updates": "ON", **SAFE}
    with ExitStack() as stack:
        first = stack.enter_context(start(tmp_path / "first", more, server_id=1))
        second = stack.enter_context(start(tmp_path / "second", more, server_id=2))
        replicate(first, second)
        place = database(first, stack)
        place.run(
            "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)", "FLUSH BINARY LOGS"
        )
        drive = stack.enter_context(Drive(place, "t"))
        drive.begin()
        drive.copy()
        place.run("UPDATE t SET v = 5 WHERE id = 1", "INSERT INTO t VALUES (3, 3)")
        drive.follow()
        place.run("INSERT INTO t VALUES (4, 4)")
        there = place.executed()
        other = stack.enter_context(Place(second, "d"))
        wait_for(lambda: other.executed() == there)
        os.kill(first.pid, signal.SIGKILL)
        other.run("STOP SLAVE", "INSERT INTO t VALUES (5, 5)", "DELETE FROM t WHERE id = 2")
        drive.source = other
        drive.follow()
        drive.assert_same()
        assert drive.recopied == []
        assert drive.position["server"] != ""
        assert set(drive.held.keyed["d.t"]) == {"1", "3", "4", "5"}


def replicate(first: MySQL, second: MySQL) -> None:
    with Place(second, "") as replica:
        automatic = "MASTER_AUTO_POSITION = 1" if first.flavor == "mysql" else "MASTER_USE_GTID = slave_pos"
        replica.run(
            f"CHANGE MASTER TO MASTER_HOST='{HOST}', MASTER_PORT={first.port}, MASTER_USER='root', "
            f"MASTER_PASSWORD='{PASSWORD}', MASTER_CONNECT_RETRY=1, {automatic}",
            "START SLAVE",
        )


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except pymysql.Error:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_large_transaction_takes_little_memory(source: Place) -> None:
    """What is beyond 64 MiB of rows waits in a file."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, v mediumtext)")
    with Drive(source, "t", batch_bytes=1 << 20) as drive:
        drive.begin()
        source.run("BEGIN")
        for n in range(150):
            source.run(f"INSERT INTO t VALUES ({n}, REPEAT('x', 1000000))")
        source.run("COMMIT")
        rows = []

        def forget(batch: pa.RecordBatch) -> None:
            rows.append(batch.num_rows)
            drive.batches.clear()

        drive.held.write = forget  # type: ignore[method-assign]
        before = _resident()
        drive.follow()
        grown = _resident() - before
        assert sum(rows) == 150
        assert grown < 130 << 20, f"{grown >> 20} MiB"


def _resident() -> int:
    """Bytes of memory that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
