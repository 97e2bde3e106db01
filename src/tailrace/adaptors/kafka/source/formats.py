"""Formats: what makes rows of the records of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tailrace.adaptors.kafka.settings import KafkaSource
from tailrace.adaptors.kafka.source.cloud_events import CloudEventsDecoder
from tailrace.adaptors.kafka.source.debezium import DebeziumDecoder
from tailrace.adaptors.kafka.source.documents import JsonDecoder
from tailrace.adaptors.kafka.source.records import BytesDecoder

if TYPE_CHECKING:
    from confluent_kafka import Message


class Decoder(Protocol):
    """Makes rows of records.  `BadInput` for one that is not in its format, naming where it is."""

    def rows(self, namespace: str, records: Sequence[Message], partitions: int) -> list[pa.RecordBatch]:
        """The rows of some records of one topic, those of each partition in their order; it has so many."""


def decoder(settings: KafkaSource) -> Decoder:
    """What the settings ask for."""
    if settings.format == "bytes":
        return BytesDecoder()
    if settings.format == "debezium":
        return DebeziumDecoder(settings)
    return CloudEventsDecoder() if settings.format == "cloudevents" else JsonDecoder(settings)
