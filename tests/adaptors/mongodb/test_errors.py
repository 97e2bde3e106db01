"""Trouble: one clear error each, with what mends it, and never a password in it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

import pymongo
import pytest

from tailrace.adaptors.mongodb.settings import MongoSink, MongoSource
from tailrace.adaptors.mongodb.sink.writer import MongoWriter
from tailrace.adaptors.mongodb.source.reader import MongoReader
from tailrace.adaptors.registry import adaptor, make_reader
from tailrace.errors import BadSetting, NotReady, TailraceError, Unavailable
from tests.conftest import started
from tests.servers import mongodb as servers
from tests.servers.mongodb import PASSWORD, Mongo
from tests.servers.process import HOST, folder

SECRET = "hunter2-very-secret"


def reader(uri: str, **settings: object) -> MongoReader:
    return MongoReader(MongoSource(uri=uri, **settings))  # type: ignore[arg-type]


def writer(uri: str) -> MongoWriter:
    return MongoWriter(MongoSink(uri=uri))


def said(kind: type[TailraceError], end: MongoReader | MongoWriter, do: Callable[[], object] | None = None) -> str:
    """The message of an error of this kind, after looking for passwords in all that is printed of it."""
    with contextlib.closing(end), pytest.raises(kind) as caught:
        (do or end.check)()
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(end)
    assert SECRET not in printed
    assert PASSWORD not in printed
    return str(caught.value)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Mongo]:
    """A replica set that asks for passwords: `root` may do everything, `clerk` may read the database shop."""
    with folder(None) as home:
        key = home / "key"
        key.write_text("c2VjcmV0" * 20)
        key.chmod(0o600)
        options = ("--keyFile", str(key), "--auth")
        with started("MongoDB", lambda: servers.mongod(data=home, options=options)) as server:
            with pymongo.MongoClient(HOST, server.port, directConnection=True) as local:
                local.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
            with pymongo.MongoClient(server.uri(user="root")) as root:
                root["shop"]["a"].insert_one({})
                root.admin.command("createUser", "clerk", pwd=PASSWORD, roles=[{"role": "read", "db": "shop"}])
                root.admin.command("createUser", "nobody", pwd=PASSWORD, roles=[])
            yield server


@pytest.mark.server
class TestRights:
    def test_wrong_password(self, guarded: Mongo) -> None:
        uri = guarded.uri("shop", user="root", password=SECRET)
        for end in (reader(uri), writer(uri)):
            text = said(NotReady, end)
            assert "Authentication failed" in text
            assert "check user, password and authSource in the uri" in text

    def test_no_password(self, guarded: Mongo) -> None:
        assert "grantRolesToUser" in said(NotReady, reader(guarded.uri("shop")))

    def test_a_missing_right_to_follow(self, guarded: Mongo) -> None:
        text = said(NotReady, reader(guarded.uri("shop", user="nobody")))
        assert "not authorized on shop" in text
        assert 'grantRolesToUser("nobody", ["readAnyDatabase", "clusterMonitor"])' in text

    def test_all_databases_need_more_than_one(self, guarded: Mongo) -> None:
        assert 'grantRolesToUser("clerk"' in said(NotReady, reader(guarded.uri(user="clerk")))

    def test_to_read_one_database_the_right_to_read_it_is_enough(self, guarded: Mongo) -> None:
        with contextlib.closing(reader(guarded.uri("shop", user="clerk"))) as end:
            end.check()
            position = end.begin([])
            assert position["set"] == ""
            assert not next(iter(end.follow(position, []))).rows

    def test_a_missing_right_to_write(self, guarded: Mongo) -> None:
        text = said(NotReady, writer(guarded.uri("shop", user="clerk")))
        assert "not authorized on tailrace" in text
        assert 'grantRolesToUser("clerk", ["readWriteAnyDatabase"])' in text


@pytest.mark.server
def test_a_standalone_server() -> None:
    with started("MongoDB", lambda: servers.mongod(replicated=False)) as server:
        end, other = reader(server.uri("shop")), reader(server.uri("shop"))
        for text in (said(NotReady, end), said(NotReady, other, lambda: other.begin([]))):
            assert "is a standalone server, whose changes cannot be followed" in text
            assert "`mongod --replSet rs0`, and once: mongosh --eval 'rs.initiate()'" in text
        with server.client() as client:
            client["shop"]["a"].insert_many([{"_id": n} for n in range(250)])
        with contextlib.closing(reader(server.uri("shop"), follow=False)) as end:
            end.check()
            assert end.begin(["shop.a"]) is None
            copied = [b.num_rows for piece in end.pieces("shop.a", 100) for b in end.copy(piece)]
            assert sum(copied) == 250
            with pytest.raises(BadSetting, match="follow = false"):
                end.follow(None, ["shop.a"])


def test_no_server_there() -> None:
    uri = f"mongodb://u:{SECRET}@127.0.0.1:1/shop?serverSelectionTimeoutMS=200"
    for end in (reader(uri), writer(uri)):
        text = said(Unavailable, end)
        assert text.startswith("MongoDB at 127.0.0.1:1/shop, ")
        assert "Connection refused" in text
        assert "is it running there, and does it have a primary?" in text


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://u:{SECRET}@host/db",
        "mongodb://",
        f"mongodb://u:{SECRET}@h@x/db",
        f"mongodb://u:{SECRET}@h:99999/d",
    ],
)
def test_a_uri_that_is_none(uri: str) -> None:
    assert said(BadSetting, reader(uri)).startswith("uri: ")


def test_it_is_registered() -> None:
    found = adaptor("mongodb")
    assert (found.reader, found.writer) == (MongoReader, MongoWriter)
    with pytest.raises(BadSetting, match="shape"):
        make_reader("mongodb", {"uri": "mongodb://h", "shape": "round"})
