"""Input: checks the records that callers pass, Arrow tables and batches or (key, value) pairs, and cuts them into
pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import BadRecord, TooLarge
from tailrace.log.format.chunk import HEADERS, SCHEMAS
from tailrace.log.record import MAX_TIMESTAMP, check_bytes

CHUNK_BYTES = 4 * 1024 * 1024
Records: TypeAlias = pa.Table | pa.RecordBatch | Iterable[tuple[bytes | None, bytes | None]]

_THREE = pa.scalar(3, pa.uint8())


def _from_pairs(records: Iterable[tuple[bytes | None, bytes | None]]) -> pa.Table:
    keys, values = [], []
    try:
        for key, value in records:
            keys.append(key)
            values.append(value)
    except (TypeError, ValueError):
        raise BadRecord("records are an Arrow table or batch, or (key, value) pairs of bytes or None") from None
    for what, column in ("key", keys), ("value", values):
        for data in column:
            if data.__class__ is not bytes:
                check_bytes(what, data)
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def pieces(records: Records) -> Iterable[pa.RecordBatch]:
    """Records as Arrow batches of about a chunk's size."""
    if isinstance(records, pa.RecordBatch):
        records = pa.Table.from_batches([records])
    if not isinstance(records, pa.Table):
        records = _from_pairs(records)
    for batch in records.to_batches():
        if batch.num_rows:
            per_row = max(1, batch.nbytes // batch.num_rows)
            step = max(1, CHUNK_BYTES // per_row)
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)


def rows(data: Any, stamp: int, max_record_bytes: int) -> pa.RecordBatch:
    """A batch with a chunk's columns, made of one with key, value and perhaps timestamp, attributes and headers."""
    names = data.schema.names
    unknown = set(names) - {"key", "value", "timestamp", "attributes", "headers"}
    if "value" not in names or unknown:
        raise BadRecord(
            "a batch has the columns value and perhaps key, timestamp, attributes, headers; "
            + (f"there is no place for {', '.join(sorted(unknown))}" if unknown else "value is missing")
        )
    if len(set(names)) < len(names):
        raise BadRecord(f"a batch has each column once, not one of these twice: {', '.join(names)}")
    count = data.num_rows
    kind = HEADERS if "headers" in names else 0
    schema, columns = SCHEMAS[kind], []
    for field in schema:
        if field.name in names:
            columns.append(_cast(data.column(field.name), field))
        elif field.name == "timestamp":
            columns.append(pa.repeat(pa.scalar(stamp, pa.int64()), count).view(field.type))
        elif field.name == "attributes":
            columns.append(pa.repeat(pa.scalar(0, pa.uint8()), count))
        else:
            columns.append(pa.nulls(count, field.type))
    batch = pa.record_batch(columns, schema=schema)
    _check(batch, max_record_bytes)
    return batch


def _cast(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    if column.null_count and not field.nullable:
        raise BadRecord(f"the column {field.name} has {column.null_count} nulls and may have none")
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise BadRecord(
            f"the column {field.name} is {column.type}, which cannot become {field.type}: {error}"
        ) from None
    except pa.ArrowNotImplementedError:
        raise BadRecord(f"the column {field.name} is {column.type}, which cannot become {field.type}") from None


def _check(batch: pa.RecordBatch, max_record_bytes: int) -> None:
    if not batch.num_rows:
        return
    if (largest := largest_record(batch)) > max_record_bytes:
        raise too_large(largest, max_record_bytes)
    marks = batch.column(1)
    if pc.max(marks).as_py() > 23 or pc.max(pc.bit_wise_and(marks, _THREE)).as_py() == 3:
        raise BadRecord("the column attributes has values that are no mode (bits 0-1: 0 to 2) and op (above: 0 to 5)")
    ends = pc.min_max(batch.column(0).view(pa.int64()))
    if not 0 <= ends["min"].as_py() <= ends["max"].as_py() <= MAX_TIMESTAMP:
        raise BadRecord("the column timestamp has values outside 1970 to 9999 (milliseconds since 1970)")


def largest_record(batch: pa.RecordBatch) -> int:
    """The bytes of the largest of some records: its key, its value and its headers."""
    key, value = (pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value"))
    sizes = pc.add(key, value)
    if "headers" in batch.schema.names:
        sizes = _with_header_sizes(sizes, batch.column("headers"))
    return int(pc.max(sizes).as_py())


def _with_header_sizes(sizes: pa.Array[Any], headers: pa.Array[Any]) -> pa.Array[Any]:
    flat = pc.list_flatten(headers)
    name, value = (pc.fill_null(pc.binary_length(pc.struct_field(flat, n)), 0) for n in (0, 1))
    row = pc.list_parent_indices(headers)
    every = [pa.arange(0, len(sizes)), row], [sizes, pc.add(name, value)]
    table = pa.table([pa.chunked_array(some) for some in every], names=["row", "size"])
    return table.group_by("row").aggregate([("size", "sum")]).column("size_sum")


def too_large(size: int, most: int) -> TooLarge:
    """The error for a record, passed to a producer, with more bytes than its topic takes."""
    return TooLarge(
        f"a record has {size:,} bytes, over the topic's max_record_bytes of {most:,}; "
        "`tailrace topic set NAME max_record_bytes=…` allows more"
    )
