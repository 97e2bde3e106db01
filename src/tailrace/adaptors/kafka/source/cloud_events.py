"""CloudEvents 1.0: the attributes of each event as fields, its data as JSON, under its source and id.

structured    the value is the event as JSON: {"specversion": "1.0", "id": …, "source": …, "data": …}
binary        headers ce_id, ce_source, ce_type, … have the attributes, the value is the data
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.kafka.source.documents import AS_BYTES, json_object
from tailrace.adaptors.kafka.source.records import bad, stamp_of
from tailrace.adaptors.rows.json_text import to_json
from tailrace.adaptors.rows.message import Message as Row
from tailrace.adaptors.rows.rows import rows_of
from tailrace.log.record import Op

if TYPE_CHECKING:
    from confluent_kafka import Message

ID = ("source", "id")
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

    def rows(self, namespace: str, records: Sequence[Message], partitions: int) -> list[pa.RecordBatch]:
        """One batch; a record without a value is no event, and passed."""
        events = ((record, _event(record)) for record in records if record.value() is not None)
        rows = (Row(Op.INSERT, namespace, "", e, stamp_of(r), keys=ID) for r, e in events)
        return rows_of(rows, _TYPES, open=True)


def _event(record: Message) -> dict[str, Any]:
    headers = {name: value for name, value in record.headers() or () if isinstance(value, bytes)}
    attributes = {
        name.removeprefix("ce_"): value.decode(errors="replace")
        for name, value in headers.items()
        if name.startswith("ce_")
    }
    event = attributes | _data(record.value() or b"") if "specversion" in attributes else _structured(record)
    missing = [name for name in REQUIRED if not event.get(name)]
    if missing:
        raise bad(record, f"is no CloudEvent: it has no {', '.join(missing)}", AS_BYTES)
    return event


def _structured(record: Message) -> dict[str, Any]:
    event = json_object(record.value() or b"") or {}
    encoded = event.pop("data_base64", None)
    if encoded is not None:
        return event | _data(base64.b64decode(encoded))
    if "data" in event:
        event["data"] = to_json(event["data"]).decode()
    return event


def _data(value: bytes) -> dict[str, Any]:
    """The data of an event: as JSON where it is, else as bytes."""
    try:
        msgspec.json.decode(value)
        return {"data": value.decode()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"data_bytes": value}
