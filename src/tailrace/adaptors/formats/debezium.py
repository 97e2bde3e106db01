"""Debezium's envelopes: makes changes of those that its JSON converter writes, with schemas or without.

    r, c, u    the row after the change            d    a delete; the record without a value after it is skipped
    t          truncate                            m    a message of the application: skipped

The fields of the record's key are the id.  A change leaves a field as it is if Debezium's source did not send its
value.  With schemas, fields have the types that the schemas name; see connect_types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE
from tailrace.adaptors.formats.connect_types import RowTypes, row_types
from tailrace.adaptors.formats.received import FormatSettings, Received, bad, place_of, stamp_of
from tailrace.adaptors.rows.command import Command, command_rows
from tailrace.adaptors.rows.message import Message as Row
from tailrace.adaptors.rows.rows import rows_of
from tailrace.errors import NotReady
from tailrace.log.record import Op

UNAVAILABLE = frozenset({"__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="})
"""The placeholder for a value that the source did not send, for text and for bytes (in base64)."""
_OPS = {"c": Op.INSERT, "r": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}
_FLAT = 'format = "json" takes what ExtractNewRecordState has made of them'
_PLAIN = RowTypes()


class _WithSchema(msgspec.Struct):
    """The value that the JSON converter writes with schemas.enable=true."""

    payload: msgspec.Raw
    schema: msgspec.Raw


class DebeziumDecoder:
    """Makes rows of envelopes."""

    def __init__(self, settings: FormatSettings) -> None:
        self._truncates = settings.truncates
        self._types: dict[bytes, RowTypes] = {}

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
        """Decode records as rows, in the order of the records.  Begins a new batch where the types change, and at every
        truncate.  `NotReady` for a truncate in a topic of several partitions."""
        out: list[pa.RecordBatch] = []
        held: list[Row] = []
        types = _PLAIN
        for record in records:
            if record.value() is None:
                continue
            payload, now = self._unwrapped(record)
            if now is not types:
                out, held, types = [*out, *rows_of(held, types.like)], [], now
            if (change := _change(namespace, record, payload, types)) is not None:
                held.append(change)
            elif payload["op"] == "t" and self._truncates:
                _check_order(record, partitions)
                out, held = [*out, *rows_of(held, types.like)], []
                out.append(command_rows(namespace, Command(TRUNCATE), stamp_of(record)))
        return [*out, *rows_of(held, types.like)]

    def _unwrapped(self, record: Received) -> tuple[dict[str, Any], RowTypes]:
        """The envelope of a record, and the types of its rows if it comes with a schema."""
        value = record.value() or b""
        try:
            whole = msgspec.json.decode(value, type=_WithSchema)
        except msgspec.ValidationError:
            payload, types = _decoded(record, value), _PLAIN
        except msgspec.DecodeError as error:
            raise bad(record, f"is not JSON ({error})", _FLAT) from None
        else:
            payload, schema = _decoded(record, bytes(whole.payload)), bytes(whole.schema)
            if schema not in self._types:
                self._types[schema] = row_types(msgspec.json.decode(schema))
            types = self._types[schema]
        if not isinstance(payload, dict) or "op" not in payload:
            raise bad(record, "is no envelope of Debezium: it has no op", _FLAT)
        return payload, types


def _change(namespace: str, record: Received, payload: dict[str, Any], types: RowTypes) -> Row | None:
    """The row of a change; None for other operations."""
    op = _OPS.get(payload["op"])
    if op is None:
        return None
    key, stamp = _key(record), (payload.get("source") or {}).get("ts_ms") or payload.get("ts_ms") or stamp_of(record)
    if op == Op.DELETE:
        data = dict(key or payload.get("before") or {})
        return Row(op, namespace, "", types.converted(data), int(stamp), keys=tuple(key))
    after = _document(record, payload.get("after"))
    sent = {name: value for name, value in after.items() if not (isinstance(value, str) and value in UNAVAILABLE)}
    whole = len(sent) == len(after)
    data = types.converted({**sent, **{name: value for name, value in key.items() if name not in sent}})
    return Row(op, namespace, "", data, int(stamp), keys=tuple(key), whole=whole)


def _document(record: Received, after: Any) -> dict[str, Any]:
    """The document after a change.  For MongoDB it is JSON text within the envelope."""
    if isinstance(after, str):
        after = _decoded(record, after.encode())
    if not isinstance(after, dict):
        raise bad(record, "is a change without what it changed to", "have Debezium send the whole row after it")
    return after


def _key(record: Received) -> dict[str, Any]:
    if record.key() is None:
        return {}
    key = _decoded(record, record.key() or b"")
    if isinstance(key, dict) and key.keys() == {"schema", "payload"}:
        key = key["payload"]
    if key is not None and not isinstance(key, dict):
        raise bad(record, "has a key that is no JSON object", "set Debezium's key.converter to its JSON converter")
    return key or {}


def _decoded(record: Received, text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad(record, f"is not JSON ({error})", "Debezium's JSON converter is understood") from None


def _check_order(record: Received, partitions: int) -> None:
    if partitions > 1:
        raise NotReady(
            f"{place_of(record)} is a truncate, and the topic has {partitions} partitions, between which Kafka keeps "
            "no order: rows that came after it would be lost. truncates = false passes it; a topic with one partition "
            "has an order"
        )
