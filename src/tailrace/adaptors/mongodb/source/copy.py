"""Copying: cuts a collection into ranges of its `_id`, and reads each range.

Ids may be of several types.  A comparison such as {_id: {$gt: 5}} matches only ids of one type.  So a range is given by
bounds of the index (min, max), which cover all types in MongoDB's own order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
from bson import MaxKey, Timestamp

from tailrace.adaptors.contract import Piece
from tailrace.adaptors.mongodb.deployment import Deployment, OperationTime
from tailrace.adaptors.mongodb.extended_json import DECODED, from_text, to_text
from tailrace.adaptors.mongodb.id_text import id_text
from tailrace.adaptors.mongodb.settings import MongoSource
from tailrace.adaptors.mongodb.source.collections import split
from tailrace.adaptors.mongodb.source.documents import Change, decoded, rows
from tailrace.log.record import Mode, Op

SAMPLES_PER_PIECE = 10
"""How many ids are sampled for each piece: with ten a piece's size is right to about a third."""
_ID = [("_id", 1)]


def pieces(deployment: Deployment, namespace: str, rows: int, after: OperationTime | None) -> list[Piece]:
    """Cut a collection into ranges of about `rows` documents; a task that reads one sees all changes up to `after`."""
    with deployment.guarded(f"planning the copy of {namespace}"):
        database, name = split(namespace)
        collection = deployment.client[database].get_collection(name, codec_options=DECODED)
        count = collection.estimated_document_count()
        parts = -(-count // rows)
        cuts = _cuts(collection, parts) if parts > 1 else []
    edges = [None, *cuts, None]
    about = count // (len(cuts) + 1)
    seen = None if after is None else list(after)
    return [Piece(namespace, {"from": low, "to": high, "after": seen}, about) for low, high in pairwise(edges)]


def _cuts(collection: Any, parts: int) -> list[str]:
    """Return the ids at which to cut, in the order of the index."""
    stages = [
        {"$sample": {"size": parts * SAMPLES_PER_PIECE}},
        {"$project": {"_id": 1}},
        {"$sort": {"_id": 1}},
    ]
    ids = {id_text(found["_id"]): found["_id"] for found in collection.aggregate(stages, allowDiskUse=True)}
    return [to_text(one) for one in list(ids.values())[SAMPLES_PER_PIECE::SAMPLES_PER_PIECE]]


def read(deployment: Deployment, settings: MongoSource, piece: Piece) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a piece of a collection as rows; if it has none, one batch without rows."""
    now, empty = time.time_ns() // 1_000_000, True
    with deployment.guarded(f"copying {piece.namespace}"):
        batches = _batches(deployment, settings, piece)
        for raw in chain.from_iterable(_parts(batch, settings.batch_bytes) for batch in batches):
            changes = [Change(Op.INSERT, d["_id"], d, now) for d in decoded(piece.namespace, raw)]
            if changes:
                empty = False
                yield rows(piece.namespace, settings.shape, changes, Mode.COPY)
    if empty:
        yield rows(piece.namespace, settings.shape, [], Mode.COPY)


def _parts(raw: bytes, size: int) -> Iterator[bytes]:
    """Cut concatenated documents, each of which begins with its length, into parts of about `size` bytes."""
    start = at = 0
    while at < len(raw):
        at += int.from_bytes(raw[at : at + 4], "little")
        if at - start >= size or at == len(raw):
            yield raw[start:at]
            start = at


def _batches(deployment: Deployment, settings: MongoSource, piece: Piece) -> Iterator[bytes]:
    """Yield the documents of a piece as BSON, many at a time.

    A followed copy uses the read concern "majority", so that it never reads what a new primary later rolls back.  It
    reads no earlier than `after`, because no followed change brings what happened up to then."""
    from pymongo.read_concern import ReadConcern

    database, name = split(piece.namespace)
    client, bounds = deployment.client, piece.bounds
    how: dict[str, Any] = {"batch_size": settings.batch_rows}
    for word, edge in (("min", bounds["from"]), ("max", bounds["to"])):
        if edge is not None:
            how |= {word: {"_id": from_text(edge)}, "hint": _ID}
    if bounds["after"] is None:
        collection, session = client[database][name], None
    else:
        collection = client[database].get_collection(name, read_concern=ReadConcern("majority"))
        session = client.start_session(causal_consistency=True)
        session.advance_operation_time(Timestamp(*bounds["after"]))
    with session or contextlib.nullcontext():
        with collection.find_raw_batches({}, session=session, **how) as cursor:
            yield from cursor
        if bounds["from"] is not None and bounds["to"] is None:
            # A range without an upper bound ends before MaxKey, but MaxKey may be an id, too.
            yield from collection.find_raw_batches({"_id": {"$eq": MaxKey()}}, session=session)
