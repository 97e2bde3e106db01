"""Buffers: records on their way into a chunk, by partition.  Pure: no clock, no threads, no storage."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import UnknownPartition
from tailrace.log.format.chunk import Chunk, Compression, encode
from tailrace.log.record import Partitioner, check_bytes, header_pairs, partition_of
from tailrace.log.write.input import too_large
from tailrace.log.write.record_batch import batch_of, by_partition, partitions_of, unified, with_headers
from tailrace.log.write.repartition import destinations

Headers: TypeAlias = Mapping[str, bytes] | Sequence[tuple[str, bytes]]

MAX_ROWS_SORTED_IN_PYTHON = 64
"""Up to this many loose rows Python sorts faster than Arrow."""

KEYLESS_BYTES_PER_PARTITION = 64 * 1024
"""Bytes of a batch without keys that go to one partition: spread over several partitions, they would not be read
faster."""

RECORD_OVERHEAD_BYTES = 24
"""Bytes counted for a record besides its key and value."""


class Bin:
    """The records of one partition, in order: record batches, and rows that do not form a batch yet."""

    __slots__ = ("attributes", "batches", "count", "headers", "keys", "size", "stamps", "values")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.count = self.size = 0
        self._clear()

    def _clear(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.stamps: list[int] = []
        self.attributes: dict[int, int] = {}
        self.headers: dict[int, tuple[tuple[str, bytes], ...]] = {}

    def add(self, batch: pa.RecordBatch, size: int) -> None:
        """Add records to the bin that come as Arrow."""
        self.settle()
        self.batches.append(batch)
        self.count += batch.num_rows
        self.size += size

    def add_row(self, key: bytes | None, value: bytes | None, stamp: int, size: int) -> None:
        """Add one record to the bin."""
        self.keys.append(key)
        self.values.append(value)
        self.stamps.append(stamp)
        self.count += 1
        self.size += size

    def settle(self) -> None:
        """Turn the rows that the bin has so far into a record batch."""
        if not self.keys:
            return
        rows = range(len(self.keys))
        marks = [self.attributes.get(i, 0) for i in rows] if self.attributes else ()
        batch = batch_of(self.keys, self.values, self.stamps, marks)
        if self.headers:
            batch = with_headers(batch, [self.headers.get(i) for i in rows])
        self.batches.append(batch)
        self._clear()


class Segment:
    """Rows that were assigned to partitions together, and where each went. Their ranks are computed when first asked
    for."""

    __slots__ = ("_ranks", "before", "start", "where")

    def __init__(self, start: int, where: Sequence[int] | pa.Array[Any], before: Mapping[int, int]) -> None:
        self.start, self.where, self.before = start, where, before
        self._ranks: list[tuple[int, int]] | None = None

    def place(self, row: int) -> tuple[int, int]:
        """The partition of a row, and its place among the buffer's records of it."""
        if self._ranks is None:
            next_rank = dict(self.before)
            ranks: list[tuple[int, int]] = []
            where: Any = self.where
            for q in where if isinstance(where, list) else where.to_pylist():
                rank = next_rank.get(q, 0)
                ranks.append((q, rank))
                next_rank[q] = rank + 1
            self._ranks = ranks  # complete when assigned: other threads ask at the same time
        return self._ranks[row - self.start]


