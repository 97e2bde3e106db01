"""CloudEvents 1.0: makes a document of each event, with its attributes as fields and its data as JSON; its source and
its id are the key.

structured    the value is the event as JSON: {"specversion": "1.0", "id": …, "source": …, "data": …}
binary        the headers ce_id, ce_source, ce_type, … have the attributes, and the value is the data; over AMQP the
              headers are called cloudEvents:id or cloudEvents_id
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.formats.documents import json_object
from tailrace.adaptors.formats.received import AS_BYTES, Received, bad, stamp_of
from tailrace.adaptors.rows.json_text import to_json
from tailrace.adaptors.rows.message import Message as Row
from tailrace.adaptors.rows.rows import rows_of
from tailrace.log.record import Op

ID = ("source", "id")
PREFIXES = ("ce_", "cloudEvents:", "cloudEvents_")
"""The prefixes of attributes' names in headers: the one for Kafka, and the two for AMQP."""
REQUIRED = ("id", "source", "type", "specversion")
_TYPES = pa.schema(
    [
        pa.field(
            "data",
            pa.struct(
                [
                    *(
                        pa.field(name, pa.string())
                        for name in ("source", "id", "type", "specversion", "subject", "time")
                    ),
                    pa.field("data", pa.json_()),
                    pa.field("data_bytes", pa.binary()),
                ]
            ),
        )
    ]
)


class CloudEventsDecoder:
    """Makes a document of each event."""

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
        """Decode records as rows.  A record without a value is no event, and is skipped."""
        events = ((record, _event(record)) for record in records if record.value() is not None)
        rows = (Row(Op.INSERT, namespace, "", e, stamp_of(r), keys=ID) for r, e in events)
        return rows_of(rows, _TYPES, open=True)


def _event(record: Received) -> dict[str, Any]:
    headers = {name: value for name, value in record.headers() or () if isinstance(value, bytes)}
    attributes = {
        name.removeprefix(prefix): value.decode(errors="replace")
        for name, value in headers.items()
        for prefix in PREFIXES
        if name.startswith(prefix)
    }
    event = attributes | _data(record.value() or b"") if "specversion" in attributes else _structured(record)
    missing = [name for name in REQUIRED if not event.get(name)]
    if missing:
        raise bad(record, f"is no CloudEvent: it has no {', '.join(missing)}", AS_BYTES)
    return event


def _structured(record: Received) -> dict[str, Any]:
    event = json_object(record.value() or b"") or {}
    encoded = event.pop("data_base64", None)
    if encoded is not None:
        try:
            return event | _data(base64.b64decode(encoded, validate=True))
        except (ValueError, TypeError):
            raise bad(record, "is no CloudEvent: its data_base64 is not in base64", AS_BYTES) from None
    if "data" in event:
        event["data"] = to_json(event["data"]).decode()
    return event


def _data(value: bytes) -> dict[str, Any]:
    """The field for an event's data: `data` if it is JSON, else `data_bytes`."""
    try:
        msgspec.json.decode(value)
        return {"data": value.decode()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"data_bytes": value}
