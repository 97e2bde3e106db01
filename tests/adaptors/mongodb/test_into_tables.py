"""MongoDB into PostgreSQL: documents as JSON, or as columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from bson import DatetimeMS, Decimal128, ObjectId

from tailrace.adaptors.contract import Who
from tailrace.adaptors.postgres.settings import PostgresSink
from tailrace.adaptors.postgres.sink.writer import PostgresWriter
from tailrace.adaptors.rows.command import commands_of
from tailrace.adaptors.rows.rows import namespace_of
from tests.adaptors.mongodb.place import Place
from tests.conftest import started
from tests.servers import postgres as servers

pytestmark = pytest.mark.server
OID = ObjectId("5f8f8c44b54764421b7156c9")


@pytest.fixture(scope="module")
def tables() -> Iterator[str]:
    """The uri of a PostgreSQL."""
    with started("PostgreSQL", lambda: servers.postgres(settings={"fsync": "off"})) as server:
        yield server.uri()


class Delivery:
    """Copies a collection into a table, and follows it there."""

    def __init__(self, place: Place, uri: str, **settings: Any) -> None:
        self._reader = place.reader(**settings)
        self._writer = PostgresWriter(PostgresSink(uri=uri, create=True, alter=True))
        self._namespace, self._offset = place.namespace("c"), 0
        position = self._reader.begin([self._namespace])
        for piece in self._reader.pieces(self._namespace, 100):
            self._write(self._reader.copy(piece), place.name)
        self._position = position
        self._name = place.name

    def follow(self) -> None:
        """To where the oplog is now."""
        changes = self._reader.follow(self._position, [self._namespace])
        for some in changes:
            self._write(some.rows, self._name)
            self._position = some.position
            if some.caught_up:
                return

    def _write(self, batches: Any, name: str) -> None:
        for batch in batches:
            self._offset += 1
            who = Who(name, "sink", 1)
            for _, command in commands_of(batch):
                if command.name in self._writer.commands:
                    self._writer.command(namespace_of(batch), command, who)
                break
            else:
                self._writer.finish([self._writer.stage([batch])], who, {"0": self._offset})

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def asked(uri: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(uri) as connection:
        return connection.execute(sql).fetchall()


def test_documents_as_json(place: Place, tables: str) -> None:
    place["c"].insert_many([{"_id": OID, "n": 1, "inner": {"a": [1, "x"]}}, {"_id": 7}, {"_id": "7"}])
    with contextlib.closing(Delivery(place, tables)) as delivery:
        place["c"].update_one({"_id": OID}, {"$set": {"n": "text now"}, "$unset": {"inner": 1}})
        place["c"].delete_one({"_id": 7})
        delivery.follow()
        table = f'"{place.name}"."c"'
        assert asked(tables, f"SELECT _id, document->>'n' FROM {table} ORDER BY 1") == [
            ('"7"', None),
            (str(OID), "text now"),
        ]
        assert asked(tables, f"SELECT document ? 'inner' FROM {table} WHERE _id = '{OID}'") == [(False,)]
        place["c"].drop()
        delivery.follow()
        assert asked(tables, f"SELECT count(*) FROM {table}") == [(0,)]


def test_documents_as_columns(place: Place, tables: str) -> None:
    document = {"_id": 1, "n": 5, "x": 2.5, "d": Decimal128("1.10"), "at": DatetimeMS(0), "who": OID, "tags": ["a"]}
    place["c"].insert_many([document, {"_id": 2, "n": 6, "late": True}])
    with contextlib.closing(Delivery(place, tables, shape="columns")) as delivery:
        table = f'"{place.name}"."c"'
        types = asked(
            tables,
            "SELECT column_name::text, data_type::text FROM information_schema.columns "
            f"WHERE table_schema = '{place.name}' ORDER BY 1",
        )
        assert types == [
            ("_id", "text"), ("at", "timestamp with time zone"), ("d", "numeric"), ("late", "boolean"), ("n", "bigint"),
            ("tags", "jsonb"), ("who", "text"), ("x", "double precision"),
        ]  # fmt: skip
        place["c"].update_one({"_id": 1}, {"$unset": {"n": 1}, "$set": {"more": "text"}})
        place["c"].delete_one({"_id": 2})
        delivery.follow()
        assert asked(tables, f"SELECT _id, n, d::text, who, more FROM {table}") == [
            ("1", None, "1.10", str(OID), "text")
        ]
        place["c"].replace_one({"_id": 1}, {"n": 8})
        delivery.follow()
        assert asked(tables, f"SELECT _id, n, x, d, at, who, tags, more, late FROM {table}") == [
            ("1", 8, None, None, None, None, None, None, None)
        ]
