"""A delivery: a message of a queue or a stream, in the form that `formats` decodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.adaptors.rows.json_text import finite, to_json

KEYLESS = ("message_id", "none")
"""Settings of `key` under which an empty message deletes nothing: a message id names the message, not a document that
was there before."""
NOTHING = (b"", b"null")
MAX_TIMESTAMP_IN_SECONDS = 100_000_000_000
"""A larger timestamp property is in milliseconds: as seconds it would be after the year 5138."""
LAST_MILLISECOND = 253_402_300_799_999
"""The last millisecond of the year 9999."""


@dataclass(slots=True)
class Delivery:
    """A message.  `number` is its offset in a stream; in a queue, how many messages the pipeline took before it."""

    body: bytes
    number: int
    where: str
    headers_: Sequence[tuple[str, Any]] = ()
    milliseconds: int = 0
    message_id: str | bytes | None = None
    correlation_id: str | bytes | None = None
    routing_key: str | bytes | None = None
    part: int = 0
    read: Callable[[Delivery], tuple[bytes | None, bytes | None]] = field(default=lambda one: (None, one.body))

    def key(self) -> bytes | None:
        """The key that the settings choose; None if the message has none."""
        return self.read(self)[0]

    def value(self) -> bytes | None:
        """The body; None if an empty or null body deletes the document that the key names."""
        return self.read(self)[1]

    def headers(self) -> list[tuple[str, Any]]:
        """The headers, each value as bytes."""
        return [(name, _bytes(value)) for name, value in self.headers_]

    def timestamp(self) -> tuple[int, int]:
        """A time type, always 0, and when the message was made in milliseconds since 1970; 0 if it does not say."""
        return (0, self.milliseconds)

    def topic(self) -> str:
        """The queue or stream, as messages call it."""
        return self.where

    def partition(self) -> int:
        """The number of the partition in its super stream, else 0."""
        return self.part

    def offset(self) -> int:
        """The message's number."""
        return self.number

    def place(self) -> str:
        """The message's number, id and queue or stream, for error messages."""
        told = f" with the message id {self.message_id!r}" if self.message_id else ""
        return f"message {self.number}{told} of {self.where}"


def reading(key: str, format: str) -> Callable[[Delivery], tuple[bytes | None, bytes | None]]:
    """A function that finds a message's key and value, by the settings `key` and `format`."""
    header = key.removeprefix("header:") if key.startswith("header:") else None

    def read(one: Delivery) -> tuple[bytes | None, bytes | None]:
        if header is not None:
            found = next((value for name, value in one.headers_ if name == header), None)
        else:
            found = None if key == "none" else getattr(one, key)
        name = None if found in (None, "") else _bytes(found)
        if format in ("bytes", "text") or one.body not in NOTHING:
            return name, one.body
        return name, NOTHING[1] if key in KEYLESS or name is None else None

    return read


def milliseconds(headers: Mapping[str, Any], seconds: int | None) -> int:
    """When a message was made, by its header timestamp_in_ms or else by its timestamp property; 0 if unknown.

    The property is in seconds, but some clients put milliseconds there.  A time after the year 9999 counts as
    unknown."""
    found = headers.get("timestamp_in_ms")
    if not isinstance(found, int) or found <= 0:
        found = (seconds or 0) if (seconds or 0) > MAX_TIMESTAMP_IN_SECONDS else (seconds or 0) * 1000
    return found if found <= LAST_MILLISECOND else 0


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else to_json(finite(value))
