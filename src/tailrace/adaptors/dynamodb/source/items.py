"""Items as rows, in one of two shapes.

    document    the attributes of the key, and `document`: the whole item, as JSON
    columns     the attributes of the key, and a column for each other attribute that an item of the batch has

In both shapes a key attribute has one type in every batch, whether items are copied or followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tailrace.adaptors.dynamodb.item_json import to_text
from tailrace.adaptors.dynamodb.source.column_types import column, key_column
from tailrace.adaptors.rows.rows import make_rows
from tailrace.adaptors.rows.unset import bitmap
from tailrace.errors import BadSetting
from tailrace.log.record import Mode, Op
from tailrace.storage.changes import Change
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Key

Shape = Literal["document", "columns"]
DOCUMENT = pa.field("document", pa.json_(), metadata={"dynamodb": "document"})
_OPS = {"INSERT": Op.INSERT, "MODIFY": Op.UPDATE, "REMOVE": Op.DELETE}


@dataclass(slots=True)
class ItemChange:
    """One change of one item; `item` is None if only its key is known, as for a delete without an old image."""

    op: Op
    key: Key
    item: Mapping[str, Any] | None
    timestamp: int
    before: Sequence[str] = ()
    """The names of the attributes that the item had before."""


def copied(schema: KeySchema, item: Mapping[str, Any], now: int) -> ItemChange:
    """Make a change, an insert, of an item that a scan has read."""
    return ItemChange(Op.INSERT, schema.key_of(item), item, now)


def told(change: Change) -> ItemChange:
    """Make an `ItemChange` of a change in a stream."""
    op, at = _OPS[change.kind], int(change.created_at.timestamp() * 1000)
    item = change.old if op == Op.DELETE else change.new
    return ItemChange(op, change.key, item, at, tuple(change.old or ()))


def rows(table: str, schema: KeySchema, shape: Shape, changes: Sequence[ItemChange], mode: Mode) -> pa.RecordBatch:
    """Make rows of the changes of one table."""
    keyed = [schema.attributes(change.key) for change in changes]
    names = [name for name in (schema.hash, schema.range) if name is not None]
    kinds = (schema.hash_kind, schema.range_kind)
    made = [key_column(name, kind, [key[name] for key in keyed]) for name, kind in zip(names, kinds, strict=False)]
    made += [_document(table, names, changes)] if shape == "document" else _columns(names, changes)
    missing = [_missing(made, len(names), shape, change) for change in changes]
    return make_rows(
        table,
        pa.RecordBatch.from_arrays([array for _, array in made], schema=pa.schema([field for field, _ in made])),
        names,
        op=pa.array([change.op for change in changes], pa.uint8()),
        mode=mode,
        timestamp=pa.array([change.timestamp for change in changes], pa.int64()),
        unset=pa.array([bitmap(some) for some in missing], pa.binary()),
        whole=pa.array([c.item is not None for c in changes], pa.bool_()) if any(map(any, missing)) else None,
        open=shape == "columns",
    )


def _document(table: str, keys: Sequence[str], changes: Sequence[ItemChange]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    if DOCUMENT.name in keys:
        raise BadSetting(f"{table} has a key that is called document, as the whole item is; use shape = 'columns'")
    texts = [None if change.item is None else to_text(dict(change.item)) for change in changes]
    return DOCUMENT, pa.array(texts, pa.json_())


def _columns(keys: Sequence[str], changes: Sequence[ItemChange]) -> list[tuple[pa.Field[Any], pa.Array[Any]]]:
    """Return a column for each attribute that an item has or had, so that a sink of tables can clear removed ones."""
    names = dict.fromkeys(name for change in changes for name in (*(change.item or ()), *change.before))
    return [column(name, [(c.item or {}).get(name) for c in changes]) for name in names if name not in keys]


def _missing(made: Sequence[tuple[pa.Field[Any], Any]], keys: int, shape: Shape, change: ItemChange) -> list[bool]:
    """Return, for each field, whether the row lacks it."""
    item = change.item
    if shape == "document":
        return [*[False] * keys, item is None]
    return [*[False] * keys, *(item is None or field.name not in item for field, _ in made[keys:])]
