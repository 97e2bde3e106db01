"""The writer against real servers: the contract of all writers, and what is DynamoDB's own."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from tailrace.adaptors.contract import Who
from tailrace.adaptors.dynamodb.pace import Pace
from tailrace.adaptors.dynamodb.sink import writer
from tailrace.adaptors.dynamodb.sink.writer import DynamoWriter
from tailrace.adaptors.rows.removal import REMOVED
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import NotReady, Rejected
from tailrace.log.record import Mode, Op
from tailrace.storage.keys import KeySchema
from tailrace.testing.readercontract import Document, some
from tailrace.testing.writercontract import WriterContract, _finish, _rows, _sorted, _staged
from tests.adaptors.dynamodb.place import Place
from tests.adaptors.dynamodb.values import VALUES

pytestmark = pytest.mark.server


class DynamoSinkTable:
    """A table that a contract test writes."""

    def __init__(self, place: Place, **settings: Any) -> None:
        self._place, self._settings, self.namespace = place, settings, f"{place.prefix}documents"

    def writer(self) -> DynamoWriter:
        return self._place.writer(**self._settings)

    def documents(self) -> list[Document]:
        try:
            found = self._place.items(self.namespace)
        except self._place.client.exceptions.ResourceNotFoundException:
            return []
        return [{"id": item["id"], "text": item.get("text")} for item in found]


class DynamoWriterContract(WriterContract):
    """As all writers; the test servers take a millisecond and more for an item, so that many are fewer here."""

    def test_many_rows(self, sink: Any) -> None:
        batches = [_rows(sink, some(range(n, n + 200))) for n in range(0, 800, 200)]
        _finish(sink, [_staged(sink, batches)], {"0": 800})
        assert _sorted(sink) == some(range(800))


class TestTransactions(DynamoWriterContract):
    @pytest.fixture
    def sink(self, place: Place) -> Any:
        return DynamoSinkTable(place)


class TestBatches(DynamoWriterContract):
    @pytest.fixture
    def sink(self, place: Place) -> Any:
        return DynamoSinkTable(place, write="batches")


WHO = Who("pipeline", "writer", 1)


def rows(namespace: str, columns: dict[str, Any], keys: list[str], **how: Any) -> pa.RecordBatch:
    return make_rows(namespace, pa.RecordBatch.from_pydict(columns), keys, mode=Mode.SYNC, **how)


def written(place: Place, batch: pa.RecordBatch, offset: int = 1, **settings: Any) -> None:
    with contextlib.closing(place.writer(**settings)) as sink:
        sink.finish([sink.stage([batch])], WHO, {"0": offset})


@pytest.mark.parametrize(("server", "shape"), [("place", "document"), ("place", "columns"), ("moto_place", "columns")])
def test_items_of_dynamodb_come_as_they_were(request: pytest.FixtureRequest, server: str, shape: str) -> None:
    place: Place = request.getfixturevalue(server)
    table = place.table("values", KeySchema("name", "S", "n", "N"))
    place.put(table, *({"name": name, "n": 1, "value": value} for name, value in VALUES.items()))
    place.put(table, {"name": "all", "n": Decimal("1.5"), **VALUES})
    with (
        contextlib.closing(place.reader(shape=shape)) as reader,
        contextlib.closing(place.writer(prefix=f"{place.prefix}copy-")) as sink,
    ):
        for offset in (1, 2):  # the second time over what is there
            staged = [sink.stage(reader.copy(piece)) for piece in reader.pieces(table, 10)]
            sink.finish(staged, WHO, {"0": offset})
            copied = place.items(f"{place.prefix}copy-{table}")
            assert sorted(copied, key=_name) == sorted(place.items(table), key=_name)


def _name(item: dict[str, Any]) -> Any:
    return item["name"], item["n"]


def test_arrow_types(place: Place) -> None:
    moment = datetime(2024, 2, 29, 12, 0, 0, 1000, UTC)
    columns = {
        "id": pa.array([1], pa.int32()),
        "uint64": pa.array([2**64 - 1], pa.uint64()),
        "decimal": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
        "double": pa.array([0.1], pa.float64()),
        "text": pa.array(["x"]),
        "bytes": pa.array([b"\0"]),
        "yes": pa.array([True]),
        "null": pa.array([None], pa.int64()),
        "moment": pa.array([moment], pa.timestamp("us", "UTC")),
        "fine": pa.array([1], pa.timestamp("ns")),
        "day": pa.array([date(2024, 2, 29)], pa.date32()),
        "list": pa.array([[1, 2]], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1.5}]),
        "json": pa.array(['{"B": "x", "n": 1.10, "big": 123456789012345678901234567890}'], pa.json_()),
    }
    namespace = f"{place.prefix}types"
    written(place, rows(namespace, columns, ["id"]))
    (found,) = place.items(namespace)
    assert found == {
        "id": 1, "uint64": 2**64 - 1, "decimal": Decimal("1.1"), "double": Decimal("0.1"), "text": "x",
        "bytes": b"\0", "yes": True, "null": None, "moment": "2024-02-29T12:00:00.001000Z",
        "fine": "1970-01-01T00:00:00.000000001", "day": "2024-02-29", "list": [1, 2], "struct": {"a": Decimal("1.5")},
        "json": {"B": "x", "n": Decimal("1.1"), "big": 123456789012345678901234567890},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (pa.array([float("nan")]), "NaN"),
        (pa.array([Decimal("1" * 39)], pa.decimal256(39, 0)), "38 digits"),
        (pa.array([1e200]), "out of the range"),
        (pa.array(["x" * 410_000]), "409,600 at most"),
        (pa.array(['{"a":' * 40 + "1" + "}" * 40], pa.json_()), "32 levels"),
        (pa.array(["[" * 900 + "]" * 900], pa.json_()), "nested too deep"),
    ],
)
def test_what_an_item_cannot_hold_is_an_error_for_that_row(place: Place, value: pa.Array[Any], why: str) -> None:
    namespace = f"{place.prefix}bad"
    columns = {"id": pa.array([1, 2]), "v": pa.concat_arrays([pa.nulls(1, value.type), value])}
    with pytest.raises(Rejected, match=why) as rejected:
        written(place, rows(namespace, columns, ["id"]))
    assert (rejected.value.namespace, rejected.value.id) == (namespace, "2")


@pytest.mark.parametrize("key", ["", "x" * 2049])
def test_keys_that_dynamodb_does_not_hold(place: Place, key: str) -> None:
    with pytest.raises(Rejected, match="hash key 'id' has 1 to 2,048 bytes"):
        written(place, rows(f"{place.prefix}bad", {"id": pa.array([key])}, ["id"]))


def test_large_items_in_one_batch(place: Place) -> None:
    namespace, text = f"{place.prefix}large", "x" * 390_000
    written(place, rows(namespace, {"id": pa.array(range(15)), "v": pa.array([text] * 15)}, ["id"]))
    assert sorted(item["id"] for item in place.items(namespace)) == list(range(15))


def test_a_key_of_two_fields_and_what_changes_a_part(place: Place) -> None:
    namespace = f"{place.prefix}parts"
    columns = {
        "a": pa.array(["x", "y"]),
        "b": pa.array([1, 2]),
        "m": pa.array(['{"p": 1, "q": {"r": 2}}'] * 2, pa.json_()),
    }
    written(place, rows(namespace, columns, ["a", "b"]))
    changed = {"a": pa.array(["x", "gone"]), "b": pa.array([1, 9]), "n": pa.array([5, 5])}
    removed = pa.array([["/m/q/r"], []], REMOVED)
    whole = pa.array([False, False])
    written(place, rows(namespace, changed, ["a", "b"], op=Op.UPDATE, removed=removed, whole=whole), 2)
    found = sorted(place.items(namespace), key=lambda item: str(item["a"]))
    assert found == [
        {"a": "x", "b": 1, "n": 5, "m": {"p": 1, "q": {}}},
        {"a": "y", "b": 2, "m": {"p": 1, "q": {"r": 2}}},
    ]


def test_a_table_is_made_only_if_told_to(place: Place) -> None:
    namespace = f"{place.prefix}missing"
    batch = rows(namespace, {"id": pa.array([1]), "r": pa.array(["x"])}, ["id", "r"])
    order = (
        f"aws dynamodb create-table --table-name {namespace} --billing-mode PAY_PER_REQUEST --attribute-definitions "
        "AttributeName=id,AttributeType=N AttributeName=r,AttributeType=S --key-schema "
        "AttributeName=id,KeyType=HASH AttributeName=r,KeyType=RANGE"
    )
    with pytest.raises(NotReady, match=f"set create = true, or: {order}"):
        written(place, batch, create=False)


def test_a_table_with_another_key(place: Place) -> None:
    table = place.table("other", KeySchema("pk", "S", "sk", "N"))
    with pytest.raises(
        NotReady, match=r"has the key pk \(text\) and sk \(a number\), and rows of .* have id \(a number\)"
    ):
        written(place, rows(table, {"id": pa.array([1])}, ["id"]))


@pytest.mark.parametrize("keys", [[], ["a", "b", "c"]])
def test_keys_that_no_table_has(place: Place, keys: list[str]) -> None:
    columns = {name: pa.array([1]) for name in "abc"}
    with pytest.raises(NotReady, match=f"a key of {len(keys)} fields"):
        written(place, rows(f"{place.prefix}keys", columns, keys))


def test_tables_that_are_gone_or_emptied_or_made_again(place: Place) -> None:
    names = [f"{place.prefix}{name}" for name in ("whole", "dropped", "emptied", "again")]
    for offset, name in enumerate(names, 1):
        written(place, rows(name, {"id": pa.array([1])}, ["id"]), offset)
    with contextlib.closing(place.writer()) as sink:
        assert sink.lost(WHO) == []
        place.drop(names[1])
        place.delete(names[2], id=1)
        place.drop(names[3])
        place.table("again")
        assert sink.lost(WHO) == [f"the table {name}" for name in sorted(names[1:])]
        with pytest.raises(NotReady, match="is gone, or was emptied"):
            written(place, rows(names[1], {"id": pa.array([2])}, ["id"]), 9)
        sink.forget(WHO)
        assert sink.lost(WHO) == []


@pytest.mark.parametrize("write", ["transactions", "batches"])
def test_a_run_that_dies_within_a_batch_has_lost_nothing(
    place: Place, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first item is written, and when all that was there is deleted and nothing else is written yet."""
    name = f"{place.prefix}t"
    first = rows(name, {"id": pa.array([1, 2])}, ["id"])
    gone = rows(name, {"id": pa.array([1, 2])}, ["id"], op=Op.DELETE)
    later = rows(name, {"id": pa.array([3, 4])}, ["id"])
    monkeypatch.setattr(writer, "MAX_CHUNK_OPERATIONS", 2)
    monkeypatch.setattr(writer, "BATCH_OPERATIONS", 2)
    for offset, (batches, chunks) in enumerate([([first], 0), ([first], 1), ([gone, later], 1), ([gone, later], 2)], 1):
        with contextlib.closing(place.writer(write=write)) as sink:
            assert sink.lost(WHO) == []
            one, left = sink._one, list(range(chunks))

            def until_it_dies(*given: Any, one: Any = one, left: list[int] = left, **named: Any) -> None:
                if not left:
                    raise KeyboardInterrupt
                left.pop()
                one(*given, **named)

            monkeypatch.setattr(sink, "_one", until_it_dies)
            with contextlib.suppress(KeyboardInterrupt):
                sink.finish([sink.stage(batches)], WHO, {"0": offset})
    assert sorted(int(one["id"]) for one in place.items(name)) == [3, 4]
    with contextlib.closing(place.writer()) as sink:
        assert sink.lost(WHO) == []
        sink.finish([sink.stage([later])], WHO, {"0": 5})
        for id in (3, 4):
            place.delete(name, id=id)
        assert sink.lost(WHO) == [f"the table {name}"], "a table that was only added to must have something"


