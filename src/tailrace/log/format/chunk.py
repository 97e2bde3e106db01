"""Chunks: the records of one group commit as Arrow record batches, one run of them per partition.

A chunk object is an Arrow IPC stream (schema, batches, end mark) that any Arrow tool opens.  A run is the byte range of
one partition's batches in it; its position, length and crc32c are in the chunk's entry in the head.  A small chunk is
kept in an item instead, and then holds the runs alone.

Records usually have a `value` of bytes.  Those of a pipeline have their row's columns instead, in a struct `data`,
typed as in the source.  Each run of such a chunk is a sequence of whole Arrow IPC streams, one for every schema in it.
See docs/formats/chunk.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.errors import Damaged, OutOfMemory
from tailrace.log.format.arrow_message import about
from tailrace.log.format.partition_run import CompactBy as CompactBy
from tailrace.log.format.partition_run import Compression as Compression
from tailrace.log.format.partition_run import PartitionRun as PartitionRun
from tailrace.log.format.projection import picked, picking
from tailrace.log.record import Partitioner
from tailrace.storage.objects import Bytes

HEADERS, OFFSETS, MANIFEST, TYPED = 1, 2, 4, 8
"""Bits of a chunk's kind.  HEADERS: its batches have headers.  OFFSETS: its batches have offsets, as compaction writes
them.  MANIFEST: it lists other chunks.  TYPED: each of its batches has a schema of its own."""

BATCH_ROWS, BATCH_BYTES = 65536, 16 * 1024 * 1024
"""The most rows, and about the most bytes, of a record batch: they bound the memory that decoding a compressed batch
takes."""
MAX_COPIED_BATCH_BYTES = 64 * 1024
"""Batches of fewer bytes are copied rather than written part by part."""
MAX_NUMBERS_COMPARED_IN_PYTHON = 64
"""Up to this many numbers Python compares faster than Arrow."""

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
SCHEMA_BYTES = tuple(schema.serialize().to_pybytes() for schema in SCHEMAS)


class Chunk(Struct, frozen=True):
    """Encoded records, not stored yet."""

    kind: int
    runs: tuple[PartitionRun, ...]
    parts: tuple[Bytes, ...]
    size: int
    compression: Compression = "none"
    partitions: int = 0
    """How many partitions the topic had when the producer assigned the records to them; 0: it does not matter."""
    pinned: tuple[tuple[int, int, int], ...] = ()
    """(partition, place, count) of records with a key that were sent to this partition, whatever their key."""
    partitioner: Partitioner = "sha256"
    """How the producer assigned the other records with a key to partitions."""

    @property
    def counts(self) -> dict[int, int]:
        """How many records of each partition."""
        return {run.partition: run.count for run in self.runs}

    def batches(self) -> dict[int, list[pa.RecordBatch]]:
        """The chunk's records again, by partition."""
        pieces = self.parts if self.kind & TYPED else self.parts[1:-1]
        runs = zip(self.runs, pieces, strict=True)
        return {run.partition: decode(self.kind, run, memoryview(piece), "a chunk") for run, piece in runs}

    def inline(self) -> tuple[bytes, tuple[PartitionRun, ...]]:
        """The runs alone, as they are stored in an item of the table, and the position of each."""
        if self.kind & TYPED:
            return b"".join(self.parts), self.runs
        skip = len(SCHEMA_BYTES[self.kind])
        runs = tuple(
            PartitionRun(r.partition, r.count, r.position - skip, r.length, r.crc, r.latest, r.span) for r in self.runs
        )
        return b"".join(self.parts[1:-1]), runs


def kind_of(schema: pa.Schema) -> int:
    """The kind of chunk that can hold a batch of this schema."""
    if schema.equals(SCHEMAS[0], check_metadata=True):
        return 0
    return SCHEMAS.index(schema) if schema in SCHEMAS else TYPED


