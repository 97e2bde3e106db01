"""Decoders, by format: they make rows of the records of a topic or the messages of a queue."""

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
    """Makes rows of records.  `BadInput` names a record that is not in the format."""

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
        """Decode records of one topic as rows.  Those of each partition are in order; the topic has `partitions`."""


def decoder(settings: FormatSettings, beside: str, codec: Codec | None = None) -> Decoder:
    """The decoder for the settings; `beside` is the name of the document's field for the record's metadata."""
    if settings.format == "bytes":
        return BytesDecoder()
    if settings.format == "debezium":
        return DebeziumDecoder(settings)
    if settings.format == "cloudevents":
        return CloudEventsDecoder()
    return TextDecoder(settings, beside) if settings.format == "text" else JsonDecoder(settings, beside, codec)
