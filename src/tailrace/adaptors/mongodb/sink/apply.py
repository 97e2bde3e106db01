"""Applying operations: sends staged operations to a collection, many in one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import bson
from bson.raw_bson import RawBSONDocument

from tailrace.adaptors.mongodb.errors import first_line
from tailrace.adaptors.mongodb.extended_json import DECODED
from tailrace.adaptors.mongodb.id_text import id_text
from tailrace.errors import Rejected

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

FIELDS_PER_STAGE = 20
"""The most fields that one stage of an update sets: each field nests one expression deeper, and the server limits the
depth."""
_RAW = DECODED.with_options(document_class=RawBSONDocument)


def apply(
    collection: Collection[Any], namespace: str, operations: Sequence[bytes], session: ClientSession | None
) -> None:
    """Apply encoded operations in their order; raise `Rejected` with the id of a document that the server refuses."""
    from pymongo.errors import BulkWriteError, DocumentTooLarge

    requests, causes = [], []
    for raw in operations:
        operation = bson.decode(raw, _RAW)
        for request in _requests(operation):
            requests.append(request)
            causes.append(raw)
    if not requests:
        return
    try:
        collection.bulk_write(requests, ordered=True, session=session)
    except BulkWriteError as error:
        failed = error.details["writeErrors"]
        if not failed or error.has_error_label("TransientTransactionError"):
            raise
        id = id_text(bson.decode(causes[failed[0]["index"]], DECODED)["_id"])
        raise Rejected(
            f"{namespace}: MongoDB refuses {id}: {failed[0]['errmsg']}", namespace=namespace, id=id
        ) from None
    except DocumentTooLarge as error:
        raise Rejected(f"{namespace}: {first_line(error)}", namespace=namespace) from None


def _requests(operation: Mapping[str, Any]) -> Iterator[Any]:
    from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

    match = {"_id": {"$eq": operation["_id"]}}
    if "d" in operation:
        document = operation["d"]
        if any(name.startswith("$") for name in document):
            # MongoDB accepts such field names in an insert, not in a replacement.
            yield DeleteOne(match)
            yield InsertOne(document)
        else:
            yield ReplaceOne(match, document, upsert=True)
    elif "s" in operation:
        changed = _changed(operation["s"], operation["u"])
        if changed:
            yield UpdateOne(match, changed)
    else:
        yield DeleteOne(match)


def _changed(fields: Mapping[str, Any], paths: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return an update that sets and removes fields of any name; `$set` would not accept dots and dollars in names."""
    stages = []
    names = iter(fields.items())
    while some := list(islice(names, FIELDS_PER_STAGE)):
        value: Any = "$$ROOT"
        for name, inner in some:
            value = {"$setField": {"field": {"$literal": name}, "input": value, "value": {"$literal": inner}}}
        stages.append({"$replaceWith": value})
    return stages + [{"$replaceWith": _removed("$$ROOT", list(path))} for path in paths]


def _removed(value: str, path: list[str], depth: int = 0) -> Any:
    """Return an expression for the document `value` without the field at `path`, which may lie in nested documents."""
    name = {"$literal": path[0]}
    if len(path) == 1:
        return {"$unsetField": {"field": name, "input": value}}
    inner = f"$$inner{depth}"
    less = {"$setField": {"field": name, "input": value, "value": _removed(inner, path[1:], depth + 1)}}
    found = {"$getField": {"field": name, "input": value}}
    is_document = {"$eq": [{"$type": inner}, "object"]}
    return {"$let": {"vars": {inner[2:]: found}, "in": {"$cond": [is_document, less, value]}}}
