"""Columns: what Spark sees of a record, and how it is made from what a chunk holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tailrace.errors import BadSetting
from tailrace.log.interchange.folder import plain
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Mode, Op

HEADER = StructType().add("key", StringType()).add("value", BinaryType())
TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "mode": StringType(),
    "op": StringType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": ArrayType(HEADER),
}
MODES = pa.array([mode.name.lower() for mode in Mode])
OPS = pa.array([op.name.lower() for op in Op])


def schema_of(columns: str | None) -> StructType:
    """The schema of these columns ("key,value"), or of all."""
    names = [name.strip() for name in columns.split(",")] if columns else list(TYPES)
    out = StructType()
    for name in names:
        if name not in TYPES:
            raise BadSetting.unknown("a record", name, TYPES)
        if name in out.names:
            raise BadSetting(f"the column {name!r} is named twice in columns")
        out.add(name, TYPES[name])
    return out


def check_schema(schema: StructType) -> StructType:
    """Refuse a schema, given by `.schema(…)`, with columns that records do not have."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise BadSetting.unknown("a record", field.name, TYPES)
        if field.dataType != TYPES[field.name]:
            wanted = TYPES[field.name].simpleString()
            raise BadSetting(f"the column {field.name!r} is {wanted}, not {field.dataType.simpleString()}")
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """The exact Arrow schema that Spark expects for this one."""
    return to_arrow_schema(schema, timezone="UTC")


def as_batch(topic: str, some: Sequence[Fetched], schema: pa.Schema) -> pa.RecordBatch:
    """Fetched records as one batch for Spark; the value of a pipeline's typed row is its columns as JSON."""
    if "value" in schema.names:
        some = [plain(f) for f in some]
    rows = sum(f.data.num_rows for f in some)
    return pa.RecordBatch.from_arrays([_MAKE[f.name](topic, some, rows, f.type) for f in schema], schema=schema)


def stored(names: Iterable[str]) -> frozenset[str]:
    """The columns of a chunk from which these are made."""
    return frozenset(column for name in names for column in _STORED[name])


def _joined(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _stored(name: str) -> Callable[..., pa.Array[Any]]:
    return lambda topic, some, rows, kind: _joined([f.data.column(name) for f in some])


def _partition(topic: str, some: Sequence[Fetched], rows: int, kind: pa.DataType) -> pa.Array[Any]:
    if all(f.partition == some[0].partition for f in some):
        return pa.repeat(pa.scalar(some[0].partition, kind), rows)
    return _joined([pa.repeat(pa.scalar(f.partition, kind), f.data.num_rows) for f in some])


def _offset(topic: str, some: Sequence[Fetched], rows: int, kind: pa.DataType) -> pa.Array[Any]:
    return _joined([f.offsets for f in some])


def _timestamp(topic: str, some: Sequence[Fetched], rows: int, kind: pa.DataType) -> pa.Array[Any]:
    return _joined([f.data.column("timestamp") for f in some]).cast(kind)


def _named(names: pa.Array[Any], shift: int, mask: int) -> Callable[..., pa.Array[Any]]:
    """The names that some bits of the attributes stand for; in most topics all records have the same name."""

    def make(topic: str, some: Sequence[Fetched], rows: int, kind: pa.DataType) -> pa.Array[Any]:
        marks = _joined([f.data.column("attributes") for f in some])
        ends = pc.min_max(marks)
        if ends["min"] == ends["max"]:
            return pa.repeat(names[ends["min"].as_py() >> shift & mask], rows)
        return names.take(pc.bit_wise_and(pc.shift_right(marks, pa.scalar(shift, pa.uint8())), mask))

    return make


def _headers(topic: str, some: Sequence[Fetched], rows: int, kind: pa.DataType) -> pa.Array[Any]:
    return _joined([_renamed(f.data, kind) for f in some])


def _renamed(data: pa.RecordBatch, kind: pa.DataType) -> pa.Array[Any]:
    """The headers renamed for Spark: what a chunk calls a header's name, Spark, like Kafka, calls its key."""
    if "headers" not in data.schema.names:
        return pa.nulls(data.num_rows, kind)
    lists = data.column("headers")
    pairs = pa.StructArray.from_arrays(
        [lists.values.field(0), lists.values.field(1)], fields=list(kind.value_type), mask=None
    )
    return pa.ListArray.from_arrays(lists.offsets, pairs, type=kind, mask=lists.is_null() if lists.null_count else None)


_MAKE: dict[str, Callable[..., pa.Array[Any]]] = {
    "topic": lambda topic, some, rows, kind: pa.repeat(pa.scalar(topic, kind), rows),
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "mode": _named(MODES, 0, 3),
    "op": _named(OPS, 2, 7),
    "key": _stored("key"),
    "value": _stored("value"),
    "headers": _headers,
}
_STORED: dict[str, tuple[str, ...]] = {
    "topic": (),
    "partition": (),
    "offset": (),
    "timestamp": ("timestamp",),
    "mode": ("attributes",),
    "op": ("attributes",),
    "key": ("key",),
    "value": ("value", "data"),
    "headers": ("headers",),
}
