"""Records as they are: key, value, headers and timestamp of each, under its partition and offset.

They have the columns of the records of tailrace's own topics, so they go to one, and to Kafka, as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors.rows.records import ID, RECORD_FIELDS
from tailrace.adaptors.rows.rows import STAMP, make_rows
from tailrace.errors import BadInput
from tailrace.log.format.chunk import HEADERS_TYPE
from tailrace.log.record import Mode, Op

if TYPE_CHECKING:
    from confluent_kafka import Message


class BytesDecoder:
    """Leaves records as they are."""

    def rows(self, namespace: str, records: Sequence[Message], partitions: int) -> list[pa.RecordBatch]:
        """One batch."""
        stamps = pa.array([stamp_of(record) for record in records], pa.int64())
        arrays = [
            pa.array([record.partition() for record in records], pa.int32()),
            pa.array([record.offset() for record in records], pa.int64()),
            stamps.view(STAMP),
            pa.repeat(pa.scalar(0, pa.uint8()), len(records)),
            pa.array([record.key() for record in records], pa.binary()),
            pa.array([record.value() for record in records], pa.binary()),
            pa.array([_headers(record) for record in records], HEADERS_TYPE),
        ]
        columns = pa.RecordBatch.from_arrays(arrays, names=list(RECORD_FIELDS))
        return [make_rows(namespace, columns, ID, op=Op.INSERT, mode=Mode.SYNC, timestamp=stamps)]


def _headers(record: Message) -> list[dict[str, Any]] | None:
    given = record.headers()
    return None if given is None else [{"name": name, "value": value} for name, value in given]


def stamp_of(record: Message) -> int:
    """When a record was made, or appended, as its topic has it; 0 if it does not say."""
    return max(0, int(record.timestamp()[1]))


def place_of(record: Message) -> str:
    """Where a record is, as people call it."""
    return f"the record at offset {record.offset()} of partition {record.partition()} of the topic {record.topic()}"


def bad(record: Message, why: str, what_next: str) -> BadInput:
    """A record that is not in the format of the settings."""
    return BadInput(f"{place_of(record)} {why}; {what_next}")
