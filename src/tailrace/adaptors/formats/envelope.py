"""Debezium's envelope, as its JSON converter writes it without schemas.

    key      {"id": 7}
    value    {"before": null, "after": {"id": 7, …}, "source": {…}, "op": "c", "ts_ms": 1700000000000}

op is r for a copied row, else c, u or d.  The `before` of a d has the fields of the id, and a record without a value
follows it, so that compaction removes the document.  A field that a change leaves as it is has Debezium's placeholder.
A truncate is a record without a key, with op t and neither before nor after.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.adaptors.formats.debezium import PLACEHOLDER
from tailrace.adaptors.rows.json_text import finite, to_json
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import keys_of, messages_of
from tailrace.log.record import Mode, Op

_OPS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.COMMAND: "t"}


def enveloped(batch: pa.RecordBatch, records: pa.RecordBatch, *, tombstones: bool) -> pa.RecordBatch:
    """The records with Debezium's envelopes as values.  With `tombstones` a record without a value follows each
    delete."""
    names, has_key = [field.name for field in batch.schema.field("data").type], bool(keys_of(batch))
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    places: list[int] = []
    for n, message in enumerate(messages_of(batch)):
        key = _key(message) if has_key else None
        keys.append(key)
        values.append(to_json(finite(_envelope(message, names))))
        places.append(n)
        if tombstones and message.op == Op.DELETE and key is not None:
            keys.append(key)
            values.append(None)
            places.append(n)
    taken = records.take(pa.array(places, pa.int64()))
    made = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    for name, column in made.items():
        taken = taken.set_column(taken.schema.get_field_index(name), pa.field(name, pa.binary()), column)
    return taken


def truncated(namespace: str, timestamp: int) -> bytes:
    """The envelope that says that a table was emptied."""
    message = Message(Op.COMMAND, namespace, "", {}, timestamp)
    return to_json({"before": None, "after": None, "source": _source(message, "t"), "op": "t", "ts_ms": timestamp})


def _key(message: Message) -> bytes:
    return to_json(finite({name: message.data.get(name) for name in message.keys}))


def _envelope(message: Message, names: list[str]) -> dict[str, Any]:
    op = "r" if message.mode == Mode.COPY and message.op == Op.INSERT else _OPS[message.op]
    before = after = None
    if message.op == Op.DELETE:
        before = message.data
    elif message.whole:
        after = message.data
    else:
        missing = (name for name in names if name not in message.data and f"/{name}" not in message.removed)
        after = {**message.data, **dict.fromkeys(missing, PLACEHOLDER)}
    return {"before": before, "after": after, "source": _source(message, op), "op": op, "ts_ms": message.timestamp}


def _source(message: Message, op: str) -> dict[str, Any]:
    schema, dot, table = message.namespace.rpartition(".")
    return {
        "version": "1",
        "connector": "tailrace",
        "name": "tailrace",
        "ts_ms": message.timestamp,
        "snapshot": "true" if op == "r" else "false",
        "db": "",
        "schema": schema if dot else "",
        "table": table,
        "txId": message.place.transaction,
        "sequence": message.place.position,
    }
