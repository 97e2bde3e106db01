"""Encoding: writers of part files in each format, which take rows group by group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from tailrace.adaptors.file.settings import FileSink, Format
from tailrace.adaptors.file.sink.shapes import UNSET, csv_unfit, own_name, parquet_unfit, without
from tailrace.adaptors.rows.json_text import json_objects

SUFFIX: Mapping[Format, str] = {"parquet": ".parquet", "jsonl": ".jsonl", "csv": ".csv"}


class Encoder(Protocol):
    """An open part file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a group of rows."""

    def close(self) -> None:
        """Write the end of the file, and close it."""


def prepared(batch: pa.RecordBatch, format: Format) -> pa.RecordBatch:
    """The batch as a part file's format can hold it: columns whose types the format lacks become text."""
    if format == "parquet":
        return without(batch, parquet_unfit)
    return without(batch, csv_unfit) if format == "csv" else batch


def open_encoder(path: Path, schema: pa.Schema, settings: FileSink) -> Encoder:
    """Create a part file for rows of a schema."""
    if settings.format == "parquet":
        return _Parquet(path, schema, settings.compression)
    return _Csv(path, schema) if settings.format == "csv" else _JsonLines(path)


class _Parquet:
    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression=compression)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_table(pa.Table.from_batches([batch]), row_group_size=max(1, batch.num_rows))

    def close(self) -> None:
        self._writer.close()


class _Csv:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pc_csv.CSVWriter(str(path), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("xb")

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.writelines(json_lines(batch))

    def close(self) -> None:
        self._file.close()


def json_lines(batch: pa.RecordBatch) -> list[bytes]:
    """Rows as lines of JSON, each with its line end.  An unset field is left out, and a null one is null."""
    column = own_name(batch.schema, UNSET)
    if b"own" not in batch.schema.metadata or column not in batch.schema.names:
        return [text + b"\n" for text in json_objects(batch)]
    unset = batch.column(column).to_pylist()
    return [text + b"\n" for text in json_objects(batch.drop_columns([column]), unset)]
