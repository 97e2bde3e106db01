"""Records of topics as rows, and rows as records.

    a record as a document    partition, offset (together its id), timestamp, attributes, key, value, headers
    a document as a record    key: its id; value: JSON, null if it was deleted; attributes: mode and op

The record's headers have the place of the change (see rows.provenance) as decimal numbers: partition, offset, and if
the source has them transaction and position.  In a topic for several namespaces the key is namespace, 0x00 and id, and
the header `namespace` has the namespace as well.  A record that came from a topic is written to another topic
unchanged.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.json_text import json_objects, to_json
from tailrace.adaptors.rows.provenance import place_columns
from tailrace.adaptors.rows.record_key import ids_of
from tailrace.adaptors.rows.rows import columns_of, keys_of, make_rows, messages_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import unset_names
from tailrace.log.format.chunk import HEADERS_TYPE, SCHEMAS
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Mode, Op

ID = ("partition", "offset")
RECORD_FIELDS = ("partition", "offset", "timestamp", "attributes", "key", "value", "headers")


def rows_from(topic: str, fetched: Fetched, mode: Mode) -> pa.RecordBatch:
    """Return fetched records of a topic as rows."""
    data, count = fetched.data, fetched.data.num_rows
    headers = data.column("headers") if "headers" in data.schema.names else pa.nulls(count, HEADERS_TYPE)
    arrays = [
        pa.repeat(pa.scalar(fetched.partition, pa.int32()), count),
        fetched.offsets,
        *(data.column(name) for name in ("timestamp", "attributes", "key", "value")),
        headers,
    ]
    columns = pa.RecordBatch.from_arrays(arrays, names=list(RECORD_FIELDS))
    stamps = data.column("timestamp").view(pa.int64())
    return make_rows(topic, columns, ID, op=Op.INSERT, mode=mode, timestamp=stamps)


def records_from(batch: pa.RecordBatch, *, shared: bool) -> pa.RecordBatch:
    """Return rows as records, with a chunk's columns.  `shared`: the topic holds several namespaces."""
    columns = columns_of(batch)
    if is_record(batch):
        return pa.RecordBatch.from_arrays([columns.column(f.name) for f in SCHEMAS[1]], schema=SCHEMAS[1])
    arrays = [batch.column("timestamp"), batch.column("attributes"), _keys(batch, shared), _values(batch, columns)]
    return pa.RecordBatch.from_arrays([*arrays, _headers(batch, shared)], schema=SCHEMAS[1])


def _headers(batch: pa.RecordBatch, shared: bool) -> pa.Array[Any]:
    """The headers of each row: in each row the same names, in the same order."""
    values = {name: column.cast(pa.string()).cast(pa.binary()) for name, column in place_columns(batch).items()}
    values = {name: column for name, column in values.items() if column.null_count < len(column)}
    if shared:
        values["namespace"] = pa.repeat(pa.scalar(namespace_of(batch).encode()), batch.num_rows)
    rows, many = batch.num_rows, len(values)
    names = pa.array(list(values), pa.string()).take(pa.array(list(range(many)) * rows, pa.int32()))
    order = pa.array([n * rows + row for row in range(rows) for n in range(many)], pa.int64())
    texts = pa.concat_arrays([*values.values(), pa.array([], pa.binary())]).take(order)
    pairs = pa.StructArray.from_arrays([names, texts], fields=list(HEADERS_TYPE.value_type))
    offsets = pa.array(range(0, rows * many + 1, many) if many else [0] * (rows + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS_TYPE)


def is_record(batch: pa.RecordBatch) -> bool:
    """Whether rows are records of a topic.  A table may have columns of the same names, but not of the same types."""
    kind = batch.schema.field("data").type
    if keys_of(batch) != ID or tuple(field.name for field in kind) != RECORD_FIELDS:
        return False
    return all(kind.field(f.name).type == f.type for f in SCHEMAS[1])


def _keys(batch: pa.RecordBatch, shared: bool) -> pa.Array[Any]:
    keys = batch.column("key")
    return keys if shared else ids_of(keys, namespace_of(batch))


def _values(batch: pa.RecordBatch, columns: pa.RecordBatch) -> pa.Array[Any]:
    deleted = pc.equal(ops_of(batch), pa.scalar(int(Op.DELETE), pa.uint8()))
    unset = _unset(batch, columns.schema.names)
    if "removed" in batch.schema.names:
        objects = [to_json(message.data) for message in messages_of(batch)]
    else:
        objects = json_objects(columns, unset)
    texts = pa.array(objects, pa.binary())
    return pc.if_else(deleted, pa.scalar(None, pa.binary()), texts)


def _unset(batch: pa.RecordBatch, names: list[str]) -> list[list[str] | None] | None:
    return unset_names(batch.column("unset"), names).to_pylist() if "unset" in batch.schema.names else None
