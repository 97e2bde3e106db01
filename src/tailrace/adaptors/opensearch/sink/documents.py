"""Documents for an index: the id and the JSON of each row.

id       the key's text; for bytes their hexadecimal digits; for several fields a JSON array of these: ["eu","7"]
values   as rows.json_text writes them everywhere; a map is an object
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.formats.place_ids import PlaceIds
from tailrace.adaptors.rows.json_text import json_objects, to_json
from tailrace.adaptors.rows.message import Place
from tailrace.adaptors.rows.provenance import places_of
from tailrace.adaptors.rows.record_key import ESCAPE, NULL, SEPARATOR, ids_of
from tailrace.adaptors.rows.removal import names_of
from tailrace.adaptors.rows.rows import columns_of, keys_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import unset_names, unset_of
from tailrace.errors import NotReady, Rejected
from tailrace.log.record import Op

LONGEST_ID = 512
"""OpenSearch's limit for the bytes of an id.  A longer id would fail the whole request."""
Fields = dict[str, msgspec.Raw]
"""A document whose values are undecoded JSON."""
_ESCAPED = re.compile(ESCAPE + b"(.)", re.DOTALL)
_PLAIN = {b"S": SEPARATOR, ESCAPE: ESCAPE}
_decode = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.encode


def ids(batch: pa.RecordBatch, places: PlaceIds) -> list[str]:
    """The `_id` of each row.  `places` has counted the rows of the share that came before."""
    keys, namespace = keys_of(batch), namespace_of(batch)
    if not keys:
        some = zip(ops_of(batch).to_pylist(), places_of(batch), strict=True)
        return [_place_id(namespace, op, place, places) for op, place in some]
    kinds = batch.schema.field("data").type
    binary = [_is_binary(kinds.field(name).type) for name in keys]
    raw = ids_of(batch.column("key"), namespace).to_pylist()
    return [_id(namespace, one, binary) for one in raw]


def _place_id(namespace: str, op: int, place: Place, places: PlaceIds) -> str:
    """The id of a row without a key: its place in the commit log, so that a repeat writes the same document.
    `NotReady` for anything but an insert."""
    if op != Op.INSERT or place.offset is None:
        raise NotReady(
            f"{namespace} has no key, so nothing says which document of an index one of its changes is about; give its "
            "rows a key at the source"
        )
    return places.of(namespace, place)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _id(namespace: str, raw: bytes, binary: Sequence[bool]) -> str:
    try:
        if len(binary) == 1:
            text = raw.hex() if binary[0] else raw.decode()
        else:
            parts = zip(raw.split(SEPARATOR), binary, strict=True)
            text = _encode([_part(part, is_binary) for part, is_binary in parts]).decode()
    except UnicodeDecodeError:
        shown = raw.decode(errors="replace")
        raise Rejected(f"{namespace}: the id {shown!r} is not text", namespace=namespace, id=shown) from None
    if not 0 < len(size := text.encode()) <= LONGEST_ID:
        why = f"it has {len(size):,} bytes, and OpenSearch holds 1 to {LONGEST_ID}"
        raise Rejected(f"{namespace}: no document can have the id {text[:80]!r}: {why}", namespace=namespace, id=text)
    return text


def _part(part: bytes, is_binary: bool) -> str | None:
    if part == NULL:
        return None
    plain = _ESCAPED.sub(lambda match: _PLAIN[match[1]], part)
    return plain.hex() if is_binary else plain.decode()


def sources(batch: pa.RecordBatch) -> list[bytes]:
    """The document of each row as JSON on one line, without the fields that the row leaves unset."""
    columns = columns_of(batch)
    names = columns.schema.names
    left = unset_names(unset_of(batch), names).to_pylist() if "unset" in batch.schema.names else None
    if names == [""]:  # columns_of gives this for rows without columns
        return [b"{}"] * batch.num_rows
    whole = next((n for n, one in enumerate(columns.schema) if _is_document(one)), None)
    if whole is not None:
        made = [(text or "{}").encode() for text in columns.column(whole).storage.to_pylist()]
    else:
        arrays = [_plain(column) for column in columns.columns]
        made = json_objects(pa.RecordBatch.from_arrays(arrays, names=names), left)
    # A source's own JSON may have line ends between values, but in a bulk request a line end ends the document.
    return [one.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in one or b"\r" in one else one for one in made]


def _is_document(field: pa.Field[Any]) -> bool:
    """Whether a field holds the whole document, as SearchReader copies it from an index."""
    return (field.metadata or {}).get(b"opensearch") == b"document" and isinstance(field.type, pa.JsonType)


def _plain(column: pa.Array[Any]) -> pa.Array[Any]:
    """The column in a type of which JSON text can be made."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        texts = column.cast(pa.string()).to_pylist()
        return pa.array([None if text is None else text.replace(" ", "T", 1) for text in texts], pa.string())
    if _has_map(kind):
        values = [_objects(value, kind) for value in column.to_pylist()]
        return pa.array([None if value is None else to_json(value).decode() for value in values], pa.json_())
    return column


def _has_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) or any(_has_map(kind.field(n).type) for n in range(kind.num_fields))


def _objects(value: Any, kind: pa.DataType) -> Any:
    """The value with its maps as objects, at every depth."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(name): _objects(inner, kind.item_type) for name, inner in value}
    if pa.types.is_struct(kind):
        return {field.name: _objects(value[field.name], field.type) for field in kind}
    if kind.num_fields:
        return [_objects(inner, kind.value_type) for inner in value]
    return value


# -- changes
def fields_of(source: bytes) -> Fields:
    """The fields of a document, their values undecoded."""
    return _decode(source)


def merged(source: bytes, fields: Fields, removed: Sequence[str]) -> bytes:
    """The document with these fields set and others removed; `removed` has JSON Pointers, so also to nested fields."""
    document = fields_of(source) | fields
    for pointer in removed:
        _remove(document, names_of(pointer))
    return _encode(document)


def _remove(document: Fields, names: Sequence[str]) -> None:
    first, *rest = names
    if not rest:
        document.pop(first, None)
    elif first in document and bytes(document[first]).lstrip()[:1] == b"{":
        inner = _decode(document[first])
        _remove(inner, rest)
        document[first] = msgspec.Raw(_encode(inner))


def without(source: bytes, removed: Iterator[str] | Sequence[str]) -> bytes:
    """The document without the fields that these JSON Pointers name."""
    return merged(source, {}, list(removed))
