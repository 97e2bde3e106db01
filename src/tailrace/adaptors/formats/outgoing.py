"""Outgoing records of rows: key, value, headers and timestamp, as Arrow batches.

    json        key: the id; value: the document, null if it was deleted.  Records of a topic go out as they came
    debezium    see envelope

Headers say where each message stands in the commit log; in a place for several namespaces, which it belongs to.  A
change that leaves fields as they are has a header `unset` with their names as JSON, also where no others are asked for:
without it the record would look like the whole document.
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
    """What the settings of a sink say of its records."""

    @property
    def format(self) -> str:
        """json or debezium."""

    @property
    def key(self) -> str:
        """The id as text, or its fields as json."""

    @property
    def headers(self) -> bool:
        """Whether headers say where each message stands."""


def outgoing(
    batch: pa.RecordBatch, settings: OutgoingSettings, *, shared: bool = False, tombstones: bool = True
) -> pa.RecordBatch:
    """The records of rows of one namespace; `shared`: where they go, others do, too.  Without `tombstones` each row is
    one record."""
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
