"""Rows: which columns the rows to be written may have, and how they become records.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tailrace.errors import BadRecord, BadSetting
from tailrace.log.format.chunk import HEADERS_TYPE
from tailrace.spark.columns import MODES, OPS, TYPES

BYTES = (BinaryType, StringType)
NUMBERS = (ByteType, ShortType, IntegerType, LongType)
ALLOWED: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "partition": NUMBERS,
    "offset": (*NUMBERS, NullType),
    "timestamp": (TimestampType, NullType),
    "mode": (StringType, NullType),
    "op": (StringType, NullType),
    "key": (*BYTES, NullType),
    "value": BYTES,
    "headers": (ArrayType, NullType),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse a schema that cannot become records; on the driver, before any task runs."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise BadSetting.unknown("a record", field.name, TYPES)
        if not isinstance(field.dataType, ALLOWED[field.name]):
            raise _wrong(field.name, field.dataType)
    if "value" not in schema.names:
        raise BadSetting(
            f"the rows have the columns {', '.join(schema.names)} and no 'value', which a record is made of; "
            "select to_json(struct(*)) AS value, or cast one of them to binary"
        )
    if topic is None and "topic" not in schema.names:
        raise BadSetting("say where to: option('topic', …), or a column 'topic'")
    if "headers" in schema.names and isinstance(schema["headers"].dataType, ArrayType):
        _check_headers(schema["headers"].dataType)


def _wrong(name: str, found: DataType) -> BadSetting:
    wanted = " or ".join(kind.typeName() for kind in ALLOWED[name] if kind is not NullType)
    return BadSetting(f"the column {name!r} is {found.simpleString()}; it must be {wanted}")


def _check_headers(found: ArrayType) -> None:
    inner = found.elementType
    if (
        not isinstance(inner, StructType)
        or inner.names != ["key", "value"]
        or not isinstance(inner["key"].dataType, StringType)
        or not isinstance(inner["value"].dataType, BYTES)
    ):
        raise BadSetting(
            f"the column 'headers' is {found.simpleString()}; it must be array<struct<key: string, value: binary>>"
        )


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order."""
    if topic is not None:
        yield topic, batch
        return
    names = batch.column("topic")
    if names.null_count:
        raise BadRecord(f"{names.null_count} rows have no topic: the column 'topic' is null; fill it, or filter them")
    found = names.unique().to_pylist()
    for name in found:
        yield name, batch if len(found) == 1 else batch.filter(pc.equal(names, name))


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """The rows for each partition that the column `partition` names; None: the partitions of their keys."""
    if "partition" not in batch.schema.names:
        yield None, batch
        return
    where = batch.column("partition")
    for q in where.unique().to_pylist():
        yield q, batch.filter(where.is_null() if q is None else pc.equal(where, q))


def records(batch: pa.RecordBatch, stamp: int) -> pa.RecordBatch:
    """The columns that `log.buffer.rows` takes; `stamp` is the time of rows without one."""
    columns: dict[str, pa.Array[Any]] = {}
    for name in ("key", "value"):
        if name in batch.schema.names:
            columns[name] = batch.column(name).cast(pa.binary())
    if "timestamp" in batch.schema.names:
        columns["timestamp"] = _stamps(batch.column("timestamp"), stamp)
    if "mode" in batch.schema.names or "op" in batch.schema.names:
        columns["attributes"] = _marks(batch)
    if "headers" in batch.schema.names and batch.column("headers").null_count < batch.num_rows:
        columns["headers"] = _headers(batch.column("headers"))
    return pa.record_batch(columns)


def _stamps(column: pa.Array[Any], stamp: int) -> pa.Array[Any]:
    kind = pa.timestamp("ms", "UTC")
    found = pa.nulls(len(column), kind) if pa.types.is_null(column.type) else column.cast(kind, safe=False)
    return found.fill_null(pa.scalar(stamp, kind)) if found.null_count else found


def _marks(batch: pa.RecordBatch) -> pa.Array[Any]:
    mode, op = (_numbers(batch, name, known) for name, known in (("mode", MODES), ("op", OPS)))
    return pc.bit_wise_or(mode, pc.shift_left(op, pa.scalar(2, pa.uint8())))


def _numbers(batch: pa.RecordBatch, name: str, known: pa.Array[Any]) -> pa.Array[Any]:
    """The numbers that names of a mode or an op stand for; 0 where there is none."""
    if name not in batch.schema.names or pa.types.is_null(batch.schema.field(name).type):
        return pa.repeat(pa.scalar(0, pa.uint8()), batch.num_rows)
    column = batch.column(name)
    found = pc.index_in(column, known)
    if found.null_count > column.null_count:
        wrong = column.filter(pc.and_(found.is_null(), column.is_valid()))[0].as_py()
        raise BadRecord(f"the column {name!r} has {wrong!r}; it may have {', '.join(known.to_pylist())}, or null")
    return found.fill_null(0).cast(pa.uint8())


def _headers(column: pa.Array[Any]) -> pa.Array[Any]:
    names, values = column.values.field(0), column.values.field(1).cast(pa.binary())
    if names.null_count:
        raise BadRecord(f"{names.null_count} headers have no key")
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, pairs, type=HEADERS_TYPE, mask=mask)
