"""Stream messages: decoding of AMQP 1.0, as RabbitMQ and its clients store it, and of other bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.adaptors.rabbitmq.source import delivery
from tailrace.adaptors.rows.json_text import finite, to_json

_SECTIONS = frozenset(range(0x70, 0x79))
_DESCRIBED = {b"\x00\x53": 2, b"\x00\x80": 9}
"""The first bytes of a section, and the index of the byte with its number."""


@dataclass(slots=True)
class Content:
    """The parts of a message."""

    body: bytes
    headers: list[tuple[str, Any]] = field(default_factory=list)
    milliseconds: int = 0
    message_id: str | None = None
    correlation_id: str | None = None
    routing_key: str | None = None


def content_of(data: bytes) -> Content:
    """Decode a message.  Bytes that are not AMQP 1.0 are all body."""
    from rstream.amqp import amqp_decoder

    data = bytes(data)
    at = _DESCRIBED.get(data[:2])
    if at is None or len(data) <= at or data[at] not in _SECTIONS:
        return Content(data)
    try:
        decoded = amqp_decoder(data)
    except Exception:  # whatever the decoder makes of bytes that only look like a message
        return Content(data)
    headers = [(_text(name) or "", _plain(value)) for name, value in (decoded.application_properties or {}).items()]
    annotations = {_text(name): value for name, value in (decoded.message_annotations or {}).items()}
    told = decoded.properties
    return Content(
        _body(decoded),
        headers,
        delivery.milliseconds(dict(headers), None) or _moment(told.creation_time if told else None),
        _text(told.message_id) if told else None,
        _text(told.correlation_id) if told else None,
        _text(annotations.get("x-routing-key")),
    )


def _body(decoded: Any) -> bytes:
    body = decoded.body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, list):
        return b"".join(map(bytes, body))
    value = decoded.value if decoded.value is not None else decoded.sequence
    if value is None:
        return b""
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else to_json(finite(_plain(value)))


def _plain(value: Any) -> Any:
    """The value with bytes decoded as text, in lists and maps, too; bytes that are not UTF-8 stay bytes."""
    if isinstance(value, Mapping):
        return {_text(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _moment(value: Any) -> int:
    if isinstance(value, dt.datetime):
        return int(value.timestamp() * 1000)
    return value if isinstance(value, int) and value > 0 else 0
