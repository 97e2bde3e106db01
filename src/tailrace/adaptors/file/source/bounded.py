"""Bounded memory: cuts batches of an untrusted file into pieces that stay small when each row gets its own value.

Rows may share their values through a dictionary, or through views of the same bytes.  A batch of some kilobytes then
becomes one of gigabytes as soon as each row has a value of its own ("written out").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES = 8 * 1024 * 1024
"""The most bytes of a piece, written out, unless it is a single row."""

MEMORY_BYTES = 256 * 1024 * 1024
"""The most memory that one row of a file, or one message of a stream, may need to be decoded."""


def pieces(batch: pa.RecordBatch, most: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most `most` bytes, written out, or of one row."""
    if batch.num_rows <= 1 or sum(map(written_out, batch.columns)) <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), most)
    yield from pieces(batch.slice(half), most)


def written_out(column: pa.Array[Any]) -> int:
    """The bytes of a column when each row has its own value; at least a byte for each row."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return written_out(column.storage)
    if pa.types.is_dictionary(kind):
        return _with_dictionary(column)
    if pa.types.is_struct(kind):
        return len(column) + sum(map(written_out, column.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        inner = pc.list_flatten(column) if not pa.types.is_map(kind) else _entries(column)
        return 8 * len(column) + written_out(inner)
    if _may_share(kind):
        return len(column) * int(column.get_total_buffer_size() + 1)
    return len(column) + int(column.nbytes)


def _with_dictionary(column: Any) -> int:
    values = column.dictionary
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        lengths = pc.binary_length(values).take(column.indices)
        return 8 * len(column) + int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    return len(column) * int(values.get_total_buffer_size() + 1)


def _entries(column: Any) -> pa.Array[Any]:
    """The keys and values of a column of maps, which may be a slice."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"]).slice(first, last - first)


def _may_share(kind: pa.DataType) -> bool:
    """Whether several rows of this type can share the bytes of their values."""
    plain = pa.types.is_primitive(kind) or pa.types.is_null(kind) or pa.types.is_decimal(kind)
    texts = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    return not (plain or pa.types.is_fixed_size_binary(kind) or any(is_kind(kind) for is_kind in texts))
