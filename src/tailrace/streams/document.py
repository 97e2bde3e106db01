"""Changes as JSON documents: what the command line prints, and what a copy in a topic holds.

    {"key": {…}, "new": {…} or null, "old": {…} or null,
     "meta": {"created_at": 1767225600000, "sequence_number": "…", "event": {"id": "…", "type": "modify", …}}}

Times are milliseconds since 1970.  A number keeps all its digits, a set is a sorted array, bytes are {"base64": "…"}.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from tailrace.streams.record import Record

MAX_INT = 2**63 - 1
"""The largest integer that the encoder takes; `plain` makes larger ones decimals, which it takes too."""

encode = msgspec.json.Encoder(decimal_format="number").encode
"""Encodes a document as JSON text."""


def document(record: Record[dict[str, Any]]) -> dict[str, Any]:
    """Return a record of a table without a model as a JSON document."""
    event = record.meta.event
    return {
        "key": plain(record.key),
        "new": plain(record.new),
        "old": plain(record.old),
        "meta": {
            "created_at": round(record.meta.created_at.timestamp() * 1000),
            "sequence_number": record.meta.sequence_number,
            "event": {"id": event.id, "type": event.type, "version": event.version},
        },
    }


def plain(value: Any) -> Any:
    """Return a stored value in types that the JSON encoder takes."""
    match value:
        case Mapping():
            return {name: plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case set() | frozenset():
            return [plain(inner) for inner in sorted(value)]
        case bytes() | bytearray():
            return {"base64": base64.b64encode(value).decode()}
        case bool() | None:
            return value
        case int() if not -MAX_INT <= value <= MAX_INT:
            return Decimal(value)
        case _:
            return value