def test_a_write_without_an_answer_is_not_done_twice(place: Place) -> None:
    """The first transaction happens, and its answer is lost."""
    namespace = f"{place.prefix}lost"
    with contextlib.closing(place.writer()) as sink:
        sink.check()
        client, lose = sink._service.client, [True]
        asked = client.transact_write_items

        def unanswered(**request: Any) -> Any:
            answer = asked(**request)
            if lose.pop() if lose else False:
                raise ReadTimeoutError(endpoint_url="http://nowhere")
            return answer

        with patch.object(client, "transact_write_items", unanswered):
            sink.finish([sink.stage([rows(namespace, {"id": pa.array([1])}, ["id"])])], WHO, {"0": 1})
        assert sink.restore("pipeline", "writer") == {"epoch": 1, "offsets": {"0": 1}}
        assert not lose


def test_what_is_throttled_or_left_undone_is_asked_for_again(place: Place) -> None:
    namespace = f"{place.prefix}slow"
    batch = rows(namespace, {"id": pa.array(range(60)), "v": pa.array(["x"] * 60)}, ["id"])
    with contextlib.closing(place.writer(write="batches")) as sink:
        sink.check()
        client, refusals = sink._service.client, [0]
        asked = client.batch_write_item

        def partly(RequestItems: Any, **request: Any) -> Any:
            """The first one is throttled; others do a half, and leave the rest."""
            refusals[0] += 1
            if refusals[0] == 1:
                raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "BatchWriteItem")
            ((table, some),) = RequestItems.items()
            half = max(1, len(some) // 2)
            answer = asked(RequestItems={table: some[:half]}, **request)
            return {**answer, "UnprocessedItems": {table: some[half:]} if some[half:] else {}}

        with patch.object(client, "batch_write_item", partly):
            sink.finish([sink.stage([batch])], WHO, {"0": 1})
    assert len(place.items(namespace)) == 60
    assert refusals[0] > 9


def test_the_pace_of_writing() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10, clock=lambda: now[0], sleep=sleep)
    for _ in range(4):
        pace.used({"CapacityUnits": 20.0}, {"TableName": "none is said"})
    assert sum(slept) == pytest.approx(8.0, abs=1.0)
    Pace(0, sleep=sleep).used({"CapacityUnits": 1e9})
    assert sum(slept) == pytest.approx(8.0, abs=1.0)
