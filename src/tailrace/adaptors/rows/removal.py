"""Removed fields: the fields that a row says are not there, as JSON Pointers (RFC 6901): "/note", "/address/street".

In a change they are the fields that the change removes.  In a whole document they are nested fields that this document
does not have and other documents of the batch have: Arrow has a null for both a null and a missing nested field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.rows.record_key import id_of
from tailrace.adaptors.rows.unset import bitmap, is_unset, unset_of, whole_of
from tailrace.errors import Rejected

REMOVED = pa.list_(pa.string())
_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode


def pointer(*names: str) -> str:
    """The JSON Pointer to a field, made from the names on the way to it."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def names_of(pointer: str) -> list[str]:
    """The names on the way to the field of a JSON Pointer."""
    return [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]


def take_away(document: dict[str, Any], pointers: Iterable[str]) -> None:
    """Remove fields from a document; fields that it does not have are ignored."""
    for one in pointers:
        *above, last = names_of(one)
        at: Any = document
        for name in above:
            at = at.get(name) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at.pop(last, None)


def removed_of(batch: pa.RecordBatch) -> list[list[str]]:
    """The removed fields of each row."""
    if "removed" not in batch.schema.names:
        return [[]] * batch.num_rows
    return [some or [] for some in batch.column("removed").to_pylist()]


def renamed(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.Array[Any]:
    """The removed fields of rows whose top-level fields get new names.  Fields that `names` does not have are left
    out."""
    out = []
    for pointers in removed_of(batch):
        parts = [names_of(one) for one in pointers]
        out.append([pointer(names[first], *rest) for first, *rest in parts if first in names])
    return pa.array(out, REMOVED)


def as_columns(batch: pa.RecordBatch, namespace: str) -> pa.RecordBatch:
    """Prepare rows for a sink of columns: set each removed field to null, and leave a removed nested field out of the
    JSON that its column holds.

    Raises `Rejected` if a change removes something from a field whose value it does not have: a column can only be set
    as a whole."""
    if "removed" not in batch.schema.names:
        return batch
    if "whole" not in batch.schema.names:  # below, `unset` changes, and no longer says which rows are whole
        batch = batch.append_column(pa.field("whole", pa.bool_()), whole_of(batch))
    data = batch.column("data")
    names = [field.name for field in data.type]
    rows, bits = data.to_pylist(), unset_of(batch).to_pylist()
    nested: set[str] = set()
    for n, pointers in enumerate(removed_of(batch)):
        missing = [is_unset(bits[n], place) for place in range(len(names))]
        for first, *rest in map(names_of, pointers):
            place = names.index(first) if first in names else -1
            if rest and place >= 0 and missing[place]:
                raise _rejected(batch, n, namespace, first)
            if rest:
                nested.add(first)
            elif place >= 0:
                missing[place] = False
                rows[n][first] = None
        take_away(rows[n], [one for one in pointers if len(names_of(one)) > 1])
        bits[n] = bitmap(missing)
    arrays = [_array(data, place, name, rows, as_json=name in nested) for place, name in enumerate(names)]
    made = pa.StructArray.from_arrays([array for array, _ in arrays], fields=[field for _, field in arrays])
    out = batch.set_column(batch.schema.get_field_index("data"), pa.field("data", made.type), made)
    if "unset" in out.schema.names:
        out = out.drop_columns(["unset"])
    return out.append_column(pa.field("unset", pa.binary()), pa.array(bits, pa.binary())).drop_columns(["removed"])


def _array(
    data: pa.Array[Any], place: int, name: str, rows: Sequence[dict[str, Any]], *, as_json: bool
) -> tuple[pa.Array[Any], pa.Field[Any]]:
    field, values = data.type.field(place), [row[name] for row in rows]
    if as_json and not isinstance(field.type, pa.JsonType):
        return pa.array([None if v is None else _json(v).decode() for v in values], pa.json_()), pa.field(
            name, pa.json_()
        )
    return pa.array(values, field.type), field


def _rejected(batch: pa.RecordBatch, n: int, namespace: str, field: str) -> Rejected:
    id = id_of(batch.column("key")[n].as_py(), namespace).decode(errors="replace")
    return Rejected(
        f"{namespace}: a change of {id} takes something out of {field!r} and does not send the rest of it, which a "
        "table needs; have the source send whole documents",
        namespace=namespace,
        id=id,
    )
