"""A position that is not one of the server that is there: refused, never passed over in silence."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from tailrace.adaptors.mongodb.settings import MongoSource
from tailrace.adaptors.mongodb.source.reader import MongoReader
from tailrace.errors import PositionLost
from tests.adaptors.mongodb.driver import Drive
from tests.adaptors.mongodb.place import Place
from tests.conftest import started
from tests.servers import mongodb as servers

pytestmark = pytest.mark.server


def reader(uri: str) -> MongoReader:
    return MongoReader(MongoSource(uri=uri))


def refused(uri: str, position: Any, why: str) -> None:
    """Following from there is refused, and says what to do."""
    with contextlib.closing(reader(uri)) as again, pytest.raises(PositionLost, match=why) as lost:
        for _ in again.follow(position, ["shop.a"]):
            raise AssertionError("it went on")
    assert "Give the pipeline another name" in str(lost.value)


@contextlib.contextmanager
def server(data: Path, port: int | None = None) -> Iterator[Place]:
    with started("MongoDB", lambda: servers.mongod(data=data, port=port)) as made, Place(made, "shop") as place:
        yield place


def followed(place: Place) -> Any:
    """Where a pipeline is that has seen all of a collection's changes."""
    with Drive(place, ["a"]) as drive:
        drive.begin()
        place["a"].insert_one({})
        drive.until(lambda: bool(drive.messages))
        drive.catch_up()
        return drive.position


def test_a_server_restored_from_a_backup(tmp_path: Path) -> None:
    with server(tmp_path / "data") as place:
        place["a"].insert_one({})
        port = place.server.port
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    with server(tmp_path / "data", port) as place:
        behind = followed(place)
        ahead = {**behind, "time": [behind["time"][0] + 3600, 1], "token": ""}
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "backup").rename(tmp_path / "data")
    with server(tmp_path / "data", port) as place:
        refused(place.uri, ahead, "went back in time")
        # It has come past the position meanwhile, and has its own changes there.
        place["a"].insert_one({"other": True})
        place["a"].insert_one({"other": True})
        refused(place.uri, behind, "another one|went back in time")


def test_another_replica_set_under_the_same_name(tmp_path: Path) -> None:
    with server(tmp_path / "one") as place:
        position = followed(place)
        port = place.server.port
    with server(tmp_path / "other", port) as place:
        place["a"].insert_one({})
        refused(place.uri, position, "is another replica set")
        # Where the user may not ask which one it is, the change that was read last tells.
        refused(place.uri, {**position, "set": ""}, "does not have the change that was read last|went back in time")


def test_history_lost(tmp_path: Path) -> None:
    small = ("--oplogSize", "1", "--syncdelay", "1")  # what a recovery would need is kept until a checkpoint
    with (
        started("MongoDB", lambda: servers.mongod(data=tmp_path, options=small)) as made,
        Place(made, "shop") as place,
    ):
        old = followed(place)
        deadline = time.monotonic() + 60
        while not _begins_after(place, old["time"][0]):
            assert time.monotonic() < deadline, "the oplog keeps everything"
            place["filler"].insert_many([{"x": "x" * 500_000} for _ in range(4)])
        refused(place.uri, old, "no longer has what came after the pipeline's position.*")
        refused(place.uri, {**old, "token": ""}, "replSetResizeOplog")
        # An anchor older than the oplog says nothing, as long as the position itself is there.
        with contextlib.closing(place.reader()) as again:
            position = again.begin([])
            changes = again.follow({**position, "anchor": old["anchor"]}, ["shop.a"])
            place["a"].insert_one({})
            while not next(changes).rows:
                pass


def _begins_after(place: Place, seconds: int) -> bool:
    """Whether the oplog has nothing of this second any more."""
    try:
        first = place.client["local"]["oplog.rs"].find().sort("$natural", 1).limit(1).next()
    except OperationFailure:  # it was removed while it was read
        return False
    return bool(first["ts"].time > seconds)
