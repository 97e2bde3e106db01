"""Repacking: makes one chunk of the records of some neighbouring chunks.

Large runs are copied as they are, small ones are decoded and written as larger record batches.  So packing costs
little more than copying, and the result is read as fast as a chunk that was large from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import crc32c
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.format.chunk import (
    BATCH_ROWS,
    END,
    HEADERS,
    HEADERS_TYPE,
    OFFSETS,
    SCHEMA_BYTES,
    SCHEMAS,
    TYPED,
    Chunk,
    Compression,
    PartitionRun,
    batches_of,
    in_parts,
    kind_of,
    streams,
    verify,
)
from tailrace.log.format.head import ChunkEntry, plus
from tailrace.log.format.run import read_runs, where_is
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.objects import Bytes

LARGE_BYTES, LARGE_ROWS = 64 * 1024, 4096
"""Bytes or rows of a run above which it is copied as it is."""
BYTES_PER_WRITE = 8 * 1024 * 1024
"""Bytes of decoded records that are collected before they are written."""

OFFSET: pa.Field[Any] = pa.field("offset", pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True)
class RunToPack:
    """One run of a chunk to be packed, its bytes, and the offset at which it begins."""

    kind: int
    run: PartitionRun
    first: int
    data: memoryview
    where: str

    @property
    def large(self) -> bool:
        """Whether the run is so large that repacking copies its bytes as they are."""
        return self.run.length >= LARGE_BYTES or self.run.count >= LARGE_ROWS

    def batches(self, columns: frozenset[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The run's records to repack, batch by batch, perhaps with an offset column. `columns`: only these."""
        return batches_of(self.kind, self.run, self.data, self.where, columns)


def read_pieces(
    log: TopicLog, entries: Iterable[ChunkEntry], base: Mapping[int, int]
) -> Steps[dict[int, list[RunToPack]]]:
    """The runs of chunks that begin at these offsets, by partition.  `ObjectMissing` if a chunk is gone."""
    out: dict[int, list[RunToPack]] = {}
    at = plus(base, {})
    for entry in entries:
        full = [run for run in entry.runs if run.length]
        data = iter((yield from read_runs(log.id, entry, full)) if full else ())
        for run in entry.runs:
            piece = next(data) if run.length else memoryview(b"")
            out.setdefault(run.partition, []).append(
                RunToPack(entry.kind, run, at[run.partition], piece, where_is(log.id, entry))
            )
        at = plus(at, entry.counts)
    return out


def kind_for(kinds: Iterable[int]) -> int:
    """The kind of a chunk that can hold the records of chunks of these kinds."""
    kind = reduce(or_, kinds, 0)
    return kind & ~HEADERS if kind & TYPED else kind


def packed(pieces: Mapping[int, Sequence[RunToPack]], compression: Compression) -> Chunk:
    """The runs of each partition, repacked as one."""
    kind = kind_for(piece.kind for some in pieces.values() for piece in some)
    runs = {q: RunWriter(kind, compression) for q in sorted(pieces)}
    for q, writer in runs.items():
        for piece in pieces[q]:
            writer.take_over(piece)
    return chunk_of(kind, runs)


def chunk_of(kind: int, runs: Mapping[int, RunWriter]) -> Chunk:
    """A chunk of runs that come in the order of their partitions."""
    parts: list[Bytes] = [] if kind & TYPED else [SCHEMA_BYTES[kind]]
    position, made = sum(map(len, parts)), []
    for q, writer in runs.items():
        made.append(writer.run(q, position))
        parts += writer.parts
        position += made[-1].length
    if not kind & TYPED:
        parts.append(END)
        position += len(END)
    return Chunk(kind, tuple(made), tuple(parts), position)


class RunWriter:
    """Builds one partition's run."""

    def __init__(self, kind: int, compression: Compression) -> None:
        self._kind, self._compression = kind, compression
        self.parts: list[Bytes] = []
        self.count = 0
        """How many offsets the run stands for, including those of records that compaction has removed."""
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._size = 0
        self._times: list[tuple[int, int]] = []

    def take_over(self, piece: RunToPack) -> None:
        """Add all records of a run, with as little decoding as possible."""
        self.count += piece.run.count
        if not piece.run.length:
            return
        self._times.append((piece.run.latest - piece.run.span, piece.run.latest))
        if piece.kind == self._kind and piece.large:
            verify(piece.run, piece.data, piece.where)
            self._flush()
            self.parts.append(piece.data)
            return
        at = piece.first
        for batch in piece.batches():
            self._wait(batch, at)
            at += batch.num_rows

    def add(self, batch: pa.RecordBatch, first: int) -> None:
        """Add some records, which have an offset column or begin at `first`; the caller raises `count`."""
        if batch.num_rows:
            ends = pc.min_max(batch.column(0))
            self._times.append((ends["min"].value, ends["max"].value))
            self._wait(batch, first)

    def _wait(self, batch: pa.RecordBatch, first: int) -> None:
        large = batch.num_rows >= LARGE_ROWS or batch.nbytes >= LARGE_BYTES
        if large:
            self._flush()
        self._waiting.append(fitted(batch, self._kind, first))
        self._rows, self._size = self._rows + batch.num_rows, self._size + batch.nbytes
        if large or self._rows >= BATCH_ROWS or self._size >= BYTES_PER_WRITE:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batches = [one for alike in _alike(self._waiting) for one in _joined(alike)]
        if self._kind & TYPED:
            self.parts.append(memoryview(streams(batches, self._compression)))
        else:
            for batch in batches:
                self.parts += in_parts(batch, SCHEMAS[self._kind], self._compression)
        self._waiting, self._rows, self._size = [], 0, 0

    def run(self, partition: int, position: int) -> PartitionRun:
        """The repacked run of the records so far, at this position of the chunk."""
        self._flush()
        crc = reduce(lambda crc, part: crc32c.crc32c(part, crc), self.parts, 0)
        length = sum(len(part) for part in self.parts)
        latest = max((latest for _, latest in self._times), default=0)
        earliest = min((earliest for earliest, _ in self._times), default=0)
        return PartitionRun(partition, self.count, position, length, crc, latest, latest - earliest)


def fitted(batch: pa.RecordBatch, kind: int, first: int) -> pa.RecordBatch:
    """A batch with the columns that a chunk of this kind has."""
    if kind & HEADERS and "headers" not in batch.schema.names:
        batch = pa.record_batch(
            [*batch.columns[:4], pa.nulls(batch.num_rows, HEADERS_TYPE), *batch.columns[4:]],
            schema=SCHEMAS[kind_of(batch.schema) | HEADERS],
        )
    if kind & OFFSETS and "offset" not in batch.schema.names:
        batch = with_offsets(batch, pa.arange(first, first + batch.num_rows))
    return batch


def with_offsets(batch: pa.RecordBatch, offsets: pa.Array[Any]) -> pa.RecordBatch:
    """A batch of a compacted chunk: with these offsets as its last column."""
    return pa.record_batch([*batch.columns, offsets], schema=batch.schema.append(OFFSET))


def _alike(batches: Sequence[pa.RecordBatch]) -> Iterable[list[pa.RecordBatch]]:
    """Groups of neighbouring batches with the same schema."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        if some and not batch.schema.equals(some[0].schema, check_metadata=True):
            yield some
            some = []
        some.append(batch)
    yield some


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    try:
        joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches(BATCH_ROWS)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        # dictionaries whose union needs wider indices, and types that an older Arrow cannot join
        return batches
    return joined
