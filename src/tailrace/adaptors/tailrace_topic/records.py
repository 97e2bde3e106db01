"""Records of topics as messages, and messages as records.

    a record as a document    partition, offset (together its id), timestamp, attributes, key, value, headers
    a document as a record    key: its id; value: JSON, null if it was deleted; attributes: mode and op

In a topic for several namespaces the key has the namespace before the id, with 0x00 between, and so has a header.  What
came from a topic goes to one as it was.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.jsontext import json_objects
from tailrace.adaptors.rows import columns_of, keys_of, make_rows, namespace_of, ops_of
from tailrace.log.chunk import HEADERS_TYPE, SCHEMAS
from tailrace.log.fetched import Fetched
from tailrace.log.record import Mode, Op

ID = ("partition", "offset")
_FIELDS = ("partition", "offset", "timestamp", "attributes", "key", "value", "headers")


def rows_from(topic: str, fetched: Fetched, mode: Mode) -> pa.RecordBatch:
    """Fetched records as rows."""
    data, count = fetched.data, fetched.data.num_rows
    headers = data.column("headers") if "headers" in data.schema.names else pa.nulls(count, HEADERS_TYPE)
    arrays = [
        pa.repeat(pa.scalar(fetched.partition, pa.int32()), count),
        fetched.offsets,
        *(data.column(name) for name in ("timestamp", "attributes", "key", "value")),
        headers,
    ]
    columns = pa.RecordBatch.from_arrays(arrays, names=list(_FIELDS))
    stamps = data.column("timestamp").view(pa.int64())
    return make_rows(topic, columns, ID, op=Op.INSERT, mode=mode, timestamp=stamps)


def records_from(batch: pa.RecordBatch, *, shared: bool) -> pa.RecordBatch:
    """Rows as records with a chunk's columns; `shared`: the topic is for several namespaces."""
    columns = columns_of(batch)
    if keys_of(batch) == ID and tuple(columns.schema.names) == _FIELDS:
        return pa.RecordBatch.from_arrays([columns.column(f.name) for f in SCHEMAS[1]], schema=SCHEMAS[1])
    arrays = [batch.column("timestamp"), batch.column("attributes"), _keys(batch, shared), _values(batch, columns)]
    if not shared:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[0])
    header = [{"name": "namespace", "value": namespace_of(batch).encode()}]
    arrays.append(pa.array([header], HEADERS_TYPE).take(pa.array([0] * batch.num_rows, pa.int32())))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[1])


def _keys(batch: pa.RecordBatch, shared: bool) -> pa.Array[Any]:
    keys = batch.column("key")
    return (
        keys if shared else pc.replace_substring(keys, namespace_of(batch).encode() + b"\x00", b"", max_replacements=1)
    )


def _values(batch: pa.RecordBatch, columns: pa.RecordBatch) -> pa.Array[Any]:
    deleted = pc.equal(ops_of(batch), pa.scalar(int(Op.DELETE), pa.uint8()))
    texts = pa.array(json_objects(columns, _unset(batch, columns.schema.names)), pa.binary())
    return pc.if_else(deleted, pa.scalar(None, pa.binary()), texts)


def _unset(batch: pa.RecordBatch, names: list[str]) -> list[list[str] | None] | None:
    if "unset" not in batch.schema.names:
        return None
    bitmaps = batch.column("unset").to_pylist()
    return [b and [name for n, name in enumerate(names) if b[n // 8] >> n % 8 & 1] for b in bitmaps]


def topic_name(namespace: str) -> str:
    """A topic's name for a namespace: letters, digits, '-' and '_', all else '-'."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", namespace)[:200] or "-"
