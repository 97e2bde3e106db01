"""Records as they are: makes a row of each, with key, value, headers and timestamp; partition and offset are the id.

The rows have the columns of the records of tailrace's own topics, so a sink writes them unchanged to a topic or
Kafka."""

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
    """Makes rows of records without decoding them."""

    def rows(self, namespace: str, records: Sequence[Received], partitions: int) -> list[pa.RecordBatch]:
        """All records as the rows of one batch."""
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
