"""Record keys: namespace, 0x00, id.  The hash of a row's key says which partition of the commit log the row goes to.

An id is the text of its field (bytes as they are, lists and structs as JSON).  If the id has several fields, 1b is
written as 1b 1b in each of them, 1f as 1b 53 and null as 1b 4e, and the fields are joined by 1f.  So two different ids
are never written alike.  Of one field, only an id that could be taken for null or for DEFINITION, 1b … 1b 4e or
1b … 1b 54, has one more 1b in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import BadInput

SEPARATOR, ESCAPE, NULL = b"\x1f", b"\x1b", b"\x1bN"
DEFINITION = b"\x1bT"
"""The id of a row that only defines columns.  An id of several fields never equals it, because there 1b comes only
before 1b, 53 or 4e, nor does an id of one field."""
_LIKE_A_MARK = b"^(\x1b+[NT])$"
_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
"""The types of an id that is used as it is.  Its bytes may or may not be text, which differs from batch to batch, so
text must not be a special case."""


def key_prefix(namespace: str) -> bytes:
    """The bytes that every key of a namespace begins with."""
    return namespace.encode() + b"\x00"


def row_keys(namespace: str, columns: pa.RecordBatch, keys: Sequence[str]) -> pa.Array[Any]:
    """Return the record key of each row.  Without `keys` all fields together are the id."""
    names = list(keys) or columns.schema.names
    for name in names:
        if name not in columns.schema.names:
            raise BadInput(f"{namespace!r} has no field {name!r}, which is part of its id")
    texts = [id_text(columns.column(name)) for name in names]
    ids = _alone(texts[0]) if len(texts) == 1 else pc.binary_join_element_wise(*map(_part, texts), SEPARATOR)
    return pc.binary_join_element_wise(pa.scalar(namespace.encode()), ids, b"\x00")


def id_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """The values of one field of the id as bytes, as they are."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if any(kind(column.type) for kind in _BYTES):
        return column.cast(pa.binary())
    try:
        return column.cast(pa.string()).cast(pa.binary())
    except pa.ArrowNotImplementedError:  # lists, structs and the like
        return pa.array([None if v is None else _json(v) for v in column.to_pylist()], pa.binary())


def _alone(text: pa.Array[Any]) -> pa.Array[Any]:
    """The ids of one field."""
    return pc.fill_null(pc.replace_substring_regex(text, _LIKE_A_MARK, ESCAPE + b"\\1"), NULL)


def _part(text: pa.Array[Any]) -> pa.Array[Any]:
    """One of several fields of an id, escaped."""
    text = pc.replace_substring(text, ESCAPE, ESCAPE + ESCAPE)
    return pc.fill_null(pc.replace_substring(text, SEPARATOR, ESCAPE + b"S"), NULL)


def id_of(key: bytes, namespace: str) -> bytes:
    """The id in a record key of this namespace."""
    return key[len(key_prefix(namespace)) :]


def ids_of(keys: pa.Array[Any], namespace: str) -> pa.Array[Any]:
    """The ids in the record keys of a namespace."""
    return _replaced(keys, key_prefix(namespace), b"")


def moved_keys(keys: pa.Array[Any], old: str, new: str) -> pa.Array[Any]:
    """The record keys of the same documents in another namespace."""
    return _replaced(keys, key_prefix(old), key_prefix(new))


def _replaced(keys: pa.Array[Any], old: bytes, new: bytes) -> pa.Array[Any]:
    return pc.replace_substring(keys, old, new, max_replacements=1)  # binary_slice fails on slices
