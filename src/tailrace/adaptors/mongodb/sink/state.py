"""The state of a sink: what it keeps for each pipeline's writers, in a database of tailrace's own.

    tailrace.offsets        _id {pipeline, writer}, epoch, offsets (JSON), claimed, turn, changed_at
    tailrace.collections    _id {pipeline, writer, namespace}, database, collection, filled
    tailrace.staged         see stage

Each transaction first increments `turn` in the writer's document, so of two concurrent transactions the server lets
only one continue.  `filled`: the writer left documents in the collection; if it is empty, another program emptied it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tailrace.adaptors.contract import Who
from tailrace.adaptors.sinks.fencing import Fence

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession
    from pymongo.database import Database

_json = msgspec.json


class WrittenCollection(NamedTuple):
    """A collection that a namespace is written to; `filled` if it certainly has documents."""

    database: str
    collection: str
    filled: bool

    @property
    def shown(self) -> str:
        """The collection's name for messages: database.collection."""
        return f"{self.database}.{self.collection}"


def _key(pipeline: str, writer: str) -> dict[str, str]:
    return {"pipeline": pipeline, "writer": writer}


def read(database: Database[Any], pipeline: str, writer: str) -> Fence:
    """Return the fence of a writer, without a lock."""
    return _fence(database["offsets"].find_one({"_id": _key(pipeline, writer)}))


def lock(database: Database[Any], who: Who, session: ClientSession | None) -> Fence:
    """Return the fence of a writer, and keep other transactions from changing it until this one ends."""
    from pymongo import ReturnDocument

    found = database["offsets"].find_one_and_update(
        {"_id": _key(who.pipeline, who.writer)},
        {"$inc": {"turn": 1}},
        upsert=True,
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    return _fence(found)


def _fence(found: Mapping[str, Any] | None) -> Fence:
    if found is None or "epoch" not in found:
        return Fence()
    offsets = found["offsets"]
    return Fence(int(found["epoch"]), None if offsets is None else _json.decode(offsets), found["claimed"])


def store(database: Database[Any], who: Who, fence: Fence, session: ClientSession | None) -> bool:
    """Store a writer's fence; return False if a newer run stored its own first.

    That can happen only on a server without transactions."""
    offsets = None if fence.offsets is None else _json.encode(fence.offsets).decode()
    now = {"epoch": fence.epoch, "offsets": offsets, "claimed": fence.claimed, "changed_at": datetime.now(UTC)}
    of_older = {"$or": [{"epoch": {"$lte": fence.epoch}}, {"epoch": {"$exists": False}}]}
    key = {"_id": _key(who.pipeline, who.writer)}
    done = database["offsets"].update_one({**key, **of_older}, {"$set": now}, session=session)
    return bool(done.matched_count)


def collections(database: Database[Any], who: Who) -> dict[str, WrittenCollection]:
    """Return the collections that a writer has written, by namespace."""
    found = database["collections"].find({"_id.pipeline": who.pipeline, "_id.writer": who.writer})
    return {
        one["_id"]["namespace"]: WrittenCollection(one["database"], one["collection"], one["filled"]) for one in found
    }


def keep_collections(
    database: Database[Any], who: Who, written: Mapping[str, WrittenCollection], session: ClientSession | None
) -> None:
    """Store these collections as written by the writer."""
    for namespace, one in written.items():
        key = {"_id": {**_key(who.pipeline, who.writer), "namespace": namespace}}
        database["collections"].replace_one(key, {**key, **one._asdict()}, upsert=True, session=session)


def forget_collections(database: Database[Any], who: Who) -> None:
    """Delete the record of a writer's collections; the collections themselves stay."""
    database["collections"].delete_many({"_id.pipeline": who.pipeline, "_id.writer": who.writer})
