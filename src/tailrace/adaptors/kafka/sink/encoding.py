"""Records of rows: key, value, headers and timestamp, as Arrow batches by topic.

    json        key: the id; value: the document, null if it was deleted.  Records of a topic go out as they came
    debezium    see envelope

`headers`: where each message stands in the commit log; in a topic for several namespaces, which it belongs to.  A
change that leaves fields as they are has a header `unset` with their names as JSON, whatever the settings say: without
it the record would look like the whole document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tailrace.adaptors.kafka.names import topic_for
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink.envelope import enveloped
from tailrace.adaptors.rows.json_text import finite, to_json
from tailrace.adaptors.rows.records import is_record, records_from
from tailrace.adaptors.rows.rows import keys_of, messages_of, namespace_of
from tailrace.adaptors.rows.unset import left_as_they_are, unset_names
from tailrace.log.format.chunk import HEADERS_TYPE

UNSET = "unset"
COLUMNS = ("timestamp", "key", "value", "headers")
_KEY = pa.field("key", pa.binary())


def encoded(rows: Iterable[pa.RecordBatch], settings: KafkaSink) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """For each batch of rows its topic, its namespace and its records; none of a batch without rows."""
    for batch in rows:
        namespace = namespace_of(batch)
        topic = topic_for(settings.topic, "") if settings.topic else topic_for(namespace, settings.prefix)
        yield topic, namespace, _records(batch, settings)


def _records(batch: pa.RecordBatch, settings: KafkaSink) -> pa.RecordBatch:
    shared = settings.topic is not None
    if is_record(batch):
        return records_from(batch, shared=shared).select(list(COLUMNS))
    records = records_from(batch, shared=shared).select(list(COLUMNS))
    if settings.format == "debezium":
        records = enveloped(batch, records)
    elif settings.key == "json":
        records = records.set_column(1, _KEY, json_keys(batch))
    headers = records.column("headers") if settings.headers else pa.nulls(records.num_rows, HEADERS_TYPE)
    if settings.format == "json":
        headers = _with_unset(batch, headers)
    return records.set_column(3, pa.field("headers", HEADERS_TYPE), headers)


def _with_unset(batch: pa.RecordBatch, headers: pa.Array[Any]) -> pa.Array[Any]:
    """The same headers, and of changes the names of the fields that they leave as they are."""
    left = left_as_they_are(batch)
    if left.null_count == len(left):
        return headers
    names = unset_names(left, [field.name for field in batch.schema.field("data").type]).to_pylist()
    given = headers.to_pylist()
    for n, some in enumerate(names):
        if some:
            given[n] = [*(given[n] or ()), {"name": UNSET, "value": to_json(some)}]
    return pa.array(given, HEADERS_TYPE)


def json_keys(batch: pa.RecordBatch) -> pa.Array[Any]:
    """Each id as a JSON object of its fields; null for rows without one."""
    names = keys_of(batch)
    if not names:
        return pa.nulls(batch.num_rows, pa.binary())
    keys = [to_json(finite({name: message.data.get(name) for name in names})) for message in messages_of(batch)]
    return pa.array(keys, pa.binary())
