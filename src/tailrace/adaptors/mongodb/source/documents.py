"""Documents as rows, in one of two shapes: see docs/decisions/034-documents.md.

    document    _id: the id as text          document: the whole document, as Extended JSON
    columns     _id: the id as text          a column for each field of the first level that a document of the batch has

In both shapes every id is a text, and a document has the same id when it is copied and when it is followed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import bson
import pyarrow as pa
from bson.errors import BSONError

from tailrace.adaptors.mongodb.extended_json import DECODED, to_text
from tailrace.adaptors.mongodb.id_text import id_text
from tailrace.adaptors.mongodb.source.column_types import column
from tailrace.adaptors.rows.rows import make_rows
from tailrace.adaptors.rows.unset import bitmap
from tailrace.errors import BadInput
from tailrace.log.record import Mode, Op

KEYS = ("_id",)
DOCUMENT = pa.field("document", pa.json_(), metadata={"bson": "document"})
ID = pa.field("_id", pa.string(), metadata={"bson": "id"})


@dataclass(slots=True)
class Change:
    """One change of one document; `document` is None if only its id is known, as for most deletes."""

    op: Op
    id: Any
    document: Mapping[str, Any] | None
    timestamp: int
    transaction: int = 0
    position: int = 0
    gone: Collection[str] = ()
    """Fields of the first level that the document may have had before the change."""


def decoded(namespace: str, raw: bytes) -> list[dict[str, Any]]:
    """Decode concatenated BSON documents; raise `BadInput` with the id of one that cannot be decoded."""
    try:
        return bson.decode_all(raw, DECODED)
    except (BSONError, UnicodeDecodeError):
        return _each(namespace, raw)


def _each(namespace: str, raw: bytes) -> list[dict[str, Any]]:
    out, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "little")
        out.append(decoded_one(namespace, raw[at : at + size]))
        at += size
    return out


def decoded_one(what: str, raw: bytes) -> dict[str, Any]:
    """Decode one BSON document; raise `BadInput` if that fails.  `what` says where it comes from."""
    try:
        return bson.decode(raw, DECODED)
    except (BSONError, UnicodeDecodeError) as error:
        known = bson.decode(raw, DECODED.with_options(unicode_decode_error_handler="replace"))
        who = known.get("documentKey", known).get("_id")
        raise BadInput(f"{what}: the document with _id {who!r} cannot be decoded: {error}; mend or remove it") from None


def rows(
    namespace: str, shape: Literal["document", "columns"], changes: Sequence[Change], mode: Mode
) -> pa.RecordBatch:
    """Make rows of the changes of one collection's documents."""
    ids = pa.array([id_text(change.id) for change in changes], pa.string())
    if shape == "document":
        texts = [None if c.document is None else to_text(c.document) for c in changes]
        fields, arrays = [ID, DOCUMENT], [ids, pa.array(texts, pa.json_())]
        missing = [[False, text is None] for text in texts]
    else:
        fields, arrays = _columns(ids, changes)
        missing = [[c.document is None or f.name not in c.document for f in fields[1:]] for c in changes]
        missing = [[False, *some] for some in missing]
    following = mode == Mode.SYNC
    return make_rows(
        namespace,
        pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)),
        KEYS,
        op=pa.array([c.op for c in changes], pa.uint8()),
        mode=mode,
        timestamp=pa.array([c.timestamp for c in changes], pa.int64()),
        unset=pa.array([bitmap(some) for some in missing], pa.binary()),
        whole=pa.array([c.document is not None for c in changes], pa.bool_()) if any(map(any, missing)) else None,
        transaction=pa.array([c.transaction for c in changes], pa.int64()) if following else None,
        position=pa.array([c.position for c in changes], pa.int64()) if following else None,
        open=shape == "columns",
    )


def _columns(ids: pa.Array[Any], changes: Sequence[Change]) -> tuple[list[pa.Field[Any]], list[pa.Array[Any]]]:
    """Return a column for each field that a document has or had, so that a sink of tables can clear removed fields."""
    documents = [change.document for change in changes]
    names = dict.fromkeys(name for change in changes for name in (*(change.document or ()), *change.gone))
    names.pop("_id", None)
    fields, arrays = [ID], [ids]
    for name in names:
        made, field = column(name, [None if d is None else d.get(name) for d in documents])
        fields.append(field)
        arrays.append(made)
    return fields, arrays
