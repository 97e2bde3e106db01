"""Columns: make rows with other fields, keys or namespace, and everything else unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.rows.provenance import PLACE
from tailrace.adaptors.rows.record_key import moved_keys
from tailrace.adaptors.rows.removal import renamed
from tailrace.adaptors.rows.rows import columns_of, keys_of, namespace_of
from tailrace.adaptors.rows.unset import moved, unset_of
from tailrace.errors import BadInput


def field_names(batch: pa.RecordBatch) -> list[str]:
    """The names of the documents' fields."""
    return [field.name for field in batch.schema.field("data").type]


def with_fields(batch: pa.RecordBatch, chosen: Sequence[tuple[int, str]], keys: Sequence[str]) -> pa.RecordBatch:
    """The same rows with the chosen fields, each given by its old place and its new name."""
    columns = columns_of(batch)
    fields = [columns.schema.field(place).with_name(name) for place, name in chosen]
    data = structs([columns.column(place) for place, _ in chosen], fields, batch.num_rows)
    made = with_data(batch, data, keys, unset=moved(unset_of(batch), [place for place, _ in chosen]))
    if "removed" not in made.schema.names:
        return made
    names = {columns.schema.names[place]: name for place, name in chosen}
    return made.set_column(made.schema.get_field_index("removed"), "removed", renamed(batch, names))


def structs(arrays: Sequence[pa.Array[Any]], fields: Sequence[pa.Field[Any]], count: int) -> pa.Array[Any]:
    """Join columns into one column of structs.  `count` is the number of rows: without any column Arrow cannot tell."""
    if not arrays:
        return pa.array([{}] * count, pa.struct([]))
    return pa.StructArray.from_arrays(list(arrays), fields=list(fields))


def with_data(
    batch: pa.RecordBatch,
    data: pa.Array[Any],
    keys: Sequence[str],
    *,
    key: pa.Array[Any] | None = None,
    unset: pa.Array[Any] | None = None,
) -> pa.RecordBatch:
    """The same rows with other documents in their places, and with the same record keys unless `key` is given."""
    arrays = [batch.column("timestamp"), batch.column("attributes"), batch.column("key") if key is None else key, data]
    fields = [*(batch.schema.field(name) for name in ("timestamp", "attributes", "key")), pa.field("data", data.type)]
    if unset is not None and unset.null_count < len(unset):
        arrays.append(unset)
        fields.append(pa.field("unset", pa.binary()))
    for name in ("whole", "removed", *PLACE):
        if name in batch.schema.names:
            arrays.append(batch.column(name))
            fields.append(batch.schema.field(name))
    metadata = {**batch.schema.metadata, b"keys": msgspec.json.encode(list(keys))}
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def with_namespace(batch: pa.RecordBatch, namespace: str) -> pa.RecordBatch:
    """The same rows in another namespace, which their record keys name, too."""
    key = moved_keys(batch.column("key"), namespace_of(batch), namespace)
    there = batch.set_column(batch.schema.get_field_index("key"), batch.schema.field("key"), key)
    return there.replace_schema_metadata({**batch.schema.metadata, b"namespace": namespace.encode()})


def check_id_kept(what: str, batch: pa.RecordBatch, names: Sequence[str]) -> None:
    """Raise `BadInput` if a part of the id is not among these fields: a writer could not find the document again."""
    for key in keys_of(batch):
        if key not in names:
            raise BadInput(
                f"{what} would take away {key!r}, which is part of the id of {namespace_of(batch)!r}: "
                "a writer could not find the document again; keep it, or rename it"
            )
