"""Chunks: the records of one group commit as Arrow record batches, one run of them per partition.

A chunk object is an Arrow IPC stream (schema, batches, end mark) that any Arrow tool opens.  A run is the byte range of
one partition's batches in it; its position, length and crc32c are in the chunk's entry in the head.  A small chunk is
kept in an item instead, and then holds the runs alone.

Records usually have a `value` of bytes.  Those of a pipeline have their row's columns instead, in a struct `data`,
typed as in the source.  Each run of such a chunk is a sequence of whole Arrow IPC streams, one for every schema in it.
See docs/formats/chunk.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.errors import Damaged
from tailrace.log.picking import compressed, picked, picking
from tailrace.storage.objects import Bytes

Compression: TypeAlias = Literal["none", "lz4", "zstd"]
CompactBy: TypeAlias = Literal["key", "namespace"]

HEADERS, OFFSETS, MANIFEST, TYPED = 1, 2, 4, 8
"""Bits of a chunk's kind: its batches have headers; have offsets (a compacted one); it is a list of other chunks (see
manifest); its batches have schemas of their own."""

BATCH_ROWS = 65536
COPIED = 64 * 1024
"""Batches of fewer bytes are copied rather than written part by part."""
FEW = 64
"""So many numbers are quicker compared here than by Arrow."""

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


class Run(Struct, frozen=True, array_like=True):
    """One partition's records in a chunk: how many, where, their checksum, their latest timestamp, and how many
    milliseconds before that the earliest is."""

    partition: int
    count: int
    position: int
    length: int
    crc: int
    latest: int
    span: int


class Chunk(Struct, frozen=True):
    """Encoded records, not stored yet."""

    kind: int
    runs: tuple[Run, ...]
    parts: tuple[Bytes, ...]
    size: int
    compression: Compression = "none"
    partitions: int = 0
    """How many partitions the topic had when its keys were given theirs; 0: that does not matter."""
    pinned: tuple[tuple[int, int, int], ...] = ()
    """(partition, place, count) of records with a key that were sent to this partition, whatever their key."""

    @property
    def counts(self) -> dict[int, int]:
        """How many records of each partition."""
        return {run.partition: run.count for run in self.runs}

    def batches(self) -> dict[int, list[pa.RecordBatch]]:
        """Its records again, by partition."""
        pieces = self.parts if self.kind & TYPED else self.parts[1:-1]
        runs = zip(self.runs, pieces, strict=True)
        return {run.partition: decode(self.kind, run, memoryview(piece), "a chunk") for run, piece in runs}

    def inline(self) -> tuple[bytes, tuple[Run, ...]]:
        """The runs alone, for an item of their own, and where they lie there."""
        if self.kind & TYPED:
            return b"".join(self.parts), self.runs
        skip = len(SCHEMA_BYTES[self.kind])
        runs = tuple(Run(r.partition, r.count, r.position - skip, r.length, r.crc, r.latest, r.span) for r in self.runs)
        return b"".join(self.parts[1:-1]), runs


def kind_of(schema: pa.Schema) -> int:
    """The kind of chunk that a batch of this schema can be in."""
    if schema.equals(SCHEMAS[0], check_metadata=True):
        return 0
    return SCHEMAS.index(schema) if schema in SCHEMAS else TYPED


def encode(
    batches: Mapping[int, Sequence[pa.RecordBatch]],
    compression: Compression = "none",
    partitions: int = 0,
    pinned: Sequence[tuple[int, int, int]] = (),
) -> Chunk:
    """Records by partition → a chunk.  Plain batches all have the same one of `SCHEMAS`."""
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
        runs.append(Run(partition, count, position, len(piece), crc32c.crc32c(piece), latest, latest - earliest))
        parts.append(piece)
        position += len(piece)
    if kind != TYPED:
        parts.append(END)
        position += len(END)
    return Chunk(kind, tuple(runs), tuple(parts), position, compression, partitions, tuple(pinned))


def streams(batches: Sequence[pa.RecordBatch], compression: Compression) -> pa.Buffer:
    """Batches of any schemas as IPC streams, a new one where the schema changes."""
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
            for start in range(0, batch.num_rows, BATCH_ROWS):
                writer.write_batch(batch.slice(start, BATCH_ROWS))
    skip = len(SCHEMA_BYTES[SCHEMAS.index(schema)])
    whole = sink.getvalue()
    return whole.slice(skip, whole.size - skip - len(END))


class _Parts:
    """A file that keeps what is written to it as it is; Arrow hands it its buffers without a copy."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[memoryview] = []
        self._size = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        """The next part."""
        self.parts.append(memoryview(data))
        self._size += len(self.parts[-1])
        return len(self.parts[-1])

    def tell(self) -> int:
        """The bytes written so far."""
        return self._size

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """No more comes."""
        self.closed = True


