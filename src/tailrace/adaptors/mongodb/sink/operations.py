"""Operations: converts rows into operations on documents, each encoded as a BSON document.

    {"_id": id, "d": document}              insert this whole document, or replace the one with this id
    {"_id": id}                             delete the document
    {"_id": id, "s": fields, "u": paths}    if the document exists, set these fields and remove those at the paths

A whole document or a delete replaces all earlier operations on the same id.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import bson
import pyarrow as pa
from bson.errors import BSONError

from tailrace.adaptors.mongodb.extended_json import DECODED
from tailrace.adaptors.mongodb.id_text import id_text
from tailrace.adaptors.mongodb.sink.values import is_cut_off, values_of
from tailrace.adaptors.rows.provenance import places_of
from tailrace.adaptors.rows.record_key import id_of as key_id
from tailrace.adaptors.rows.removal import names_of, removed_of
from tailrace.adaptors.rows.rows import columns_of, keys_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import is_unset, unset_of, whole_of
from tailrace.errors import BadInput, NotReady, Rejected
from tailrace.log.record import Op

_log = logging.getLogger("tailrace")
LARGEST_DOCUMENT = 16 * 1024 * 1024
_NOT_BSON = (BadInput, BSONError, ValueError, OverflowError, RecursionError)
"""The exceptions for values that BSON cannot hold."""


class Operations:
    """The operations on the documents of one namespace, which keep their order for each document."""

    def __init__(self, namespace: str, places: Counter[tuple[Any, ...]]) -> None:
        self._namespace, self._places = namespace, places
        self._last: dict[str, list[bytes]] = {}
        """For each id: its last whole document or delete, if there was one, and the partial changes after that."""
        self._warned: set[str] = set()
        self.size = 0
        self.puts = self.deletes = 0

    def take(self) -> list[bytes]:
        """Return all operations, encoded, and forget them."""
        out = [one for some in self._last.values() for one in some]
        self._last, self.size = {}, 0
        return out

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the operations of a batch of rows; raise `Rejected` for a row that MongoDB cannot hold."""
        for at, operation in self._operations(batch):
            try:
                raw = bson.encode(operation)
                if len(raw) > LARGEST_DOCUMENT and (size := _size(operation)) > LARGEST_DOCUMENT:
                    raise ValueError(f"it has {size:,} bytes, and MongoDB holds 16 MB")
                text = id_text(bson.decode(bson.encode({"_id": operation["_id"]}), DECODED)["_id"])
            except (*_NOT_BSON, TypeError) as error:
                raise self._rejected(batch, at, error) from None
            settles = "s" not in operation
            before = self._last.pop(text, [])
            self._last[text] = [raw] if settles else [*before, raw]
            self.size += len(raw)
            self.puts += "d" in operation
            self.deletes += len(operation) == 1

    def _operations(self, batch: pa.RecordBatch) -> Iterator[tuple[int, dict[str, Any]]]:
        ops, unset = ops_of(batch).to_pylist(), unset_of(batch).to_pylist()
        whole, removed = whole_of(batch).to_pylist(), removed_of(batch)
        columns, keys = columns_of(batch), keys_of(batch)
        fields = list(columns.schema)
        _check_names(self._namespace, columns.schema.names, keys)
        values = [self._values(batch, field, columns.column(n)) for n, field in enumerate(fields)]
        document_at = next((n for n, f in enumerate(fields) if (f.metadata or {}).get(b"bson") == b"document"), None)
        places = None if keys else places_of(batch)
        for at, op in enumerate(ops):
            if op > Op.DELETE:
                continue
            row = {f.name: values[n][at] for n, f in enumerate(fields) if not is_unset(unset[at], n)}
            if document_at is not None and isinstance(document := values[document_at][at], dict):
                row = document
            if places is not None:
                yield at, self._keyless(op, row, places[at])
                continue
            id = row["_id"] if "_id" in row else _id(row, keys)
            if op == Op.DELETE:
                yield at, {"_id": id}
            elif whole[at] or document_at is not None:
                yield at, {"_id": id, "d": _without({**({} if "_id" in row else {"_id": id}), **row}, removed[at])}
            else:
                rest = {name: value for name, value in row.items() if name != "_id"}
                yield at, {"_id": id, "s": rest, "u": [names_of(one) for one in removed[at]]}

    def _values(self, batch: pa.RecordBatch, field: pa.Field[Any], column: pa.Array[Any]) -> list[Any]:
        if field.name not in self._warned and is_cut_off(column):
            self._warned.add(field.name)
            _log.warning(
                "%s.%s: MongoDB's dates have milliseconds; what is finer is cut off", self._namespace, field.name
            )
        try:
            return values_of(field, column)
        except _NOT_BSON as error:
            for at in range(len(column)):
                try:
                    values_of(field, column.slice(at, 1))
                except _NOT_BSON as one:
                    why = "it is nested too deep" if isinstance(one, RecursionError) else one
                    raise self._rejected(batch, at, f"{field.name}: {why}") from None
            raise self._rejected(batch, 0, error) from None

    def _keyless(self, op: int, row: Mapping[str, Any], place: Any) -> dict[str, Any]:
        """Return the operation for a row without a key, whose id is its partition and offset in the commit log.

        A function may make several rows of one message, and the ids of those after the first end in -1, -2 and so on.
        So a batch that is written again replaces the same documents.  Raise `NotReady` for anything but an insert."""
        if op != Op.INSERT or place.offset is None:
            raise NotReady(
                f"{self._namespace} has no key, so nothing says which document of a collection one of its changes is "
                "about; give its rows a key at the source"
            )
        where = (self._namespace, place.partition, place.offset)
        nth, self._places[where] = self._places[where], self._places[where] + 1
        id = f"{place.partition}-{place.offset}" + (f"-{nth}" if nth else "")
        return {"_id": id, "d": {"_id": id, **row}}

    def _rejected(self, batch: pa.RecordBatch, at: int, why: object) -> Rejected:
        id = key_id(batch.column("key")[at].as_py(), self._namespace).decode(errors="replace")
        why = "it is nested too deep" if isinstance(why, RecursionError) else why
        return Rejected(f"{self._namespace}: MongoDB cannot hold {id!r}: {why}", namespace=self._namespace, id=id)


