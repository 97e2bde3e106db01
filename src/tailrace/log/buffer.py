"""Buffers: records on their way into a chunk, by partition.  Pure: no clock, no threads, no storage."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import UnknownPartition
from tailrace.log.chunk import HEADERS, HEADERS_TYPE, SCHEMAS, Chunk, Compression, encode, kind_of
from tailrace.log.given import too_large
from tailrace.log.record import check_bytes, hashed, header_pairs, partition_of
from tailrace.log.regrouping import destinations

Headers: TypeAlias = Mapping[str, bytes] | Sequence[tuple[str, bytes]]

FEW = 64
"""So many loose rows are quicker sorted one by one."""

SAMPLE = 1024
"""So many keys show whether most of them are different."""

OVERHEAD = 24
"""Bytes counted for a record beside its key and value."""


class Bin:
    """The records of one partition, in order: record batches, and rows not yet made into one."""

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
        """Records that come as Arrow."""
        self.settle()
        self.batches.append(batch)
        self.count += batch.num_rows
        self.size += size

    def add_row(self, key: bytes | None, value: bytes | None, stamp: int, size: int) -> None:
        """One record."""
        self.keys.append(key)
        self.values.append(value)
        self.stamps.append(stamp)
        self.count += 1
        self.size += size

    def settle(self) -> None:
        """Make the rows so far into a record batch."""
        if not self.keys:
            return
        rows = range(len(self.keys))
        marks = [self.attributes.get(i, 0) for i in rows] if self.attributes else ()
        batch = batch_of(self.keys, self.values, self.stamps, marks)
        if self.headers:
            column = pa.array([_pairs(self.headers.get(i)) for i in rows], HEADERS_TYPE)
            batch = pa.RecordBatch.from_arrays([*batch.columns, column], schema=SCHEMAS[HEADERS])
        self.batches.append(batch)
        self._clear()


class Segment:
    """Rows that were placed together: where each went.  Their ranks are worked out when first asked for."""

    __slots__ = ("_ranks", "before", "start", "where")

    def __init__(self, start: int, where: Sequence[int] | pa.Array[Any], before: Mapping[int, int]) -> None:
        self.start, self.where, self.before = start, where, before
        self._ranks: list[tuple[int, int]] | None = None

    def place(self, row: int) -> tuple[int, int]:
        """The partition of a row, and its place among the buffer's records of it."""
        if self._ranks is None:
            next_rank = dict(self.before)
            ranks, where = [], cast(Any, self.where)
            for q in where if isinstance(where, list) else where.to_pylist():
                rank = next_rank.get(q, 0)
                ranks.append((q, rank))
                next_rank[q] = rank + 1
            self._ranks = ranks  # whole: other threads ask at the same time
        return self._ranks[row - self.start]


class Buffer:
    """Records of a topic until they become one chunk.

    Most records have a key and nothing special: they wait as loose rows, and are hashed and sorted into partitions
    together, which costs a fraction of doing it one by one."""

    __slots__ = (
        "_batched",
        "_keys",
        "_stamps",
        "_values",
        "bins",
        "first",
        "max_record_bytes",
        "partitions",
        "pinned",
        "rows",
        "segments",
        "size",
    )  # fmt: skip

    def __init__(self, partitions: int, max_record_bytes: int, first: int = 0) -> None:
        self.partitions, self.max_record_bytes = partitions, max_record_bytes
        self.first = first % partitions
        """The partition that records without a key go to while all have as many bytes."""
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
        """One record; gives its row number, for `place`."""
        row = self.rows
        if key.__class__ is value.__class__ is bytes and not headers and not attributes and partition is None:
            size = len(key) + len(value)
            if size > self.max_record_bytes:
                raise too_large(size, self.max_record_bytes)
            self._keys.append(key)
            self._values.append(value)
            self._stamps.append(stamp)
            self.size += size + OVERHEAD
        else:
            self._add_special(key, value, stamp, headers, attributes, partition)
        self.rows = row + 1
        return row

    @property
    def count(self) -> int:
        """How many records there are."""
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
            partition = self.roomiest() if key is None else partition_of(key, self.partitions)
        bin = self._bin(partition)
        if sent_to is not None and key is not None:
            self.pinned.append((partition, bin.count, 1))
        if attributes:
            bin.attributes[len(bin.keys)] = attributes
        if pairs:
            bin.headers[len(bin.keys)] = pairs
        self.segments.append(Segment(self.rows, [partition], {partition: bin.count}))
        bin.add_row(key, value, stamp, size + OVERHEAD)
        self.size += size + OVERHEAD

    def settle(self) -> None:
        """Sort the loose rows into their partitions."""
        if not self._keys:
            return
        rows = len(self._keys)
        start, before = self.rows - rows, {q: bin.count for q, bin in self.bins.items()}
        if rows > FEW:
            batch = batch_of(self._keys, self._values, self._stamps)
            where = partitions_of(batch.column(2), self.partitions, 0)
            for q, part in _sorted(batch, where):
                (self.bins.get(q) or self._bin(q)).add(part, part.nbytes)
        else:
            where = [partition_of(key, self.partitions) for key in self._keys]
            if self.bins:
                self._add_rows(where)
            else:
                self._add_few(where)
        self.segments.append(Segment(start, where, before))
        self._keys, self._values, self._stamps = [], [], []

    def _add_few(self, where: Sequence[int]) -> None:
        """Sorted before they become Arrow, and sliced after, a few rows are one batch to make."""
        order = sorted(range(len(where)), key=where.__getitem__) if len(where) > 1 else [0]
        keys, values = [self._keys[i] for i in order], [self._values[i] for i in order]
        batch, at = batch_of(keys, values, [self._stamps[i] for i in order]), 0
        for q, rows in groupby(order, where.__getitem__):
            end = at + len(list(rows))
            size = sum(map(len, keys[at:end])) + sum(len(value or b"") for value in values[at:end])
            self._bin(q).add(batch.slice(at, end - at), size + OVERHEAD * (end - at))
            at = end

    def _add_rows(self, where: Sequence[int]) -> None:
        for q, key, value, stamp in zip(where, self._keys, self._values, self._stamps, strict=True):
            (self.bins.get(q) or self._bin(q)).add_row(key, value, stamp, OVERHEAD + len(key) + len(value or b""))

    def place(self, row: int) -> tuple[int, int]:
        """The partition of a record that `add` took, and its place among this buffer's records of it."""
        self.settle()
        at = bisect_right(self.segments, row, key=lambda segment: segment.start) - 1
        return self.segments[at].place(row)

    def add_batch(self, batch: pa.RecordBatch, partition: int | None = None) -> list[tuple[int, int, int]]:
        """Records in a batch made by `rows`; gives (partition, place, count) for each partition it fell into."""
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
        if keys.null_count == len(keys):
            return [(self.roomiest(), batch)]
        return _sorted(batch, partitions_of(keys, self.partitions, self.roomiest()))

    def _bin(self, partition: int) -> Bin:
        if partition.__class__ is not int or not 0 <= partition < self.partitions:
            raise UnknownPartition(f"there is no partition {partition!r}; the topic has 0 to {self.partitions - 1}")
        return self.bins.get(partition) or self.bins.setdefault(partition, Bin())

    def roomiest(self) -> int:
        """The partition with the least buffered bytes: where records without a key go."""
        sizes = {q: bin.size for q, bin in self.bins.items()}
        return min(range(self.partitions), key=lambda q: (sizes.get(q, 0), (q - self.first) % self.partitions))

    def destinations(self, partitions: int) -> dict[int, list[tuple[int, int]]]:
        """Where its records belong among another number of partitions: see regrouping."""
        for bin in self.bins.values():
            bin.settle()
        return destinations({q: bin.batches for q, bin in self.bins.items()}, self.pinned, partitions)

    def encode(self, compression: Compression) -> Chunk:
        """All of it as one chunk."""
        self.settle()
        for bin in self.bins.values():
            bin.settle()
        filled = {q: bin.batches for q, bin in self.bins.items() if bin.count}
        return encode(unified(filled), compression, self.partitions, self.pinned)


