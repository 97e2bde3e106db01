"""Printing of records as they are read: text, JSON, Arrow, Parquet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tailrace.cli.shared.options import PrintFormat
from tailrace.cli.shared.output import record_as_json, record_as_text
from tailrace.errors import BadInput, StorageError

if TYPE_CHECKING:
    from tailrace.log.read.fetched import Fetched
    from tailrace.log.record import Record

BINARY = (PrintFormat.arrow, PrintFormat.parquet)


@contextmanager
def destination(output: Path | None, format: PrintFormat) -> Iterator[IO[bytes]]:
    """Yields where to print records: a file, which appears once it is whole, or standard output."""
    if output is None:
        if format in BINARY and sys.stdout.isatty():
            raise BadInput(f"{format.value} is not for a terminal; write it to a file: --output FILE")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = output.with_name(output.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
        os.replace(part, output)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot write {output}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def write(fetched: Iterable[Fetched], topic: str, format: PrintFormat, out: IO[bytes]) -> None:
    """Write records in a format, as they are read."""
    if format in BINARY:
        _write_arrow(fetched, format, out)
    elif format is PrintFormat.json:
        _write_array(fetched, topic, out)
    else:
        line_of = record_as_json if format is PrintFormat.jsonl else record_as_text
        for some in records(fetched, topic):
            out.write("".join([line_of(record) + "\n" for record in some]).encode())


def records(fetched: Iterable[Fetched], topic: str) -> Iterator[Iterator[Record]]:
    """Yield the records to print, run by run; the rows of a pipeline become JSON."""
    from tailrace.log.interchange.folder import plain
    from tailrace.log.topic import as_records

    return (as_records(topic, plain(one)) for one in fetched)


def _write_array(fetched: Iterable[Fetched], topic: str, out: IO[bytes]) -> None:
    before = b"[\n"
    for some in records(fetched, topic):
        for record in some:
            out.write(before + b"  " + record_as_json(record).encode())
            before = b",\n"
    out.write(b"\n]\n" if before == b",\n" else b"[]\n")


def _write_arrow(fetched: Iterable[Fetched], format: PrintFormat, out: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tailrace.log.format.chunk import HEADERS, HEADERS_TYPE, SCHEMAS
    from tailrace.log.interchange.folder import plain
    from tailrace.log.topic import as_arrow

    places = [pa.field("partition", pa.int32(), nullable=False), pa.field("offset", pa.int64(), nullable=False)]
    schema = pa.schema([*places, *SCHEMAS[HEADERS]])
    writer: Any = pq.ParquetWriter(out, schema, compression="zstd") if format is PrintFormat.parquet else None
    writer = writer or pa.ipc.new_stream(out, schema)
    with writer:
        for one in fetched:
            columns = as_arrow(plain(one)).columns
            if len(columns) < len(schema):
                columns.append(pa.nulls(one.data.num_rows, HEADERS_TYPE))
            writer.write_batch(pa.record_batch(columns, schema=schema))
