"""A source that went back in time: refused before it is told anything."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptors.postgres.source.position import lsn_number
from tailrace.errors import PositionLost
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.servers import postgres as servers
from tests.servers.process import free_ports

pytestmark = pytest.mark.server
TABLE = "public.t"


class Cluster:
    """A server that can be stopped, copied as a folder, put back, and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._port = folder, free_ports(1)[0]

    @contextlib.contextmanager
    def running(self) -> Iterator[Place]:
        with (
            started("PostgreSQL 18", lambda: servers.postgres(None, self.folder, FAST, self._port)) as server,
            Place(server, "postgres") as place,
        ):
            yield place

    def saved(self, name: str) -> Path:
        """A copy of the whole folder, owners included, of a server that is stopped."""
        return copied(self.folder / "cluster", self.folder / name)

    def restore(self, backup: Path) -> None:
        shutil.rmtree(self.folder / "cluster")
        copied(backup, self.folder / "cluster")


def copied(source: Path, target: Path) -> Path:
    owner = source.stat()
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    return target


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with servers.folder(None) as made:
        yield Cluster(made)


def confirmed(place: Place) -> int:
    ((lsn,),) = place.ask("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'postgres'")
    return lsn_number(lsn)


def follow(place: Place, position: Any, *tables: str) -> Drive:
    """A run that goes on from a position, with nothing written anywhere."""
    drive = Drive(place, None, tables or [TABLE])
    drive.position = position
    return drive


def begun(place: Place) -> Any:
    place.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Drive(place, None, [TABLE]) as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        return drive.position


def refused(place: Place, position: Any, why: str) -> None:
    """It is refused, twice, and the slot is where it was."""
    for _ in range(2):
        before = confirmed(place) if place.ask("SELECT 1 FROM pg_replication_slots") else None
        with follow(place, position) as drive, pytest.raises(PositionLost, match=why):
            drive.step()
        assert before is None or confirmed(place) == before


def test_a_copy_of_the_folder_that_is_older_than_the_position(cluster: Cluster) -> None:
    with cluster.running() as place:
        position = begun(place)
    backup = cluster.saved("backup")
    with cluster.running() as place:
        place.run("INSERT INTO t SELECT generate_series(1, 1000)")
        with follow(place, position) as drive:
            drive.follow()
            position = drive.position
    cluster.restore(backup)
    with cluster.running() as place:
        place.run("INSERT INTO t VALUES (-1)")
        assert lsn_number(position["lsn"]) > lsn_number(place.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0])
        refused(place, position, "its log ends at")
        # A position of a version before knows no server: the end of the log is compared all the same.
        refused(place, {name: value for name, value in position.items() if name != "server"}, "its log ends at")


def test_a_standby_that_lagged_when_it_was_promoted(cluster: Cluster) -> None:
    with cluster.running() as place:
        position = begun(place)
    backup = cluster.saved("backup")
    with cluster.running() as place:
        place.run("INSERT INTO t SELECT generate_series(1, 1000)")
        with follow(place, position) as drive:
            drive.follow()
            ahead = drive.position
    cluster.restore(backup)
    (cluster.folder / "cluster" / "standby.signal").touch()
    with cluster.running() as place:
        promote(place)
        with follow(place, position) as drive:  # up to where it left the old timeline it has the same log
            place.run("INSERT INTO t VALUES (-1)")
            drive.follow()
            assert sum(batch.num_rows for batch in drive.seen) == 1
            assert drive.position["server"][1] == 2
        place.run("CREATE TABLE filler AS SELECT generate_series(1, 100000) AS n")
        assert lsn_number(ahead["lsn"]) < lsn_number(place.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0])
        refused(place, ahead, "its timeline 2 left timeline 1 at")
        position = drive.position
    cluster.restore(backup)
    with cluster.running() as place:  # the primary of before, after the standby was followed
        place.run("CREATE TABLE filler AS SELECT generate_series(1, 100000) AS n")
        refused(place, position, "its timeline 1 did not come from timeline 2")


def promote(place: Place) -> None:
    place.run("SELECT pg_promote()")
    deadline = time.monotonic() + 30
    while place.ask("SELECT pg_is_in_recovery()") == [(True,)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_another_cluster_under_the_same_address(source18: Place) -> None:
    position = begun(source18)
    (system, timeline) = position["server"]
    with (
        follow(source18, {**position, "server": [str(int(system) + 1), timeline]}) as drive,
        pytest.raises(PositionLost, match="it is another cluster"),
    ):
        drive.step()


def test_a_position_of_a_version_before_learns_its_server(source18: Place) -> None:
    position = begun(source18)
    with follow(source18, {name: value for name, value in position.items() if name != "server"}) as drive:
        source18.run("INSERT INTO t VALUES (1)")
        drive.follow()
        assert drive.position["server"] == position["server"]


def test_the_server_is_known_without_any_right_but_replication(source18: Place) -> None:
    role = f"plain_{source18.name}"
    source18.run(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'; CREATE TABLE t (id int PRIMARY KEY)")
    source18.run(f"ALTER TABLE t OWNER TO {role}; GRANT CREATE ON DATABASE {source18.name} TO {role}")
    try:
        uri = source18.server.uri(source18.name, user=role, password="x")
        with contextlib.closing(source18.reader(uri=uri)) as reader:
            assert reader.begin([TABLE])["server"][1] >= 1
    finally:
        source18.run(f"DROP PUBLICATION {source18.name}")
        source18.run(f"DROP TABLE t; REVOKE ALL ON DATABASE {source18.name} FROM {role}; DROP ROLE {role}")
