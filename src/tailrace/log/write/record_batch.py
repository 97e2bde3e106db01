"""Record batches on their way into a chunk: made from rows, with or without headers, and split by partition."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.format.chunk import HEADERS, HEADERS_TYPE, SCHEMAS, kind_of
from tailrace.log.record import Partitioner, hashed
from tailrace.log.write.key_hashes import murmur2_partitions

SAMPLED_KEYS = 1024
"""Keys that are examined to see whether most of them differ."""

_STAMP, _MARK, _BINARY = SCHEMAS[0].field(0).type, pa.uint8(), pa.binary()


def batch_of(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], stamps: Sequence[int], marks: Sequence[int] = ()
) -> pa.RecordBatch:
    """A plain record batch made of rows, laid out as Arrow has it: for a few rows this takes a quarter of the time of
    pa.array()."""
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
    except (TypeError, OverflowError):  # some are null, or together they exceed 2 GiB
        return pa.array(values, _BINARY)
    return pa.Array.from_buffers(_BINARY, len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def with_headers(batch: pa.RecordBatch, headers: Sequence[tuple[tuple[str, bytes], ...] | None]) -> pa.RecordBatch:
    """A plain batch, and the headers of each row."""
    pairs = [[{"name": name, "value": value} for name, value in row] if row else None for row in headers]
    column = pa.array(pairs, HEADERS_TYPE)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=SCHEMAS[HEADERS])


def partitions_of(keys: pa.Array[Any], partitions: int, partitioner: Partitioner = "sha256") -> pa.Array[Any]:
    """The partition of each key, null where there is none; each distinct key is hashed once, unless most are."""
    if not keys.null_count and len(set(keys.slice(0, SAMPLED_KEYS).to_pylist())) > min(SAMPLED_KEYS, len(keys)) * 0.9:
        return _all_hashed(keys, partitions, partitioner)
    encoded = keys.dictionary_encode()
    return _all_hashed(encoded.dictionary, partitions, partitioner).take(encoded.indices)


def _all_hashed(keys: pa.Array[Any], partitions: int, partitioner: Partitioner) -> pa.Array[Any]:
    if partitioner == "murmur2":
        return murmur2_partitions(keys, partitions)
    return pa.array(hashed(keys.to_pylist(), partitions), pa.uint8())


def by_partition(batch: pa.RecordBatch, where: pa.Array[Any]) -> list[tuple[int, pa.RecordBatch]]:
    """A batch split by partition, in order within each."""
    tally = pc.value_counts(where)
    counts = dict(zip(tally.field(0).to_pylist(), tally.field(1).to_pylist(), strict=True))
    if len(counts) == 1:
        return [(next(iter(counts)), batch)]
    ordered, out, at = batch.take(pc.sort_indices(where)), [], 0
    for q in sorted(counts):
        out.append((q, ordered.slice(at, counts[q])))
        at += counts[q]
    return out


def unified(batches: dict[int, list[pa.RecordBatch]]) -> dict[int, list[pa.RecordBatch]]:
    """All plain batches with a headers column, if one of them has it."""
    kinds = {kind_of(b.schema) for some in batches.values() for b in some}
    if kinds == {0, HEADERS}:
        return {q: [_widened(b) for b in some] for q, some in batches.items()}
    return batches


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_columns == 5:
        return batch
    return pa.record_batch([*batch.columns, pa.nulls(batch.num_rows, HEADERS_TYPE)], schema=SCHEMAS[HEADERS])