def _sorted(batch: pa.RecordBatch, where: pa.Array[Any]) -> list[tuple[int, pa.RecordBatch]]:
    """A batch by partition, in order within each."""
    tally = pc.value_counts(where)
    counts = dict(zip(tally.field(0).to_pylist(), tally.field(1).to_pylist(), strict=True))
    if len(counts) == 1:
        return [(next(iter(counts)), batch)]
    ordered, out, at = batch.take(pc.sort_indices(where)), [], 0
    for q in sorted(counts):
        out.append((q, ordered.slice(at, counts[q])))
        at += counts[q]
    return out


def batch_of(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], stamps: Sequence[int], marks: Sequence[int] = ()
) -> pa.RecordBatch:
    """A plain record batch from rows, laid out as Arrow has it: a quarter of the cost of pa.array() for a few rows."""
    count = len(keys)
    columns = [
        pa.Array.from_buffers(_STAMP, count, [None, pa.py_buffer(array("q", stamps))]),
        pa.Array.from_buffers(_MARK, count, [None, pa.py_buffer(bytes(marks or count))]),
        _binary(keys),
        _binary(values),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[0])


def _binary(values: Sequence[bytes | None]) -> pa.Array[Any]:
    try:
        data = b"".join(values)  # type: ignore[arg-type]
        ends = array("i", accumulate(map(len, values), initial=0))  # type: ignore[arg-type]
    except (TypeError, OverflowError):  # some are null, or all are over 2 GiB together
        return pa.array(values, _BINARY)
    return pa.Array.from_buffers(_BINARY, len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])


_STAMP, _MARK, _BINARY = SCHEMAS[0].field(0).type, pa.uint8(), pa.binary()


def partitions_of(keys: pa.Array[Any], partitions: int, nulls_to: int) -> pa.Array[Any]:
    """The partition of each key; each distinct key is hashed once, unless most are."""
    if not keys.null_count and len(set(keys.slice(0, SAMPLE).to_pylist())) > min(SAMPLE, len(keys)) * 0.9:
        return pa.array(hashed(keys.to_pylist(), partitions), pa.uint8())
    encoded = keys.dictionary_encode()
    of_distinct = pa.array(hashed(encoded.dictionary.to_pylist(), partitions), pa.uint8())
    where = of_distinct.take(encoded.indices)
    return where.fill_null(nulls_to) if keys.null_count else where


def _pairs(headers: tuple[tuple[str, bytes], ...] | None) -> list[dict[str, Any]] | None:
    return [{"name": name, "value": value} for name, value in headers] if headers else None


def unified(batches: dict[int, list[pa.RecordBatch]]) -> dict[int, list[pa.RecordBatch]]:
    """All plain batches with a headers column, if one has it."""
    kinds = {kind_of(b.schema) for some in batches.values() for b in some}
    if kinds == {0, HEADERS}:
        return {q: [_with_headers(b) for b in some] for q, some in batches.items()}
    return batches


def _with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_columns == 5:
        return batch
    return pa.record_batch([*batch.columns, pa.nulls(batch.num_rows, HEADERS_TYPE)], schema=SCHEMAS[HEADERS])
