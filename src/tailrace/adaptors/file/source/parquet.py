"""Parquet files as a source: makes rows of row groups, once the file is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.file.source.bounded import MEMORY_BYTES, pieces
from tailrace.adaptors.file.source.parquet_pages import Column, columns_of
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadInput, BadSetting, OutOfMemory
from tailrace.log.record import Mode, Op

BATCH_ROWS = 65536
BUFFER_BYTES = 1024 * 1024

_VIEWS: dict[Any, pa.DataType] = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Types that Arrow cannot cast a dictionary to, and the types to cast it to instead."""


def is_whole(path: Path) -> bool:
    """Whether a file has its footer, which its writer writes last."""
    try:
        pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError):
        return False
    return True


def groups(path: Path) -> int:
    """How many row groups a file has.  `BadInput` if it is not complete."""
    try:
        return int(pq.read_metadata(path).num_row_groups)
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} is not a whole Parquet file: {error}") from None


def cuts(path: Path, end: int, rows: int) -> list[tuple[int, int, int | None]]:
    """Cut the row groups before `end` into runs with about this many rows: (first, after the last, rows)."""
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
    """The rows of the row groups from `start` to before `end`.  `BadSetting` if the file lacks a key."""
    if start >= end:
        return
    with path.open("rb") as file:
        names = pq.read_schema(file).names
        for key in settings.keys:
            if key not in names:
                raise BadSetting.unknown(f"{path}: the keys: the file", key, names)
        for batch in parquet_batches(file, str(path), BATCH_ROWS, range(start, end)):
            yield make_rows(namespace, batch, settings.keys, op=Op.INSERT, mode=mode, timestamp=now)


def parquet_batches(
    file: IO[bytes], name: str, rows: int, groups: Iterable[int] | None = None, memory: int = MEMORY_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of these row groups, or of all, at most `rows` at a time, and fewer if they would need more than
    `memory`.

    `BadInput` if the file is damaged, or if a single row may need more than `memory`."""
    try:
        plain = pq.ParquetFile(file)
        for n in range(plain.num_row_groups) if groups is None else groups:
            columns = columns_of(file, plain.schema, plain.metadata.row_group(n), name)
            shared = [column.path for column in columns if column.dictionary]
            source = pq.ParquetFile(file, read_dictionary=shared, buffer_size=BUFFER_BYTES, pre_buffer=False)
            for batch in source.iter_batches(_fitting(columns, rows, memory, name), row_groups=[n], use_threads=False):
                for some in pieces(batch):
                    yield _written_out(some, plain.schema_arrow)
    except MemoryError as error:
        raise OutOfMemory(f"{name}: there is not enough memory to decode it: {error}") from error
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{name} is no parquet file, or is damaged: {' '.join(str(error).split())}") from None


def _fitting(columns: Sequence[Column], rows: int, memory: int, name: str) -> int:
    """How many rows can be decoded at a time within `memory`."""
    while (needs := sum(column.needs(rows) for column in columns)) > memory:
        if rows == 1:
            largest = max(columns, key=lambda column: column.needs(1))
            raise BadInput(
                f"{name}: one row may need {needs:,} bytes, of them {largest.needs(1):,} in {largest.path!r}, and at "
                f"most {memory:,} are decoded at a time; write it again with smaller pages, or it is damaged"
            )
        rows = max(1, rows // 2)
    return rows


def _written_out(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with dictionaries written out, so that each row has its own value."""
    columns = [
        column if column.type == field.type else column.cast(_VIEWS.get(field.type, field.type))
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.record_batch(columns, names=schema.names)
