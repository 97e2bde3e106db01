"""Received records: the interface of a record of a topic or a message of a queue, and the error for a bad one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from tailrace.errors import BadInput

AS_BYTES = 'format = "bytes" takes every record as it is'
"""What to do about a record that is not in the format, for errors."""


class Received(Protocol):
    """A record, with the methods of the Kafka client's messages."""

    def key(self) -> bytes | None:
        """The key; None if the record has none."""

    def value(self) -> bytes | None:
        """The value; None if the record deletes what the key names."""

    def headers(self) -> list[tuple[str, Any]] | None:
        """The headers in order: names, and values as bytes or None."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of the record's time, and the time in milliseconds since 1970."""

    def topic(self) -> str | None:
        """The topic or queue."""

    def partition(self) -> int | None:
        """The partition of the topic."""

    def offset(self) -> int | None:
        """The offset in the partition."""


@runtime_checkable
class Described(Protocol):
    """A record with its own description of its place."""

    def place(self) -> str:
        """The record's place, for error messages."""


class FormatSettings(Protocol):
    """The settings of a source that concern its format."""

    @property
    def format(self) -> str:
        """The name of the format."""

    @property
    def keys(self) -> str:
        """How a key becomes an id: "auto", "text" or "bytes"."""

    @property
    def key_field(self) -> str:
        """The document's field for a key that is no JSON object."""

    @property
    def metadata(self) -> bool:
        """Whether documents have a field for their record's metadata."""

    @property
    def truncates(self) -> bool:
        """Whether truncates become commands; otherwise they are skipped."""


def stamp_of(record: Received) -> int:
    """When a record was made or appended, by the broker, in milliseconds since 1970; 0 if unknown."""
    return max(0, int(record.timestamp()[1]))


def place_of(record: Received) -> str:
    """The place of a record, for error messages."""
    if isinstance(record, Described):
        return record.place()
    return f"the record at offset {record.offset()} of partition {record.partition()} of the topic {record.topic()}"


def bad(record: Received, why: str, what_next: str) -> BadInput:
    """The error for a record that is not in the format of the settings."""
    return BadInput(f"{place_of(record)} {why}; {what_next}")
