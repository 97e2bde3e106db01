"""What becomes of records in each format: keys, headers, tombstones, timestamps, envelopes, events."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from tailrace.adaptors.rows.message import Message
from tailrace.errors import BadInput, NotReady
from tailrace.log.record import Op
from tests.adaptors.kafka.drive import Drive
from tests.adaptors.kafka.place import Place


def read(place: Place, records: list[tuple[Any, Any]], partitions: int = 1, **settings: Any) -> list[Message]:
    """What a reader makes of these."""
    place.make("orders", partitions)
    more = {name: settings.pop(name) for name in ("headers", "timestamp") if name in settings}
    place.send("orders", records, **more)
    with Drive(place, ["orders"], **settings).begin() as drive:
        return drive.catch_up()


def test_records_as_they_are(place: Place) -> None:
    records = [(b"\xff\x00", b"\x00\xfe"), (None, b""), (b"gone", None)]
    headers = [("a", b"1"), ("a", b"\xff"), ("none", None)]
    messages = read(place, records, format="bytes", headers=headers, timestamp=1_700_000_000_123)
    assert [(m.op, m.id, m.data["key"], m.data["value"]) for m in messages] == [
        (Op.INSERT, "0\x1f0", b"\xff\x00", b"\x00\xfe"),
        (Op.INSERT, "0\x1f1", None, b""),
        (Op.INSERT, "0\x1f2", b"gone", None),
    ]
    assert messages[0].data["headers"] == [{"name": name, "value": value} for name, value in headers]
    assert {m.timestamp for m in messages} == {1_700_000_000_123}


def test_documents_under_their_keys(place: Place) -> None:
    records = [
        ({"id": 7}, {"id": 7, "text": "a", "list": [1], "none": None}),
        (b"plain", {"text": "b"}),
        (None, {"text": "c"}),
        (b"plain", None),
        ({"id": 7}, None),
        (b"list", [1, 2]),
        (None, None),
    ]
    messages = read(place, records, timestamp=1_700_000_000_000)
    assert [(m.op, m.keys, m.data) for m in sorted(messages, key=lambda m: m.keys)] == [
        (Op.INSERT, ("_key",), {"_key": "plain", "text": "b"}),
        (Op.DELETE, ("_key",), {"_key": "plain"}),
        (Op.INSERT, ("_key",), {"_key": "list", "value": [1, 2]}),
        (Op.INSERT, ("_partition", "_offset"), {"_partition": 0, "_offset": 2, "text": "c"}),
        (Op.INSERT, ("_partition", "_offset"), {"_partition": 0, "_offset": 6}),
        (Op.INSERT, ("id",), {"id": 7, "text": "a", "list": [1], "none": None}),
        (Op.DELETE, ("id",), {"id": 7}),
    ]
    assert {m.timestamp for m in messages} == {1_700_000_000_000}


def test_keys_of_bytes_and_metadata(place: Place) -> None:
    (message,) = read(
        place, [(b"\xff", {"a": 1})], keys="bytes", metadata=True, headers=[("h", b"x")], timestamp=1_700_000_000_000
    )
    assert message.data["_key"] == b"\xff"
    told = {"partition": 0, "offset": 0, "timestamp": 1_700_000_000_000, "headers": [["h", "x"]]}
    assert json.loads(message.data["_kafka"]) == told


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ((b"k", b"{not json"), r"offset 0 of partition 0 of the topic .*orders is not JSON .*; format = \"bytes\""),
        ((b"k", b""), "is not JSON"),
        ((b"\xff", {"a": 1}), r"key that is no text; set keys = \"bytes\""),
        ((b"k", {"_key": 1}), "a field '_key', as its key has here; name another: key_field"),
        ((b"k", b"[" * 2000), "is not JSON"),
    ],
)
def test_a_record_that_is_not_in_the_format_is_named(place: Place, record: tuple[Any, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read(place, [record])


def envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 2, "source": {"table": "orders", "ts_ms": 1}}


def test_envelopes_of_debezium(place: Place) -> None:
    unsent = "__debezium_unavailable_value"
    records = [
        ({"id": 1}, envelope("r", None, {"id": 1, "text": "copied", "big": "x"})),
        ({"id": 2}, envelope("c", None, {"id": 2, "text": "new", "big": "y"})),
        ({"id": 1}, envelope("u", None, {"id": 1, "text": "changed", "big": unsent})),
        ({"id": 2}, envelope("d", {"id": 2, "text": None, "big": None}, None)),
        ({"id": 2}, None),
        (None, {"op": "m", "ts_ms": 3, "message": {}}),
        (None, envelope("t", None, None)),
        ({"id": 3}, envelope("c", None, {"id": 3, "text": "after", "big": "z"})),
    ]
    messages = read(place, records, format="debezium")
    assert [(m.op, m.data, m.whole) for m in messages] == [
        (Op.INSERT, {"id": 1, "text": "copied", "big": "x"}, True),
        (Op.INSERT, {"id": 2, "text": "new", "big": "y"}, True),
        (Op.UPDATE, {"id": 1, "text": "changed"}, False),
        (Op.DELETE, {"id": 2}, True),
        (Op.COMMAND, {"command": "truncate"}, True),
        (Op.INSERT, {"id": 3, "text": "after", "big": "z"}, True),
    ]
    assert messages[0].timestamp == 1
    assert {m.keys for m in messages if m.op != Op.COMMAND} == {("id",)}


def test_types_of_debezium_with_schemas(place: Place) -> None:
    fields: list[dict[str, Any]] = [
        {"field": "id", "type": "int32"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"field": "raw", "type": "bytes"},
        {"field": "small", "type": "double"},
        {"field": "none", "type": "string"},
    ]  # fmt: skip
    after = {
        "id": 1, "day": 19_782, "at": 1_700_000_000_000_001, "zoned": "2024-02-29T12:00:00.5Z",
        "price": base64.b64encode((-12_345).to_bytes(2, "big", signed=True)).decode(),
        "raw": base64.b64encode(b"\xff").decode(), "small": 1, "none": None,
    }  # fmt: skip
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    key = {"schema": {"type": "struct"}, "payload": {"id": 1}}
    (message,) = read(place, [(key, {"schema": schema, "payload": envelope("c", None, after)})], format="debezium")
    assert message.data == {
        "id": 1,
        "day": dt.date(2024, 2, 29),
        "at": dt.datetime(2023, 11, 14, 22, 13, 20, 1),
        "zoned": dt.datetime(2024, 2, 29, 12, 0, 0, 500_000, dt.UTC),
        "price": Decimal("-123.45"),
        "raw": b"\xff",
        "small": 1.0,
        "none": None,
    }
    assert message.keys == ("id",)


def test_a_truncate_has_no_place_among_several_partitions(place: Place) -> None:
    records = [({"id": 1}, envelope("c", None, {"id": 1})), (None, envelope("t", None, None))]
    with pytest.raises(NotReady, match=r"2 partitions, between which Kafka keeps no order.*truncates = false"):
        read(place, records, partitions=2, format="debezium")
    with Drive(place, ["orders"], format="debezium", truncates=False).begin() as drive:
        assert [m.op for m in drive.catch_up()] == [Op.INSERT]


@pytest.mark.parametrize("value", [{"id": 1}, b"<html>"])
def test_what_is_no_envelope_is_named(place: Place, value: Any) -> None:
    with pytest.raises(BadInput, match=r'format = "json" takes what'):
        read(place, [({"id": 1}, value)], format="debezium")


def test_cloud_events(place: Place) -> None:
    place.make("events", 1)
    structured = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "made", "data": {"a": [1]}, "trace": "t"}
    place.send("events", [(None, structured)])
    binary = [("ce_specversion", b"1.0"), ("ce_id", b"2"), ("ce_source", b"/shop"), ("ce_type", b"made")]
    place.send("events", [(None, {"b": 2}), (None, b"\xff")], headers=binary)
    with Drive(place, ["events"], format="cloudevents").begin() as drive:
        first, second, third = drive.catch_up()
    assert (first.keys, first.id) == (("source", "id"), "/shop\x1f1")
    assert json.loads(first.data["data"]) == {"a": [1]}
    assert first.data["trace"] == "t"
    assert json.loads(second.data["data"]) == {"b": 2}
    assert third.data["data_bytes"] == b"\xff"
    place.send("events", [(None, {"id": "x"})])
    with (
        Drive(place, ["events"], format="cloudevents").begin() as drive,
        pytest.raises(BadInput, match="is no CloudEvent: it has no source, type, specversion"),
    ):
        drive.catch_up()
