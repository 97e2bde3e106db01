"""A delivery: a message of a queue or a stream, as formats read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.adaptors.rows.json_text import finite, to_json

KEYLESS = ("message_id", "none")
"""Where no key says that what a message is about was there before: an empty one deletes nothing."""
NOTHING = (b"", b"null")
MAX_TIMESTAMP_IN_SECONDS = 100_000_000_000
"""In the year 5138; as milliseconds in 1973."""
LAST_MILLISECOND = 253_402_300_799_999
"""Of the year 9999."""


@dataclass(slots=True)
class Delivery:
    """A message.  `number` is its offset in a stream; of a queue, the how many-th this pipeline has taken."""

    body: bytes
    number: int
    where: str
    headers_: Sequence[tuple[str, Any]] = ()
    milliseconds: int = 0
    message_id: str | None = None
    correlation_id: str | None = None
    routing_key: str | None = None
    part: int = 0
    read: Callable[[Delivery], tuple[bytes | None, bytes | None]] = field(default=lambda one: (None, one.body))

    def key(self) -> bytes | None:
        """What it is about, as the settings say."""
        return self.read(self)[0]

    def value(self) -> bytes | None:
        """Its body; None if it says that what it is about is gone."""
        return self.read(self)[1]

    def headers(self) -> list[tuple[str, Any]]:
        """Its headers, each value as bytes."""
        return [(name, _bytes(value)) for name, value in self.headers_]

    def timestamp(self) -> tuple[int, int]:
        """When it was made, if it says so."""
        return (0, self.milliseconds)

    def topic(self) -> str:
        """The queue or stream."""
        return self.where

    def partition(self) -> int:
        """Which partition of a super stream; else 0."""
        return self.part

    def offset(self) -> int:
        """Its number."""
        return self.number

    def place(self) -> str:
        """Where it is, as people call it."""
        told = f" with the message id {self.message_id!r}" if self.message_id else ""
        return f"message {self.number}{told} of {self.where}"


def reading(key: str, format: str) -> Callable[[Delivery], tuple[bytes | None, bytes | None]]:
    """What finds the key and the value of a message, by the settings."""
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
    """When a message was made: by the header that the broker and others set, or by its property.

    That is seconds; clients that put milliseconds there are understood, and a time that no calendar has is none."""
    found = headers.get("timestamp_in_ms")
    if not isinstance(found, int) or found <= 0:
        found = (seconds or 0) if (seconds or 0) > MAX_TIMESTAMP_IN_SECONDS else (seconds or 0) * 1000
    return found if found <= LAST_MILLISECOND else 0


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else to_json(finite(value))
