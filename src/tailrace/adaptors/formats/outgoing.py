"""Outgoing records: key, value, headers and timestamp of each row, as Arrow batches.

    json        key: the id; value: the document, null for a delete.  Records of a topic go out as they came
    debezium    see envelope

Headers have each message's partition and offset in the commit log and, where several namespaces share a topic, its
namespace.  A change that leaves fields as they are has a header `unset` with their names as JSON, even if the settings
ask for no headers: without it the record would look like a whole document.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from tailrace.adaptors.formats.envelope import enveloped
from tailrace.adaptors.rows.json_text import finite, to_json
from tailrace.adaptors.rows.records import is_record, records_from
from tailrace.adaptors.rows.rows import keys_of, messages_of
from tailrace.adaptors.rows.unset import left_as_they_are, unset_names
from tailrace.log.format.chunk import HEADERS_TYPE

UNSET = "unset"
COLUMNS = ("timestamp", "key", "value", "headers")
_KEY = pa.field("key", pa.binary())


class OutgoingSettings(Protocol):
    """The settings of a sink that concern its records."""

    @property
    def format(self) -> str:
        """The format of values: json or debezium."""

    @property
    def key(self) -> str:
        """What a key is: the id as "text", or its fields as "json"."""

    @property
    def headers(self) -> bool:
        """Whether records have headers with the message's place in the commit log."""


def outgoing(
    batch: pa.RecordBatch, settings: OutgoingSettings, *, shared: bool = False, tombstones: bool = True
) -> pa.RecordBatch:
    """The records of rows of one namespace.  `shared` says that several namespaces go to the same place.  Without
    `tombstones` each row is exactly one record."""
    records = records_from(batch, shared=shared).select(list(COLUMNS))
    if is_record(batch):
        return records
    if settings.format == "debezium":
        records = enveloped(batch, records, tombstones=tombstones)
    elif settings.key == "json":
        records = records.set_column(1, _KEY, json_keys(batch))
    headers = records.column("headers") if settings.headers else pa.nulls(records.num_rows, HEADERS_TYPE)
    if settings.format == "json":
        headers = _with_unset(batch, headers)
    return records.set_column(3, pa.field("headers", HEADERS_TYPE), headers)


def _with_unset(batch: pa.RecordBatch, headers: pa.Array[Any]) -> pa.Array[Any]:
    """The headers, with a header `unset` for changes that leave fields as they are."""
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
    """The id of each row as a JSON object of its fields; null for rows without a key."""
    names = keys_of(batch)
    if not names:
        return pa.nulls(batch.num_rows, pa.binary())
    keys = [to_json(finite({name: message.data.get(name) for name in names})) for message in messages_of(batch)]
    return pa.array(keys, pa.binary())
