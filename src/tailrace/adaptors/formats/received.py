"""Received: what a broker gave, a record of a topic or a message of a queue; and what is said of a bad one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from tailrace.errors import BadInput


class Received(Protocol):
    """A record, as Kafka's client has it."""

    def key(self) -> bytes | None:
        """What it is about; None if it does not say."""

    def value(self) -> bytes | None:
        """Its content; None: what it is about is gone."""

    def headers(self) -> list[tuple[str, Any]] | None:
        """Names and values, bytes or None, in order."""

    def timestamp(self) -> tuple[int, int]:
        """Of which kind its time is, and the milliseconds since 1970."""

    def topic(self) -> str | None:
        """Where it was."""

    def partition(self) -> int | None:
        """In which part of that."""

    def offset(self) -> int | None:
        """Its number there."""


@runtime_checkable
class Described(Protocol):
    """A record that says itself where it was."""

    def place(self) -> str:
        """As people call it."""


class FormatSettings(Protocol):
    """What the settings of a source say of its format."""

    @property
    def format(self) -> str:
        """Its name."""

    @property
    def keys(self) -> str:
        """What an id is: auto, text, bytes."""

    @property
    def key_field(self) -> str:
        """The field for a key that has none of its own."""

    @property
    def metadata(self) -> bool:
        """Whether documents have a field for what is known of their record beside."""

    @property
    def truncates(self) -> bool:
        """Whether truncates are carried out."""


def stamp_of(record: Received) -> int:
    """When a record was made, or appended, as the broker has it; 0 if it does not say."""
    return max(0, int(record.timestamp()[1]))


def place_of(record: Received) -> str:
    """Where a record is, as people call it."""
    if isinstance(record, Described):
        return record.place()
    return f"the record at offset {record.offset()} of partition {record.partition()} of the topic {record.topic()}"


def bad(record: Received, why: str, what_next: str) -> BadInput:
    """A record that is not in the format of the settings."""
    return BadInput(f"{place_of(record)} {why}; {what_next}")
