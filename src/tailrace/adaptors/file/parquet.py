"""Parquet files as a source: read by row groups, and only once they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.rows import make_rows
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Mode, Op

BATCH_ROWS = 65536


def is_whole(path: Path) -> bool:
    """Whether a file has its end; who writes one writes that last."""
    try:
        pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError):
        return False
    return True


def groups(path: Path) -> int:
    """How many row groups a file has."""
    try:
        return int(pq.read_metadata(path).num_row_groups)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} is not a whole Parquet file: {error}") from None


def cuts(path: Path, end: int, rows: int) -> list[tuple[int, int, int | None]]:
    """Runs of row groups with about so many rows: (first, after the last, rows)."""
    metadata = pq.read_metadata(path)
    out: list[tuple[int, int, int | None]] = []
    first = count = 0
    for n in range(end):
        count += metadata.row_group(n).num_rows
        if count >= rows or n == end - 1:
            out.append((first, n + 1, count))
            first, count = n + 1, 0
    return out


def rows(
    path: Path, start: int, end: int, namespace: str, settings: FileSource, mode: Mode, now: int
) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups."""
    if start >= end:
        return
    with pq.ParquetFile(path) as file:
        for key in settings.keys:
            if key not in file.schema_arrow.names:
                raise BadSetting.unknown(f"{path}: the keys: the file", key, file.schema_arrow.names)
        for batch in file.iter_batches(BATCH_ROWS, row_groups=list(range(start, end))):
            if batch.num_rows:
                yield make_rows(namespace, batch, settings.keys, op=Op.INSERT, mode=mode, timestamp=now)
