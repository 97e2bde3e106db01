"""Encoding of rows as records, by topic; formats.outgoing says what the records look like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tailrace.adaptors.formats.outgoing import outgoing
from tailrace.adaptors.kafka.names import topic_for
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.rows.rows import namespace_of


def encoded(rows: Iterable[pa.RecordBatch], settings: KafkaSink) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """For each batch of rows its topic, its namespace and its records; a batch without rows gives no records."""
    for batch in rows:
        namespace = namespace_of(batch)
        yield topic_of(namespace, settings), namespace, outgoing(batch, settings, shared=settings.topic is not None)


def topic_of(namespace: str, settings: KafkaSink) -> str:
    """The topic of a namespace."""
    return topic_for(settings.topic, "") if settings.topic else topic_for(namespace, settings.prefix)