def encode(
    batches: Mapping[int, Sequence[pa.RecordBatch]],
    compression: Compression = "none",
    partitions: int = 0,
    pinned: Sequence[tuple[int, int, int]] = (),
    partitioner: Partitioner = "sha256",
) -> Chunk:
    """Encode records, given by partition, as a chunk. All plain batches have the same one of `SCHEMAS`."""
    kinds = {kind_of(batch.schema) for some in batches.values() for batch in some}
    kind = kinds.pop() if len(kinds) == 1 else TYPED
    schema = None if kind == TYPED else SCHEMAS[kind]
    parts: list[Bytes] = [] if kind == TYPED else [SCHEMA_BYTES[kind]]
    runs, position = [], sum(map(len, parts))
    for partition in sorted(batches):
        some = batches[partition]
        piece = memoryview(streams(some, compression) if schema is None else messages(some, schema, compression))
        earliest, latest = _times(some)
        count = sum(batch.num_rows for batch in some)
        runs.append(
            PartitionRun(partition, count, position, len(piece), crc32c.crc32c(piece), latest, latest - earliest)
        )
        parts.append(piece)
        position += len(piece)
    if kind != TYPED:
        parts.append(END)
        position += len(END)
    return Chunk(kind, tuple(runs), tuple(parts), position, compression, partitions, tuple(pinned), partitioner)


def streams(batches: Sequence[pa.RecordBatch], compression: Compression) -> pa.Buffer:
    """Batches of any schemas as IPC streams; a new stream begins where the schema changes."""
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    sink = pa.BufferOutputStream()
    writer: Any = None
    for batch, before in zip(batches, [None, *batches[:-1]], strict=True):
        if before is None or not batch.schema.equals(before.schema, check_metadata=True):
            if writer is not None:
                writer.close()
            writer = pa.ipc.new_stream(sink, batch.schema, options=options)
        writer.write_batch(batch)
    writer.close()
    return sink.getvalue()


def messages(batches: Sequence[pa.RecordBatch], schema: pa.Schema, compression: Compression) -> pa.Buffer:
    """Batches of one of `SCHEMAS` as the bytes of a run."""
    if compression == "none" and len(batches) == 1 and batches[0].num_rows <= BATCH_ROWS:
        return batches[0].serialize()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            for some in _bounded(batch):
                writer.write_batch(some)
    skip = len(SCHEMA_BYTES[SCHEMAS.index(schema)])
    whole = sink.getvalue()
    return whole.slice(skip, whole.size - skip - len(END))


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that are decoded one at a time, each in little memory."""
    per_row = batch.nbytes // max(1, batch.num_rows)
    step = min(BATCH_ROWS, max(1, BATCH_BYTES // max(1, per_row)))
    return (batch.slice(start, step) for start in range(0, batch.num_rows, step))


class _Parts:
    """A file-like object that collects the buffers Arrow writes to it, without copying them."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[memoryview] = []
        self._size = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        """Keep the next buffer."""
        self.parts.append(memoryview(data))
        self._size += len(self.parts[-1])
        return len(self.parts[-1])

    def tell(self) -> int:
        """The bytes written so far."""
        return self._size

    def flush(self) -> None:
        """Does nothing: no buffer is pending."""

    def close(self) -> None:
        """Does nothing: the buffers are needed after the end of the stream."""
        self.closed = True


def in_parts(batch: pa.RecordBatch, schema: pa.Schema, compression: Compression) -> list[Bytes]:
    """As `messages`, for a large batch: its buffers are not copied."""
    if batch.nbytes < MAX_COPIED_BATCH_BYTES:
        return [memoryview(messages([batch], schema, compression))]
    sink = _Parts()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema, options=options) as writer:
        for some in _bounded(batch):
            writer.write_batch(some)
    return _cut(sink.parts, len(SCHEMA_BYTES[SCHEMAS.index(schema)]), len(END))


def _cut(parts: list[memoryview], before: int, after: int) -> list[Bytes]:
    """The parts without their first `before` and their last `after` bytes."""
    while before >= len(parts[0]):
        before -= len(parts.pop(0))
    while after >= len(parts[-1]):
        after -= len(parts.pop())
    parts[0] = parts[0][before:]
    parts[-1] = parts[-1][: len(parts[-1]) - after]
    return list(parts)


def _times(batches: Sequence[pa.RecordBatch]) -> tuple[int, int]:
    """The earliest and the latest timestamp."""
    ends = [_ends(batch.column(0)) for batch in batches]
    return min(ends)[0], max(end for _, end in ends)