class Buffer:
    """Records of a topic until they become one chunk.  Most records have a key and nothing special: they wait as loose
    rows, and are hashed and sorted into partitions together, which takes a fraction of the time that one by one would
    take."""

    __slots__ = (
        "_batched",
        "_keys",
        "_stamps",
        "_values",
        "bins",
        "first",
        "max_record_bytes",
        "partitioner",
        "partitions",
        "pinned",
        "rows",
        "segments",
        "size",
    )  # fmt: skip

    def __init__(
        self, partitions: int, max_record_bytes: int, first: int = 0, partitioner: Partitioner = "sha256"
    ) -> None:
        self.partitions, self.max_record_bytes = partitions, max_record_bytes
        self.partitioner: Partitioner = partitioner
        self.first = first % partitions
        """The partition that records without a key go to while all partitions have as many bytes."""
        self.bins: dict[int, Bin] = {}
        self.size = self.rows = self._batched = 0
        self.segments: list[Segment] = []
        self.pinned: list[tuple[int, int, int]] = []
        """(partition, place, count) of records with a key that were sent to a partition, whatever their key."""
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._stamps: list[int] = []

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        stamp: int,
        headers: Headers | None = None,
        attributes: int = 0,
        partition: int | None = None,
    ) -> int:
        """Add one record; returns its row number, for `place`."""
        row = self.rows
        if key.__class__ is value.__class__ is bytes and not headers and not attributes and partition is None:
            size = len(key) + len(value)
            if size > self.max_record_bytes:
                raise too_large(size, self.max_record_bytes)
            self._keys.append(key)
            self._values.append(value)
            self._stamps.append(stamp)
            self.size += size + RECORD_OVERHEAD_BYTES
        else:
            self._add_special(key, value, stamp, headers, attributes, partition)
        self.rows = row + 1
        return row

    @property
    def count(self) -> int:
        """How many records the buffer has."""
        return self.rows + self._batched

    def _add_special(
        self,
        key: bytes | None,
        value: bytes | None,
        stamp: int,
        headers: Headers | None,
        attributes: int,
        partition: int | None,
    ) -> None:
        check_bytes("key", key)
        check_bytes("value", value)
        pairs = header_pairs(headers) if headers else ()
        size = len(key or b"") + len(value or b"") + sum(len(name.encode()) + len(data) for name, data in pairs)
        if size > self.max_record_bytes:
            raise too_large(size, self.max_record_bytes)
        self.settle()
        sent_to = partition
        if partition is None:
            partition = self.roomiest() if key is None else self._partition_of(key)
        bin = self._bin(partition)
        if sent_to is not None and key is not None:
            self.pinned.append((partition, bin.count, 1))
        if attributes:
            bin.attributes[len(bin.keys)] = attributes
        if pairs:
            bin.headers[len(bin.keys)] = pairs
        self.segments.append(Segment(self.rows, [partition], {partition: bin.count}))
        bin.add_row(key, value, stamp, size + RECORD_OVERHEAD_BYTES)
        self.size += size + RECORD_OVERHEAD_BYTES

    def add_together(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        stamp: int,
        attributes: Sequence[int],
    ) -> range:
        """Add many records with one timestamp, which the caller has checked; returns their row numbers, for `place`.

        Records without a key go to the partitions in turn.  All become one sorted batch, and slices of it: `add` for
        each record would cost five times as much."""
        self.settle()
        count, start = len(keys), self.rows
        turns = itertools.cycle([*range(self.first, self.partitions), *range(self.first)])
        where = [next(turns) if key is None else self._partition_of(key) for key in keys]
        before = {q: bin.count for q, bin in self.bins.items()}
        order = sorted(range(count), key=where.__getitem__)
        sorted_keys, sorted_values = [keys[i] for i in order], [values[i] for i in order]
        batch = batch_of(sorted_keys, sorted_values, [stamp] * count, [attributes[i] for i in order])
        self._add_slices(batch, sorted_keys, sorted_values, [where[i] for i in order])
        self.segments.append(Segment(start, where, before))
        self.rows += count
        return range(start, self.rows)

    def settle(self) -> None:
        """Sort the loose rows into their partitions."""
        if not self._keys:
            return
        rows = len(self._keys)
        start, before = self.rows - rows, {q: bin.count for q, bin in self.bins.items()}
        if rows > MAX_ROWS_SORTED_IN_PYTHON:
            batch = batch_of(self._keys, self._values, self._stamps)
            where = partitions_of(batch.column(2), self.partitions, self.partitioner)
            for q, part in by_partition(batch, where):
                (self.bins.get(q) or self._bin(q)).add(part, part.nbytes)
        else:
            where = [partition_of(key, self.partitions, self.partitioner) for key in self._keys]
            if self.bins:
                self._add_rows(where)
            else:
                self._add_few(where)
        self.segments.append(Segment(start, where, before))
        self._keys, self._values, self._stamps = [], [], []

    def _add_few(self, where: Sequence[int]) -> None:
        """Sort a few rows before they become Arrow and slice them afterwards, so that only one batch is made."""
        keys, values, stamps = self._keys, self._values, self._stamps
        if len(where) > 1:
            order = sorted(range(len(where)), key=where.__getitem__)
            keys, values = [keys[i] for i in order], [values[i] for i in order]
            stamps, where = [stamps[i] for i in order], [where[i] for i in order]
        self._add_slices(batch_of(keys, values, stamps), keys, values, where, counted=True)

    def _add_slices(
        self,
        batch: pa.RecordBatch,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        where: Sequence[int],
        counted: bool = False,
    ) -> None:
        """The rows of a batch that is sorted by partition; `counted` if the buffer's size has them already."""
        sizes, at = (
            [RECORD_OVERHEAD_BYTES + len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)],
            0,
        )
        for q, rows in groupby(where):
            end = at + len(list(rows))
            self._bin(q).add(batch.slice(at, end - at), sum(sizes[at:end]))
            at = end
        self.size += 0 if counted else sum(sizes)

    def _add_rows(self, where: Sequence[int]) -> None:
        for q, key, value, stamp in zip(where, self._keys, self._values, self._stamps, strict=True):
            (self.bins.get(q) or self._bin(q)).add_row(
                key, value, stamp, RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
            )

    def place(self, row: int) -> tuple[int, int]:
        """The partition of a record that `add` took, and its place among this buffer's records of it."""
        self.settle()
        at = bisect_right(self.segments, row, key=lambda segment: segment.start) - 1
        return self.segments[at].place(row)

    def add_batch(self, batch: pa.RecordBatch, partition: int | None = None) -> list[tuple[int, int, int]]:
        """Add the records of a batch made by `rows`; returns (partition, place, count) for each partition that got
        some."""
        self.settle()
        placed = []
        for q, part in self._split(batch, partition):
            bin = self._bin(q)
            placed.append((q, bin.count, part.num_rows))
            if partition is not None:
                self.pinned.append(placed[-1])
            bin.add(part, part.nbytes)
            self.size += part.nbytes
            self._batched += part.num_rows
        return placed

    def _split(self, batch: pa.RecordBatch, partition: int | None) -> Iterable[tuple[int, pa.RecordBatch]]:
        if partition is not None:
            return [(partition, batch)]
        if self.partitions == 1:
            return [(0, batch)]
        keys = batch.column(2)
        to = self._roomy(batch.nbytes * keys.null_count // max(1, len(keys)))
        step = -(-len(keys) // len(to))
        if keys.null_count == len(keys):
            return [(q, batch.slice(n * step, step)) for n, q in enumerate(to) if n * step < len(keys)]
        where = partitions_of(keys, self.partitions, self.partitioner)
        if keys.null_count:
            turns = pa.array(to, pa.uint8()).take(pc.divide(pa.arange(0, len(keys)), step))
            where = pc.coalesce(where, turns)
        return by_partition(batch, where)

    def _partition_of(self, key: bytes) -> int:
        return partition_of(key, self.partitions, self.partitioner)

    def _roomy(self, size: int) -> list[int]:
        """The partitions for this many bytes without a key: few bytes stay together, many are spread over all
        partitions."""
        sizes = {q: bin.size for q, bin in self.bins.items()}
        order = sorted(range(self.partitions), key=lambda q: (sizes.get(q, 0), (q - self.first) % self.partitions))
        return order[: max(1, min(self.partitions, size // KEYLESS_BYTES_PER_PARTITION))]

    def _bin(self, partition: int) -> Bin:
        if partition.__class__ is not int or not 0 <= partition < self.partitions:
            raise UnknownPartition(f"there is no partition {partition!r}; the topic has 0 to {self.partitions - 1}")
        return self.bins.get(partition) or self.bins.setdefault(partition, Bin())

    def roomiest(self) -> int:
        """The partition with the least buffered bytes, which gets the next record without a key."""
        sizes = {q: bin.size for q, bin in self.bins.items()}
        return min(range(self.partitions), key=lambda q: (sizes.get(q, 0), (q - self.first) % self.partitions))

    def destinations(self, partitions: int) -> dict[int, list[tuple[int, int]]]:
        """Where its records belong with another number of partitions; see `repartition`."""
        for bin in self.bins.values():
            bin.settle()
        return destinations({q: bin.batches for q, bin in self.bins.items()}, self.pinned, partitions, self.partitioner)

    def encode(self, compression: Compression) -> Chunk:
        """Encode all records as one chunk."""
        self.settle()
        for bin in self.bins.values():
            bin.settle()
        filled = {q: bin.batches for q, bin in self.bins.items() if bin.count}
        return encode(unified(filled), compression, self.partitions, self.pinned, self.partitioner)