def _size(operation: Mapping[str, Any]) -> int:
    """Return the encoded size of an operation's document, or of the fields that it sets."""
    return len(bson.encode(operation.get("d") or operation.get("s") or {}))


def _id(row: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the `_id` of a row: the value of its key, or a document of several keys."""
    return row[keys[0]] if len(keys) == 1 else {name: row[name] for name in keys}


def _check_names(namespace: str, names: Sequence[str], keys: Sequence[str]) -> None:
    if "_id" in names and tuple(keys) != ("_id",):
        raise NotReady(
            f"{namespace} has a field _id that is not its key, which it would have to be in MongoDB; name it otherwise "
            "on its way: rename({…})"
        )


def _without(document: dict[str, Any], pointers: Sequence[str]) -> dict[str, Any]:
    """Remove from a whole document the nested fields that the row marks as removed; return the document."""
    for *above, last in map(names_of, pointers):
        inner: Any = document
        for name in above:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(last, None)
    return document


def batches(rows: Iterator[pa.RecordBatch], size: int) -> Iterator[tuple[str, Operations]]:
    """Convert rows, in the order of the commit log, into the operations of each namespace, of about `size` bytes."""
    held: dict[str, Operations] = {}
    places: Counter[tuple[Any, ...]] = Counter()
    for batch in rows:
        name = namespace_of(batch)
        if not batch.num_rows:
            continue
        one = held.setdefault(name, Operations(name, places))
        one.add(batch)
        if one.size >= size:
            yield name, held.pop(name)
    yield from held.items()