def _ends(column: pa.Array[Any]) -> tuple[int, int]:
    if len(column) > MAX_NUMBERS_COMPARED_IN_PYTHON:
        both = pc.min_max(column)
        return both["min"].value, both["max"].value
    data: Any = column.buffers()[1]
    numbers = memoryview(data).cast("q")[column.offset : column.offset + len(column)]
    return min(numbers), max(numbers)


def verify(run: PartitionRun, data: memoryview, where: str) -> None:
    """Raise `Damaged` unless these bytes of a run are exactly those that were written."""
    if len(data) != run.length or crc32c.crc32c(data) != run.crc:
        raise Damaged(
            f"{where}: the {run.length} bytes at {run.position} are not the ones written "
            f"({'cut to ' + str(len(data)) if len(data) != run.length else 'their checksum differs'}); "
            "restore it from a backup",
            where=where,
            position=run.position,
        )


def decode(
    kind: int, run: PartitionRun, data: memoryview, where: str, columns: frozenset[str] | None = None
) -> list[pa.RecordBatch]:
    """All record batches of a run, decoded at once. `batches_of` needs the memory of only one at a time."""
    return list(batches_of(kind, run, data, where, columns))


def batches_of(
    kind: int, run: PartitionRun, data: memoryview, where: str, columns: frozenset[str] | None = None, skip: int = 0
) -> Iterator[pa.RecordBatch]:
    """The record batches of a run, without a copy.  Raises `Damaged` before the first batch unless the bytes are
    exactly those that were written.  Each compressed batch is uncompressed when the caller asks for it.

    `columns`: decode only these columns, and a compacted chunk's offsets.  `skip`: of this many first rows the caller
    needs only the count, so a batch that lies wholly among them may come without columns."""
    verify(run, data, where)
    source = pa.BufferReader(pa.py_buffer(data))
    return _streamed(source, run, where, columns) if kind & TYPED else _plain(source, kind, run, where, columns, skip)


def _streamed(
    source: pa.BufferReader, run: PartitionRun, where: str, columns: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    while source.tell() < run.length:
        reader = pa.ipc.open_stream(source, options=picking(_next_schema(source), columns))
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except MemoryError as error:
                raise _no_memory(where, run, str(error)) from error
            yield batch


def _plain(
    source: pa.BufferReader, kind: int, run: PartitionRun, where: str, columns: frozenset[str] | None, skip: int
) -> Iterator[pa.RecordBatch]:
    while source.tell() < run.length:
        message = pa.ipc.read_message(source)
        if columns is None and skip <= 0:
            yield _whole(message, kind, run, where)
            continue
        told = about(message.metadata, message.body)
        if told.compressed and told.rows <= skip and not kind & OFFSETS:
            batch = bare(told.rows)
        elif columns is None or not told.compressed:
            batch = _whole(message, kind, run, where)
            batch = batch if columns is None else batch.select(picked(batch.schema, columns))
        else:
            batch = _inflated(message, kind, columns)
        skip -= told.rows
        yield batch


def _whole(message: pa.Message, kind: int, run: PartitionRun, where: str) -> pa.RecordBatch:
    try:
        return pa.ipc.read_record_batch(message, SCHEMAS[kind])
    except MemoryError as error:
        told = about(message.metadata, message.body)
        raise _no_memory(where, run, f"{told.rows:,} of its records need {told.inflated:,} bytes") from error


def bare(count: int) -> pa.RecordBatch:
    """A batch with `count` rows and no columns."""
    return pa.record_batch({"": pa.nulls(count)}).remove_column(0)


def _no_memory(where: str, run: PartitionRun, why: str) -> OutOfMemory:
    return OutOfMemory(
        f"{where}: there is not enough memory for the records at {run.position}: {why}; they are not damaged: "
        "read them in a process that has more memory"
    )


def _next_schema(source: pa.BufferReader) -> pa.Schema:
    at = source.tell()
    schema = pa.ipc.read_schema(source)
    source.seek(at)
    return schema


def _inflated(message: pa.Message, kind: int, columns: frozenset[str]) -> pa.RecordBatch:
    """Some columns of a compressed batch.  Arrow leaves out columns only when it reads a stream, so this wraps the
    batch in a stream."""
    sink = pa.BufferOutputStream()
    sink.write(SCHEMA_BYTES[kind])
    message.serialize_to(sink)
    return pa.ipc.open_stream(sink.getvalue(), options=picking(SCHEMAS[kind], columns)).read_next_batch()
