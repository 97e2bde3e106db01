"""Key hashes: the murmur2 of each key of a column, computed by Arrow for all keys at once, four bytes after four.

Keys of one length are a matrix of bytes; keys of several lengths are sorted by length first.  A Python call for each
key would take twenty times as long.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.murmur2 import BITS_32, FACTOR, POSITIVE, SEED, murmur2

MIN_KEYS = 64
"""Fewer keys of one length are hashed one by one, which is faster."""

_NUMBER = pa.uint32()


def _constant(value: int) -> pa.Scalar[Any]:
    return pa.scalar(value, _NUMBER)


_FACTOR = _constant(FACTOR)


def murmur2_partitions(keys: pa.Array[Any], partitions: int) -> pa.Array[Any]:
    """The partition of each key in a topic whose partitioner is murmur2.  No key is null."""
    positive = pc.bit_wise_and(murmur2_of(keys), _constant(POSITIVE))
    whole = pc.multiply(pc.divide(positive, _constant(partitions)), _constant(partitions))
    return pc.subtract(positive, whole).cast(pa.uint8())


def murmur2_of(keys: pa.Array[Any]) -> pa.Array[Any]:
    """The hash of each key, as an unsigned number of 32 bits.  No key is null."""
    lengths = pc.binary_length(keys)
    ends = pc.min_max(lengths)
    if ends["min"] == ends["max"]:
        return _of_one_length(keys, ends["min"].as_py()) if len(keys) else pa.array([], _NUMBER)
    order = pc.sort_indices(lengths)
    ordered, hashes, at = keys.take(order), [], 0
    for found in pc.value_counts(lengths.take(order)).to_pylist():
        hashes.append(_of_one_length(ordered.slice(at, found["counts"]), found["values"]))
        at += found["counts"]
    return pa.concat_arrays(hashes).take(pc.inverse_permutation(order.view(pa.int64())))


def _of_one_length(keys: pa.Array[Any], length: int) -> pa.Array[Any]:
    if len(keys) < MIN_KEYS:
        return pa.array([murmur2(key) for key in keys.to_pylist()], _NUMBER)
    hash = pa.repeat(_constant((SEED ^ length) & BITS_32), len(keys))
    matrix, end = _matrix(keys, length), length & ~3
    for at in range(0, end, 4):
        word = pc.multiply(pc.binary_slice(matrix, at, at + 4).view(_NUMBER), _FACTOR)
        word = pc.multiply(_shifted(word, 24), _FACTOR)
        hash = pc.bit_wise_xor(pc.multiply(hash, _FACTOR), word)
    for at in range(end, length):
        byte = pc.binary_slice(matrix, at, at + 1).view(pa.uint8()).cast(_NUMBER)
        hash = pc.bit_wise_xor(hash, pc.shift_left(byte, _constant(8 * (at - end))))
    if length > end:
        hash = pc.multiply(hash, _FACTOR)
    return _shifted(pc.multiply(_shifted(hash, 13), _FACTOR), 15)


def _shifted(numbers: pa.Array[Any], bits: int) -> pa.Array[Any]:
    """Each number, with its own upper bits mixed into the lower ones."""
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _constant(bits)))


def _matrix(keys: pa.Array[Any], length: int) -> pa.Array[Any]:
    """Keys of one length, without a copy, as values of a fixed size."""
    if not length:
        return keys
    _, ends, data = cast("list[pa.Buffer]", keys.buffers())
    start = memoryview(ends).cast("i")[keys.offset]
    fixed = pa.binary(length)
    return pa.Array.from_buffers(fixed, len(keys), [None, data.slice(start, len(keys) * length)])
