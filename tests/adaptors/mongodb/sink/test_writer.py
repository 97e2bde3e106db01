"""The writer against a real replica set and a standalone server: the contract of all writers, and MongoDB's own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64

from tailrace.adaptors.contract import DROP, Command, Who
from tailrace.adaptors.mongodb.extended_json import DECODED
from tailrace.adaptors.mongodb.sink import stage, writer
from tailrace.adaptors.mongodb.sink.writer import MongoWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import NotReady, Rejected
from tailrace.log.record import Mode, Op
from tailrace.testing.readercontract import Document
from tailrace.testing.writercontract import WriterContract
from tests.adaptors.mongodb.conftest import fresh
from tests.adaptors.mongodb.place import Place
from tests.adaptors.mongodb.values import IDS, LIKE_EXTENDED_JSON, NAMES, VALUES
from tests.conftest import started
from tests.servers import mongodb as servers
from tests.servers.mongodb import Mongo

pytestmark = pytest.mark.server
WHO = Who("pipeline", "writer", 1)


class MongoSinkCollection:
    """A collection that a contract test writes."""

    def __init__(self, place: Place) -> None:
        self._place, self.namespace = place, place.namespace("documents")

    def writer(self) -> MongoWriter:
        return self._place.writer()

    def documents(self) -> list[Document]:
        found = list(self._place["documents"].find())
        assert all(document["_id"] == document["id"] for document in found)
        return [{"id": document["id"], "text": document.get("text")} for document in found]


class TestMongoWriter(WriterContract):
    @pytest.fixture
    def sink(self, sink_place: Place) -> Any:
        return MongoSinkCollection(sink_place)


class TestSmallTransactions(WriterContract):
    """Batches that take several transactions."""

    @pytest.fixture
    def sink(self, sink_place: Place, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(writer, "MAX_DOCUMENTS_PER_TRANSACTION", 2000)
        monkeypatch.setattr(stage, "INLINE_BYTES", 100)
        monkeypatch.setattr(stage, "PART_BYTES", 100_000)
        return MongoSinkCollection(sink_place)


@pytest.fixture(scope="module")
def standalone() -> Iterator[Mongo]:
    """A server that is no replica set."""
    with started("MongoDB", lambda: servers.mongod(replicated=False)) as server:
        yield server


class TestStandalone(WriterContract):
    """A server without transactions."""

    @pytest.fixture
    def sink(self, standalone: Mongo) -> Iterator[Any]:
        for place in fresh(standalone, "sink"):
            yield MongoSinkCollection(place)


def written(place: Place, batch: pa.RecordBatch, offset: int = 1, **settings: Any) -> None:
    with contextlib.closing(place.writer(**settings)) as sink:
        sink.finish([sink.stage([batch])], WHO, {"0": offset})


def rows(place: Place, columns: dict[str, Any], keys: list[str], **how: Any) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pydict(columns)
    return make_rows(place.namespace("c"), batch, keys, mode=Mode.SYNC, **how)


def found(place: Place) -> list[dict[str, Any]]:
    return list(place.database.get_collection("c", codec_options=DECODED).find().sort("_id"))


JSON = '{"$oid": "x", "n": 1.10, "big": 123456789012345678901234567890, "d": 0.12345678901234567890}'


def test_documents_of_mongodb_come_byte_by_byte(place: Place, sink_place: Place) -> None:
    place["c"].insert_many([{"_id": id, "n": n} for n, id in enumerate(IDS)])
    place["c"].insert_many([{"_id": f"value {name}", "value": value} for name, value in VALUES.items()])
    place["c"].insert_many([{"_id": f"inner {n}", "value": value} for n, value in enumerate(LIKE_EXTENDED_JSON)])
    place["c"].insert_many([{"_id": "all", **VALUES}, {"_id": "names", **NAMES}, {"_id": "first", "$first": 1}])
    with contextlib.closing(place.reader()) as reader, contextlib.closing(sink_place.writer()) as sink:
        pieces = reader.pieces(place.namespace("c"), 50)
        for offset in (1, 2):  # the second time over what is there
            staged = [sink.stage(reader.copy(piece)) for piece in pieces]
            sink.finish(staged, WHO, {"0": offset})
            assert sink_place.raw("c") == place.raw("c")


def test_arrow_types(sink_place: Place) -> None:
    moment = datetime(2024, 2, 29, 12, 0, 0, 1000, UTC)
    columns = {
        "id": pa.array([1], pa.int32()),
        "int64": pa.array([5], pa.int64()),
        "uint64": pa.array([2**64 - 1], pa.uint64()),
        "decimal": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
        "at": pa.array([moment], pa.timestamp("us", "UTC")),
        "far": pa.array([-(2**60)], pa.int64()).cast(pa.timestamp("ms")),
        "day": pa.array([moment.date()], pa.date32()),
        "json": pa.array([JSON], pa.json_()),
        "uuid": pa.array([b"x" * 16], pa.uuid()),
        "list": pa.array([[1, None, 2**40]], pa.list_(pa.int64())),
        "struct": pa.array([{"a": {"b": moment}}]),
        "bytes": pa.array([b"\0\xff"], pa.binary()),
        "null": pa.nulls(1),
    }  # fmt: skip
    written(sink_place, rows(sink_place, columns, ["id"]))
    (document,) = found(sink_place)
    stamp = DatetimeMS(moment)
    assert document == {
        "_id": 1, "id": 1, "int64": Int64(5), "uint64": Decimal128(str(2**64 - 1)), "decimal": Decimal128("1.10"),
        "at": stamp, "far": DatetimeMS(-(2**60)), "day": DatetimeMS(1709164800000),
        "json": {"$oid": "x", "n": 1.1, "big": Decimal128("123456789012345678901234567890"),
                 "d": Decimal128("0.12345678901234567890")},
        "uuid": Binary(b"x" * 16, 4), "list": [1, None, 2**40], "struct": {"a": {"b": stamp}}, "bytes": b"\0\xff",
        "null": None,
    }  # fmt: skip


def test_several_keys_are_a_document(sink_place: Place) -> None:
    written(sink_place, rows(sink_place, {"b": [1], "a": ["x"], "c": [2]}, ["a", "b"]))
    assert found(sink_place) == [{"_id": {"a": "x", "b": 1}, "b": 1, "a": "x", "c": 2}]
    written(sink_place, rows(sink_place, {"b": [1], "a": ["x"], "c": [2]}, ["a", "b"], op=Op.DELETE), 2)
    assert found(sink_place) == []


def test_rows_without_a_key_have_their_place_as_id(sink_place: Place) -> None:
    batch = placed(rows(sink_place, {"a": [1, 1]}, []), 3, pa.array([7, 8], pa.int64()))
    for offset in (1, 2):
        written(sink_place, batch, offset)
    assert found(sink_place) == [{"_id": "3-7", "a": 1}, {"_id": "3-8", "a": 1}]
    with pytest.raises(NotReady, match="has no key"):
        written(sink_place, rows(sink_place, {"a": [1]}, [], op=Op.DELETE), 3)


def test_a_change_of_fields_with_any_name(sink_place: Place) -> None:
    sink_place["c"].insert_one({"_id": 1, "keep": {"x": 1, "y": {"z": 2}}, "gone": 3})
    columns = {"_id": pa.array([1], pa.int32()), "a.b": pa.array(["$x"]), "$gt": pa.array([5], pa.int32())}
    removed = pa.array([["/gone", "/keep/y/z", "/nowhere/at/all"]], pa.list_(pa.string()))
    batch = rows(sink_place, columns, ["_id"], op=Op.UPDATE, whole=pa.array([False]), removed=removed)
    written(sink_place, batch)
    assert found(sink_place) == [{"_id": 1, "keep": {"x": 1, "y": {}}, "a.b": "$x", "$gt": 5}]


def test_a_change_of_very_many_fields(sink_place: Place) -> None:
    """More than expressions can be nested, and more than Python nests calls."""
    written(sink_place, rows(sink_place, {"id": [1], "kept": ["x"]}, ["id"]))
    fields = {f"c{n}": [n] for n in range(1200)}
    written(sink_place, rows(sink_place, {"id": [1], **fields}, ["id"], op=Op.UPDATE, whole=pa.array([False])), 2)
    assert found(sink_place) == [{"_id": 1, "id": 1, "kept": "x"} | {f"c{n}": n for n in range(1200)}]


def test_many_deep_fields_that_go(sink_place: Place) -> None:
    """What a change takes away costs as much as it says, however many fields and however deep."""
    deep: Any = {f"gone {n}": n for n in range(20)} | {"stays": 1}
    for _ in range(30):
        deep = {"in": deep}
    written(sink_place, rows(sink_place, {"id": [1], "v": pa.array([json.dumps(deep)], pa.json_())}, ["id"]))
    removed = pa.array([[f"/v{'/in' * 30}/gone {n}" for n in range(20)]])
    change = rows(sink_place, {"id": [1]}, ["id"], op=Op.UPDATE, whole=pa.array([False]), removed=removed)
    written(sink_place, change, 2)
    left = found(sink_place)[0]["v"]
    for _ in range(30):
        left = left["in"]
    assert left == {"stays": 1}


def test_a_change_of_a_document_that_is_not_there(sink_place: Place) -> None:
    batch = rows(sink_place, {"_id": [1], "a": [2]}, ["_id"], op=Op.UPDATE, whole=pa.array([False]))
    written(sink_place, batch)
    assert found(sink_place) == []


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": [1, 2], "d": pa.array([None, Decimal("1" * 35)], pa.decimal128(38, 0))}, "34 digits"),
        ({"id": [1, 2], "a": ["", "x" * (16 * 1024 * 1024)]}, "MongoDB holds 16 MB"),
        ({"id": pa.array([[1], [2]], pa.list_(pa.int64()))}, "array"),
        ({"id": [1, 2], "v": pa.array(["[]", "[" * 900 + "]" * 900], pa.json_())}, "nested too deep"),
        ({"id": [1, 2], "v": pa.array(["[]", "[" * 5000 + "]" * 5000], pa.json_())}, "nested too deep"),
    ],
)
def test_a_row_that_mongodb_cannot_hold(sink_place: Place, columns: dict[str, Any], why: str) -> None:
    with pytest.raises(Rejected, match=why) as refused:
        written(sink_place, rows(sink_place, columns, ["id"]))
    assert refused.value.namespace == sink_place.namespace("c")
    assert refused.value.id
    assert found(sink_place) == []


def test_a_row_that_the_server_refuses(sink_place: Place) -> None:
    sink_place["c"].create_index("a", unique=True)
    with pytest.raises(Rejected, match="refuses 3") as refused:
        written(sink_place, rows(sink_place, {"id": [1, 2, 3], "a": [1, 2, 1]}, ["id"]))
    assert refused.value.id == "3"
    assert found(sink_place) == []


def test_two_namespaces_for_one_collection(sink_place: Place) -> None:
    one = make_rows("x.c", pa.RecordBatch.from_pydict({"id": [1]}), ["id"])
    other = make_rows("y.c", pa.RecordBatch.from_pydict({"id": [1]}), ["id"])
    with contextlib.closing(sink_place.writer()) as sink, pytest.raises(NotReady, match="would both be written"):
        sink.finish([sink.stage([one, other])], WHO, {"0": 1})
    with (
        contextlib.closing(sink_place.writer(uri=sink_place.server.uri())) as sink,
        pytest.raises(NotReady, match="names no database"),
    ):
        sink.finish([sink.stage([make_rows("c", pa.RecordBatch.from_pydict({"id": [1]}), ["id"])])], WHO, {"0": 1})


def test_what_is_gone_is_noticed(sink_place: Place) -> None:
    written(sink_place, rows(sink_place, {"id": [1, 2]}, ["id"]))
    with contextlib.closing(sink_place.writer()) as sink:
        assert sink.lost(WHO) == []
        sink_place["c"].drop()
        assert sink.lost(WHO) == [f"the collection {sink_place.name}.c"]
        sink.forget(WHO)
        assert sink.lost(WHO) == []


@pytest.mark.parametrize("transactions", [True, False])
def test_a_run_that_dies_within_a_batch_has_lost_nothing(
    sink_place: Place, transactions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all that was there is deleted, and nothing else is written yet."""
    monkeypatch.setattr(writer, "MAX_DOCUMENTS_PER_TRANSACTION", 2)
    monkeypatch.setattr(writer, "MAX_DOCUMENTS_PER_REQUEST", 2)
    monkeypatch.setattr(MongoWriter, "_transactional", transactions)
    written(sink_place, rows(sink_place, {"id": [1, 2]}, ["id"]))
    both = [rows(sink_place, {"id": [1, 2]}, ["id"], op=Op.DELETE), rows(sink_place, {"id": [3, 4]}, ["id"])]
    with contextlib.closing(sink_place.writer()) as sink:
        monkeypatch.setattr(sink, "_last", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.finish([sink.stage(both)], WHO, {"0": 2})
    assert found(sink_place) == []
    with contextlib.closing(sink_place.writer()) as sink:
        assert sink.lost(WHO) == []
        sink.finish([sink.stage(both)], WHO, {"0": 2})
        assert [document["_id"] for document in found(sink_place)] == [3, 4]
        sink.finish([sink.stage(both[1:])], WHO, {"0": 3})
        sink_place["c"].delete_many({})
        assert sink.lost(WHO) == [f"the collection {sink_place.name}.c"], "one that was only added to has something"


def test_a_drop(sink_place: Place) -> None:
    written(sink_place, rows(sink_place, {"id": [1, 2]}, ["id"]))
    with contextlib.closing(sink_place.writer()) as sink:
        for _ in range(2):
            sink.command(sink_place.namespace("c"), Command(DROP), WHO)
        assert found(sink_place) == []
        assert sink.lost(WHO) == []


def test_ids_that_together_are_too_large_for_a_request(sink_place: Place) -> None:
    sink_place["c"].insert_many([{"_id": f"{n} {'x' * 4000}"} for n in range(5000)])
    with contextlib.closing(sink_place.writer()) as sink:
        sink.command(sink_place.namespace("c"), Command(DROP), WHO)
    assert found(sink_place) == []


def test_a_drop_of_a_run_that_stalls_removes_nothing_of_the_next_run(
    sink_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run begins when the stalled one has just seen that the collection is empty."""
    written(sink_place, rows(sink_place, {"id": [1]}, ["id"]))
    next_run, in_transaction = Who("pipeline", "writer", 2), MongoWriter._in_transaction

    def stalls(self: MongoWriter, doing: str, do: Any) -> Any:
        done = in_transaction(self, doing, do)
        if doing.startswith("emptying") and done:
            monkeypatch.setattr(MongoWriter, "_in_transaction", in_transaction)
            with contextlib.closing(sink_place.writer()) as sink:
                sink.claim(next_run)
                sink.finish([sink.stage([rows(sink_place, {"id": [2]}, ["id"])])], next_run, {"0": 2})
        return done

    monkeypatch.setattr(MongoWriter, "_in_transaction", stalls)
    with contextlib.closing(sink_place.writer()) as sink:
        sink.command(sink_place.namespace("c"), Command(DROP), WHO)
    assert [document["_id"] for document in found(sink_place)] == [2]


def test_what_was_staged_is_removed(sink_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "INLINE_BYTES", 0)
    with contextlib.closing(sink_place.writer()) as sink:
        staged = sink.stage([rows(sink_place, {"id": [1, 2]}, ["id"])])
        state = sink_place.client[f"state_{sink_place.name}"]
        assert state["staged"].count_documents({}) == 1
        sink.discard([staged])
        assert state["staged"].count_documents({}) == 0
        sink.finish([sink.stage([rows(sink_place, {"id": [1, 2]}, ["id"])])], WHO, {"0": 1})
        assert state["staged"].count_documents({}) == 0
