"""Debezium's envelopes: makes changes of those that its JSON converter writes, with schemas or without.

    r, c, u    the row after the change            d    a delete; the record without a value after it is skipped
    t          truncate                            m    a message of the application: skipped

The fields of the record's key are the id.  A change leaves a field as it is if Debezium's source did not send its
value.  A table without a key has records without one: there the row before the change says which row goes.  With
schemas, fields have the types that the schemas name; see connect_types.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE
from tailrace.adaptors.formats.connect_types import RowTypes, row_types
from tailrace.adaptors.formats.received import AS_BYTES, FormatSettings, Received, bad, place_of, stamp_of
from tailrace.adaptors.rows.command import Command, command_rows
from tailrace.adaptors.rows.message import Message as Row
from tailrace.adaptors.rows.rows import rows_of
from tailrace.errors import NotReady
from tailrace.log.record import Op

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium puts where the source did not send a value."""
_BYTES = base64.b64encode(PLACEHOLDER.encode()).decode()
_TEXTS = frozenset({PLACEHOLDER, _BYTES, f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'})
_UUID = str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))
_NESTED = ([PLACEHOLDER], [_BYTES], list(PLACEHOLDER.encode()), [_UUID], {PLACEHOLDER: PLACEHOLDER})
"""The same where the value is an array of texts, bytes, numbers or uuids, or hstore."""
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
            held += _changes(namespace, record, payload, types)
            if payload["op"] == "t" and self._truncates:
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
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad(record, f"is not JSON ({error})", _FLAT) from None
        else:
            payload, types = _decoded(record, bytes(whole.payload)), self._types_of(record, bytes(whole.schema))
        if not isinstance(payload, dict) or not isinstance(payload.get("op"), str):
            raise bad(record, "is no envelope of Debezium: it has no op", _FLAT)
        return payload, types

    def _types_of(self, record: Received, schema: bytes) -> RowTypes:
        if schema not in self._types:
            try:
                self._types[schema] = row_types(_decoded(record, schema) or {})
            except (AttributeError, KeyError, TypeError, ValueError):
                raise bad(record, "comes with a schema that is none of Kafka Connect's", AS_BYTES) from None
        return self._types[schema]


def _changes(namespace: str, record: Received, payload: dict[str, Any], types: RowTypes) -> list[Row]:
    """The rows of a change: two if a row without a key becomes another, none for other operations."""
    op = _OPS.get(payload["op"])
    if op is None:
        return []
    key, stamp = _key(record), _stamp(record, payload)
    if op == Op.DELETE:
        return [_removed(namespace, record, payload, types)]
    after = _document(record, payload.get("after"))
    if op == Op.UPDATE and not key:
        removed = _removed(namespace, record, payload, types)
        sent = {name: removed.data.get(name) for name, value in after.items() if _is_unavailable(value)}
        added = types.converted(record, {name: value for name, value in after.items() if name not in sent}) | sent
        return [removed, Row(Op.INSERT, namespace, "", added, stamp)]
    sent = {name: value for name, value in after.items() if not _is_unavailable(value)}
    whole = len(sent) == len(after)
    data = types.converted(record, {**sent, **{name: value for name, value in key.items() if name not in sent}})
    return [Row(op, namespace, "", data, stamp, keys=tuple(key), whole=whole)]


def _removed(namespace: str, record: Received, payload: dict[str, Any], types: RowTypes) -> Row:
    """The delete of the row that a change removes."""
    key, before = _key(record), payload.get("before")
    if not key and not isinstance(before, dict):
        why = "changes a row of a table without a key, and does not say which"
        raise bad(record, why, "ALTER TABLE … REPLICA IDENTITY FULL has PostgreSQL say it")
    data = types.converted(record, dict(key or before or {}))
    return Row(Op.DELETE, namespace, "", data, _stamp(record, payload), keys=tuple(key))


def _stamp(record: Received, payload: dict[str, Any]) -> int:
    """When the source made the change, in milliseconds since 1970, or else when the record was made."""
    source = payload.get("source")
    for told in (source.get("ts_ms") if isinstance(source, dict) else None, payload.get("ts_ms")):
        if isinstance(told, int) and told > 0:
            return told
    return stamp_of(record)


def _is_unavailable(value: Any) -> bool:
    """Whether Debezium has put a placeholder where a value belongs."""
    return value in _TEXTS if isinstance(value, str) else isinstance(value, list | dict) and value in _NESTED


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
