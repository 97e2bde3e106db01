"""Records as they are: key, value, headers and timestamp of each, under its partition and offset.

They have the columns of the records of tailrace's own topics, so they go to one, and to Kafka, as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.formats.received import Received, stamp_of
from tailrace.adaptors.rows.records import ID, RECORD_FIELDS
from tailrace.adaptors.rows.rows import STAMP, make_rows
from tailrace.log.format.chunk import HEADERS_TYPE
from tailrace.log.record import Mode, Op


class BytesDecoder:
    """Leaves records as they are."""

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
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


def _headers(record: Received) -> list[dict[str, Any]] | None:
    given = record.headers()
    return None if given is None else [{"name": name, "value": value} for name, value in given]
