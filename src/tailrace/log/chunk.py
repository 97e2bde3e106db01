"""Chunks: the records of one group commit as Arrow record batches, one run of them per partition.

A chunk object is an Arrow IPC stream (schema, batches, end mark) that any Arrow tool opens.  A run is the byte range of
one partition's batches in it; its position, length and crc32c are in the chunk's entry in the head.  A small chunk is
kept in an item instead, and then holds the runs alone.  See docs/formats/chunk.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import crc32c
import pyarrow as pa

from tailrace.errors import Damaged
from tailrace.storage.objects import Bytes

Compression: TypeAlias = Literal["none", "lz4", "zstd"]

HEADERS, OFFSETS = 1, 2
"""Bits of a chunk's kind: its batches have a headers column, an offset column (a compacted one)."""

BATCH_ROWS = 65536
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_PLAIN: list[pa.Field[Any]] = [
    pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("attributes", pa.uint8(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
_HEADER = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(_HEADER)


def _schema(kind: int) -> pa.Schema:
    fields = list(_PLAIN)
    if kind & HEADERS:
        fields.append(pa.field("headers", HEADERS_TYPE))
    if kind & OFFSETS:
        fields.append(pa.field("offset", pa.int64(), nullable=False))
    return pa.schema(fields)


SCHEMAS = tuple(_schema(kind) for kind in range(4))
_SCHEMA_BYTES = tuple(schema.serialize().to_pybytes() for schema in SCHEMAS)


@dataclass(frozen=True, slots=True)
class Run:
    """One partition's records in a chunk: how many, where, their checksum and their latest timestamp."""

    partition: int
    count: int
    position: int
    length: int
    crc: int
    latest: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Encoded records, not stored yet."""

    kind: int
    runs: tuple[Run, ...]
    parts: tuple[Bytes, ...]
    size: int

    @property
    def counts(self) -> dict[int, int]:
        """How many records of each partition."""
        return {run.partition: run.count for run in self.runs}

    def inline(self) -> tuple[bytes, tuple[Run, ...]]:
        """The runs alone, for an item of their own, and where they lie there."""
        skip = len(_SCHEMA_BYTES[self.kind])
        runs = tuple(Run(r.partition, r.count, r.position - skip, r.length, r.crc, r.latest) for r in self.runs)
        return b"".join(self.parts[1:-1]), runs


def encode(batches: Mapping[int, Sequence[pa.RecordBatch]], compression: Compression = "none") -> Chunk:
    """Records by partition → a chunk.  All batches have the same one of `SCHEMAS`."""
    schema = next(iter(batches.values()))[0].schema
    kind = SCHEMAS.index(schema)
    prefix = _SCHEMA_BYTES[kind]
    parts: list[Bytes] = [prefix]
    runs, position = [], len(prefix)
    for partition in sorted(batches):
        piece = memoryview(_messages(batches[partition], schema, compression))
        latest = max(_latest(batch) for batch in batches[partition])
        count = sum(batch.num_rows for batch in batches[partition])
        runs.append(Run(partition, count, position, len(piece), crc32c.crc32c(piece), latest))
        parts.append(piece)
        position += len(piece)
    parts.append(END)
    return Chunk(kind, tuple(runs), tuple(parts), position + len(END))


def _messages(batches: Sequence[pa.RecordBatch], schema: pa.Schema, compression: Compression) -> pa.Buffer:
    if compression == "none" and len(batches) == 1 and batches[0].num_rows <= BATCH_ROWS:
        return batches[0].serialize()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                writer.write_batch(batch.slice(start, BATCH_ROWS))
    skip = len(_SCHEMA_BYTES[SCHEMAS.index(schema)])
    whole = sink.getvalue()
    return whole.slice(skip, whole.size - skip - len(END))


def _latest(batch: pa.RecordBatch) -> int:
    column = batch.column(0)
    if len(column) == 1:
        return column[0].value  # type: ignore[no-any-return]
    return pa.compute.max(column).value  # type: ignore[no-any-return]


def decode(kind: int, run: Run, data: memoryview, where: str) -> list[pa.RecordBatch]:
    """The record batches of a run, without a copy; `Damaged` unless they are exactly what was written."""
    if len(data) != run.length or crc32c.crc32c(data) != run.crc:
        raise Damaged(
            f"{where}: the {run.length} bytes at {run.position} are not the ones written "
            f"({'cut to ' + str(len(data)) if len(data) != run.length else 'their checksum differs'}); "
            "`tailrace scrub` lists all such damage",
            where=where,
            position=run.position,
        )
    source, batches = pa.BufferReader(pa.py_buffer(data)), []
    schema = SCHEMAS[kind]
    while source.tell() < run.length:
        batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(source), schema))
    return batches
