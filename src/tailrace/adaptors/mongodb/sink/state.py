"""The state that a sink keeps for its pipelines, in a database of its own.

    tailrace.offsets        _id {pipeline, writer}, epoch, offsets (JSON), claimed, turn, changed_at
    tailrace.collections    _id {pipeline, writer, namespace}, database, collection, filled
    tailrace.staged         see stage

A writer's document is changed, by a new `turn`, before a transaction looks at it: of two at once the server lets only
one go on.  `filled`: the last batch left documents in the collection, so that one that is empty was emptied by others.
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
    """A collection that a namespace is written to, and whether it certainly has documents."""

    database: str
    collection: str
    filled: bool

    @property
    def shown(self) -> str:
        """As people call it."""
        return f"{self.database}.{self.collection}"


def _key(pipeline: str, writer: str) -> dict[str, str]:
    return {"pipeline": pipeline, "writer": writer}


def read(database: Database[Any], pipeline: str, writer: str) -> Fence:
    """What is kept for a writer."""
    return _fence(database["offsets"].find_one({"_id": _key(pipeline, writer)}))


def lock(database: Database[Any], who: Who, session: ClientSession | None) -> Fence:
    """What is kept for a writer, which no other transaction can change before this one ends."""
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
    """Keep this from now on; False if a newer run was faster, which only a server without transactions allows."""
    offsets = None if fence.offsets is None else _json.encode(fence.offsets).decode()
    now = {"epoch": fence.epoch, "offsets": offsets, "claimed": fence.claimed, "changed_at": datetime.now(UTC)}
    of_older = {"$or": [{"epoch": {"$lte": fence.epoch}}, {"epoch": {"$exists": False}}]}
    key = {"_id": _key(who.pipeline, who.writer)}
    done = database["offsets"].update_one({**key, **of_older}, {"$set": now}, session=session)
    return bool(done.matched_count)


def collections(database: Database[Any], who: Who) -> dict[str, WrittenCollection]:
    """The collections that a writer has written, by namespace."""
    found = database["collections"].find({"_id.pipeline": who.pipeline, "_id.writer": who.writer})
    return {
        one["_id"]["namespace"]: WrittenCollection(one["database"], one["collection"], one["filled"]) for one in found
    }


def keep_collections(
    database: Database[Any], who: Who, written: Mapping[str, WrittenCollection], session: ClientSession | None
) -> None:
    """Keep these from now on."""
    for namespace, one in written.items():
        key = {"_id": {**_key(who.pipeline, who.writer), "namespace": namespace}}
        database["collections"].replace_one(key, {**key, **one._asdict()}, upsert=True, session=session)


def forget_collections(database: Database[Any], who: Who) -> None:
    """Forget all of a writer's."""
    database["collections"].delete_many({"_id.pipeline": who.pipeline, "_id.writer": who.writer})
