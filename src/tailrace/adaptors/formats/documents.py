"""JSON documents: makes a document of each record's value, with the record's key as its id; no value is a delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.formats.codec import Codec
from tailrace.adaptors.formats.received import AS_BYTES, FormatSettings, Received, bad, stamp_of
from tailrace.adaptors.rows.json_text import to_json
from tailrace.adaptors.rows.message import Message as Row
from tailrace.adaptors.rows.rows import rows_of
from tailrace.log.record import Op

VALUE = "value"
"""The document's field for a value that is no JSON object."""
PLACE = ("_partition", "_offset")
"""The fields of the id of a record without a key."""


class JsonDecoder:
    """Makes a document of each record.  `beside` is the field for the record's metadata, if the settings ask for it;
    `codec` decodes values that are not plain JSON."""

    def __init__(self, settings: FormatSettings, beside: str, codec: Codec | None = None) -> None:
        self._codec = codec
        self._keys, self._key_field = settings.keys, settings.key_field
        self._metadata = beside if settings.metadata else None
        self._types = pa.schema([pa.field("data", pa.struct([pa.field(beside, pa.json_())]))])

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
        """Decode records as rows, in a batch for each set of key fields."""
        return rows_of((self._row(namespace, record) for record in records), self._types, open=True)

    def _row(self, namespace: str, record: Received) -> Row:
        key, value = self._key(record), record.value()
        own = tuple(key) or PLACE
        if not key:
            key = dict(zip(PLACE, (record.partition(), record.offset()), strict=True))
        op = Op.DELETE if value is None and own != PLACE else Op.INSERT
        document = {} if value is None else self._document(record, own)
        data = {**document, **key}
        if self._metadata:
            data[self._metadata] = _metadata(record)
        return Row(op, namespace, "", data, stamp_of(record), keys=own)

    def _key(self, record: Received) -> dict[str, Any]:
        """The fields of the id, from the record's key; none if the record has no key."""
        key = record.key()
        if key is None:
            return {}
        if self._keys == "bytes":
            return {self._key_field: key}
        if self._keys == "auto" and self._codec is not None and self._codec.is_framed(key):
            found = self._decoded(record, key)
            return found if isinstance(found, dict) else {self._key_field: found}
        fields = json_object(key) if self._keys == "auto" else None
        if fields:
            return fields
        try:
            return {self._key_field: key.decode()}
        except UnicodeDecodeError:
            raise bad(record, "has a key that is no text", 'set keys = "bytes"') from None

    def _document(self, record: Received, own: Sequence[str]) -> dict[str, Any]:
        value = self._value(record)
        document = value if isinstance(value, dict) else {VALUE: value}
        for name in (self._key_field, *PLACE):
            if name in own and name in document:
                raise bad(
                    record, f"has a field {name!r}, as its key has here", f"name another: key_field; or {AS_BYTES}"
                )
        if self._metadata in document:
            raise bad(record, f"has a field {self._metadata!r} of its own", f"metadata = false, or {AS_BYTES}")
        return document

    def _value(self, record: Received) -> Any:
        return parsed(record) if self._codec is None else self._decoded(record, record.value() or b"")

    def _decoded(self, record: Received, data: bytes) -> Any:
        assert self._codec is not None
        try:
            return self._codec.decoded(data)
        except ValueError as error:
            raise bad(record, f"cannot be decoded ({error})", AS_BYTES) from None


class TextDecoder(JsonDecoder):
    """Makes a document of each record, with the value as text in one field."""

    def _value(self, record: Received) -> Any:
        try:
            return (record.value() or b"").decode()
        except UnicodeDecodeError as error:
            raise bad(record, f"is no text ({error})", AS_BYTES) from None


def parsed(record: Received) -> Any:
    """Decode a record's value as JSON; `BadInput` if it is not JSON."""
    try:
        return msgspec.json.decode(record.value() or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad(record, f"is not JSON ({error})", AS_BYTES) from None


def json_object(text: bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None for anything else."""
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _metadata(record: Received) -> str:
    headers = [[name, _text(value)] for name, value in record.headers() or ()]
    told = {"partition": record.partition(), "offset": record.offset(), "timestamp": stamp_of(record)}
    return to_json({**told, "headers": headers}).decode()


def _text(value: Any) -> Any:
    """A header's value as text if it is UTF-8, else as bytes, which JSON writes in base64."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value
