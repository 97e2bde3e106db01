"""Debezium's envelopes, record by record."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest

from tailrace.adaptors.formats.debezium import DebeziumDecoder
from tailrace.adaptors.kafka.settings import KafkaSource
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import BadInput
from tailrace.log.record import Op
from tests.adaptors.formats.records import Record

UNSENT = "__debezium_unavailable_value"
PLACEHOLDERS: list[Any] = [
    UNSENT,
    base64.b64encode(UNSENT.encode()).decode(),
    [UNSENT],
    [base64.b64encode(UNSENT.encode()).decode()],
    list(UNSENT.encode()),
    ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    {UNSENT: UNSENT},
    f'{{"{UNSENT}":"{UNSENT}"}}',
]
"""Of text, bytes, arrays of texts, of bytes, of numbers and of uuids, and of hstore."""


def read(*records: tuple[Any, Any]) -> list[Message]:
    decoder = DebeziumDecoder(KafkaSource(brokers="none", format="debezium"))
    found = decoder.rows("orders", [Record(key, value, n) for n, (key, value) in enumerate(records)], 1)
    return [message for batch in found for message in messages_of(batch)]


def envelope(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 2, "source": {"ts_ms": 1}, **more}


@pytest.mark.parametrize("unsent", PLACEHOLDERS)
def test_a_value_that_was_not_sent_is_left_as_it_is(unsent: Any) -> None:
    (message,) = read(({"id": 1}, envelope("u", None, {"id": 1, "v": "new", "big": unsent})))
    assert (message.data, message.whole) == ({"id": 1, "v": "new"}, False)


def test_values_that_only_look_like_placeholders_are_values() -> None:
    after = {"id": 1, "a": [UNSENT, "b"], "b": [], "c": list(UNSENT.encode())[1:], "d": {UNSENT: "x"}}
    (message,) = read(({"id": 1}, envelope("u", None, after)))
    assert (message.data, message.whole) == (after, True)


def test_a_row_without_a_key_that_changes_is_replaced() -> None:
    before = {"a": 1, "b": "x", "big": "long"}
    changed, removed = envelope("u", before, {"a": 1, "b": "y", "big": UNSENT}), envelope("d", before, None)
    messages = read((None, envelope("c", None, before)), (None, changed), (None, removed))
    assert [(m.op, m.data, m.keys, m.whole) for m in messages] == [
        (Op.INSERT, before, (), True),
        (Op.DELETE, before, (), True),
        (Op.INSERT, {"a": 1, "b": "y", "big": "long"}, (), True),
        (Op.DELETE, before, (), True),
    ]


@pytest.mark.parametrize("op", ["u", "d"])
def test_a_row_without_a_key_that_is_not_told_is_no_change(op: str) -> None:
    with pytest.raises(BadInput, match=r"offset 0 of partition 0 .* does not say which; ALTER TABLE … REPLICA"):
        read((None, envelope(op, None, {"a": 1} if op == "u" else None)))


def with_schema(fields: list[dict[str, Any]], after: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return {"schema": schema, "payload": envelope("c", None, after)}


def test_numbers_that_json_does_not_have() -> None:
    fields = [{"field": "id", "type": "int32"}, {"field": "f", "type": "double"}, {"field": "g", "type": "float"}]
    rows = [{"id": 1, "f": "NaN", "g": "-Infinity"}, {"id": 2, "f": 1.5, "g": "Infinity"}]
    first, second = read(*(({"id": row["id"]}, with_schema(fields, row)) for row in rows))
    assert math.isnan(first.data["f"])
    assert (first.data["g"], second.data["f"], second.data["g"]) == (-math.inf, 1.5, math.inf)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (envelope("c", None, {"id": 1}) | {"op": ["c"]}, "it has no op"),
        (b'{"schema": {}, "payload": ' + b"[" * 100_000, "is not JSON"),
        ({"schema": {"fields": 7}, "payload": envelope("c", None, {"id": 1})}, "none of Kafka Connect's"),
        (with_schema([{"field": "b", "type": "bytes"}], {"b": "?"}), "its field 'b' what its schema does not allow"),
        (with_schema([{"field": "f", "type": "double"}], {"f": []}), "its field 'f' what its schema does not allow"),
    ],
)
def test_a_record_that_is_no_envelope_is_named(value: Any, why: str) -> None:
    with pytest.raises(BadInput, match=f"offset 1 of partition 0 of the topic orders .*{why}"):
        read(({"id": 0}, envelope("c", None, {"id": 0})), ({"id": 1}, value))


@pytest.mark.parametrize("source", [None, "x", {"ts_ms": "soon"}, {}])
def test_a_time_that_is_none_is_passed_over(source: Any) -> None:
    (message,) = read(({"id": 1}, envelope("c", None, {"id": 1}, source=source)))
    assert message.timestamp == 2
    (message,) = read(({"id": 1}, envelope("c", None, {"id": 1}, source=source, ts_ms=None)))
    assert message.timestamp == 1_700_000_000_000


def test_a_schema_of_nothing_has_no_types() -> None:
    (message,) = read(({"id": 1}, {"schema": None, "payload": envelope("c", None, {"id": 1})}))
    assert message.data == {"id": 1}