def in_parts(batch: pa.RecordBatch, schema: pa.Schema, compression: Compression) -> list[Bytes]:
    """The same as `messages` of a large batch, which is not copied."""
    if batch.nbytes < COPIED:
        return [memoryview(messages([batch], schema, compression))]
    sink = _Parts()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema, options=options) as writer:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            writer.write_batch(batch.slice(start, BATCH_ROWS))
    return _cut(sink.parts, len(SCHEMA_BYTES[SCHEMAS.index(schema)]), len(END))


def _cut(parts: list[memoryview], before: int, after: int) -> list[Bytes]:
    """Parts without so many bytes at either end."""
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
    if len(column) > FEW:
        both = pc.min_max(column)
        return both["min"].value, both["max"].value
    numbers = memoryview(cast(pa.Buffer, column.buffers()[1])).cast("q")[column.offset : column.offset + len(column)]
    return min(numbers), max(numbers)


def verify(run: Run, data: memoryview, where: str) -> None:
    """`Damaged` unless these are exactly the bytes of a run that were written."""
    if len(data) != run.length or crc32c.crc32c(data) != run.crc:
        raise Damaged(
            f"{where}: the {run.length} bytes at {run.position} are not the ones written "
            f"({'cut to ' + str(len(data)) if len(data) != run.length else 'their checksum differs'}); "
            "restore it from a backup",
            where=where,
            position=run.position,
        )


def decode(
    kind: int, run: Run, data: memoryview, where: str, columns: frozenset[str] | None = None
) -> list[pa.RecordBatch]:
    """The record batches of a run, without a copy; `Damaged` unless they are exactly what was written.

    `columns`: others are not decoded, but for a compacted chunk's offsets; nor is any copied or uncompressed."""
    verify(run, data, where)
    source, batches = pa.BufferReader(pa.py_buffer(data)), []
    while kind & TYPED and source.tell() < run.length:
        batches += list(pa.ipc.open_stream(source, options=picking(_next_schema(source), columns)))
    while source.tell() < run.length:
        message = pa.ipc.read_message(source)
        if columns is None or not compressed(message):
            batch = pa.ipc.read_record_batch(message, SCHEMAS[kind])
            batches.append(batch if columns is None else batch.select(picked(batch.schema, columns)))
        else:
            batches.append(_inflated(message, kind, columns))
    return batches


def _next_schema(source: pa.BufferReader) -> pa.Schema:
    at = source.tell()
    schema = pa.ipc.read_schema(source)
    source.seek(at)
    return schema


def _inflated(message: pa.Message, kind: int, columns: frozenset[str]) -> pa.RecordBatch:
    """Some columns of a compressed batch.  Arrow leaves columns out of streams alone, so this makes one of it."""
    sink = pa.BufferOutputStream()
    sink.write(SCHEMA_BYTES[kind])
    message.serialize_to(sink)
    return pa.ipc.open_stream(sink.getvalue(), options=picking(SCHEMAS[kind], columns)).read_next_batch()
