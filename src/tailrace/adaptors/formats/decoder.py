"""Decoders, by format: what makes rows of the records of a topic, or of the messages of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tailrace.adaptors.formats.cloud_events import CloudEventsDecoder
from tailrace.adaptors.formats.codec import Codec
from tailrace.adaptors.formats.debezium import DebeziumDecoder
from tailrace.adaptors.formats.documents import JsonDecoder, TextDecoder
from tailrace.adaptors.formats.received import FormatSettings, Received
from tailrace.adaptors.formats.records import BytesDecoder


class Decoder(Protocol):
    """Makes rows of records.  `BadInput` for one that is not in its format, naming where it is."""

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
        """The rows of some records of one topic, those of each partition in their order; it has so many."""


def decoder(settings: FormatSettings, beside: str, codec: Codec | None = None) -> Decoder:
    """What the settings ask for; `beside` is the field of a document for what is known of its record."""
    if settings.format == "bytes":
        return BytesDecoder()
    if settings.format == "debezium":
        return DebeziumDecoder(settings)
    if settings.format == "cloudevents":
        return CloudEventsDecoder()
    return TextDecoder(settings, beside) if settings.format == "text" else JsonDecoder(settings, beside, codec)
