"""The catalog: which topics there are.

    $Topic-<name>, 2^63-1    id, partitions, settings{}, version, created: the topic of this name
    $Settings-<id>, version  settings{}, changed: every set of settings it has had
    $Topics, bucket          names{name: id}: for listing; a name's bucket is taken from its hash
    $Deleted, n              id, name; of a queue also shards: a topic whose items and objects are still to be removed

A topic is made and deleted by one transaction over these and its head.  An id is never used again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused
from tailrace.coordination.names import check_name as check_name
from tailrace.errors import AlreadyThere, BadSetting, Conflict, UnknownTopic, nearest
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head
from tailrace.log.settings import TopicSettings, from_stored, settings, stored
from tailrace.log.topic_log import TopicLog
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import (
    LAST,
    Absent,
    Action,
    Add,
    Check,
    Delete,
    Equals,
    Exists,
    Item,
    Key,
    Put,
    Remove,
    Set,
    Update,
)

MAX_PARTITIONS = 128
MAX_GROWTHS = 16
"""How often a topic can grow: its head keeps every growth, and every append writes the head."""
NAME_BUCKETS = 256
"""A listing has its names in this many items, by a hash of the name."""


@dataclass(frozen=True, slots=True)
class Described:
    """A topic as the catalog knows it."""

    name: str
    id: str
    partitions: int
    settings: TopicSettings
    version: int
    created: int

    @classmethod
    def of(cls, name: str, item: Item) -> Described:
        """Decodes a catalog item."""
        found = from_stored(name, item["settings"])
        return cls(name, item["id"], item["partitions"], found, item["version"], item["created"])


def check_partitions(partitions: int) -> int:
    """Refuse a partition count that a topic cannot have."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
        raise BadSetting(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions!r}; for more, use more topics")
    return partitions


def topic_key(name: str) -> Key:
    """The key of a topic's description."""
    return Key(f"$Topic-{name}", LAST)


def bucket_key(catalog: str, name: str) -> Key:
    """The key of the item that holds a name of a listing, such as `$Topics`."""
    return Key(catalog, hashlib.sha256(name.encode()).digest()[0] % NAME_BUCKETS)


def create(
    name: str, partitions: int, given: dict[str, Any], wall: int, also: Sequence[Check] = ()
) -> Steps[Described]:
    """Make a topic, or raise `AlreadyThere`; `Conflict` if the condition of one of the checks in `also` does not
    hold."""
    check_name("topic", name)
    check_partitions(partitions)
    made = stored(settings(given))
    id = secrets.token_hex(8)
    item = {"id": id, "partitions": partitions, "settings": made, "version": 0, "created": wall}
    while True:
        there = yield from guard.read(topic_key(name))
        if there is not None and there["id"] != id:
            raise AlreadyThere(f"topic {name!r} exists already, with {there['partitions']} partitions")
        if there is not None:
            return Described.of(name, there)
        listed = yield from _listing("$Topics", name, Set(("names", name), id))
        outcome = yield from guard.attempt(
            Put(topic_key(name), item, (Absent(),)),
            Put(Key(f"$Settings-{id}", 0), {"settings": made, "changed": wall}, (Absent(),)),
            heads.new_head(id, partitions),
            listed,
            *also,
        )
        if isinstance(outcome, Refused) and outcome.index > 3:
            raise Conflict(
                f"topic {name!r} was not created: the queue or topic that it belongs to was deleted",
                index=outcome.index,
            )


def _listing(catalog: str, name: str, change: Set) -> Steps[Action]:
    """The write that puts a name on a listing, whose item may not exist yet."""
    key = bucket_key(catalog, name)
    if (yield from guard.read(key)) is None:
        return Put(key, {"names": {name: change.value}}, (Absent(),))
    return Update(key, (change,))


def find(name: str) -> Steps[Described | None]:
    """The topic of this name, if there is one: one read, however many topics there are."""
    item = yield from guard.read(topic_key(check_name("topic", name)))
    return None if item is None else Described.of(name, item)


def describe(name: str) -> Steps[Described]:
    """The topic of this name, or `UnknownTopic` with the nearest name, which takes a read of all names."""
    found = yield from find(name)
    if found is None:
        names = yield from listing("$Topics")
        near = nearest(name, names)
        hint = f"; did you mean {near!r}?" if near else ":" if names else ": this home has no topics yet;"
        raise UnknownTopic(f"there is no topic {name!r}{hint} `tailrace topic create {name}` makes it")
    return found


def listing(catalog: str) -> Steps[list[str]]:
    """All names that a listing has, such as `$Topics` or `$Queues`, in order."""
    return sorted((yield from ids(catalog)))


def ids(catalog: str) -> Steps[dict[str, str]]:
    """The names that a listing has, such as `$Topics` or `$Queues`, each with the id it stands for."""
    items = yield from guard.read_all(catalog)
    return {name: id for item in items for name, id in item["names"].items()}


def overview() -> Steps[list[tuple[str, Head]]]:
    """Every topic and its head, in order of their names: one read for each topic, and a few for the names."""
    out = []
    for name, id in sorted((yield from ids("$Topics")).items()):
        item = yield from guard.read(heads.head_key(id))
        if item is not None:  # else it was deleted just now
            out.append((name, Head(item)))
    return out


def change_settings(name: str, given: dict[str, Any], wall: int, id: str | None = None) -> Steps[Described]:
    """Change a topic's settings (of the topic with this id, if given); the former settings stay readable."""
    mark = secrets.token_hex(4)
    while True:
        item = yield from guard.read(topic_key(check_name("topic", name)))
        if item is None:
            return (yield from describe(name))
        if id is not None and item["id"] != id:
            raise UnknownTopic(f"topic {name!r} was deleted, and made again; open it again")
        now = Described.of(name, item)
        if item.get("mark") == mark:
            return now
        made = stored(settings(given, now.settings))
        same = (Equals("id", now.id), Equals("version", now.version))
        yield from guard.attempt(
            Update(topic_key(name), (Set("settings", made), Set("mark", mark), Add("version", 1)), same),
            Put(Key(f"$Settings-{now.id}", now.version + 1), {"settings": made, "changed": wall}, (Absent(),)),
        )


def grow(log: TopicLog, partitions: int) -> Steps[bool]:
    """GROW: give a topic more partitions, in one transaction with the catalog; False if it already has as many."""
    check_partitions(partitions)
    grew = False
    while True:
        head = yield from log.head()
        if head.partitions == partitions or (grew and any(len(one.at) == partitions for one in head.grown)):
            return grew
        if head.partitions > partitions:
            raise BadSetting(
                f"topic {log.name!r} has {head.partitions} partitions and cannot have fewer, {partitions}: records "
                "would lose their place; make another topic"
            )
        if len(head.grown) >= MAX_GROWTHS:
            raise BadSetting(
                f"topic {log.name!r} has grown {MAX_GROWTHS} times, and cannot again; make another topic, of "
                f"{MAX_PARTITIONS} partitions"
            )
        item = yield from guard.read(topic_key(log.name))
        if item is None or item["id"] != log.id:
            raise UnknownTopic(f"topic {log.name!r} was deleted; open it again")
        same = (Equals("id", log.id),)
        said = Update(topic_key(log.name), (Set("partitions", partitions),), same)
        grew = True
        yield from guard.attempt(*heads.grow(log.id, head, partitions), said)


def history(id: str) -> Steps[list[tuple[int, int, TopicSettings]]]:
    """Every set of settings a topic has had: (version, when in ms, settings), oldest first."""
    items = yield from guard.read_all(f"$Settings-{id}")
    return [(item["i"], item["changed"], from_stored(id, item["settings"])) for item in items]


def changed_at(topic: Described) -> Steps[int]:
    """The time at which a topic got its present settings, in milliseconds, by the clock of the process that set
    them."""
    item = yield from guard.read(Key(f"$Settings-{topic.id}", topic.version))
    return item["changed"] if item is not None else 0


def delete(name: str) -> Steps[str]:
    """Delete a topic; returns its id. From now on no process finds it; `purge` removes its records."""
    now = yield from describe(name)
    grave = secrets.randbits(62)
    while True:
        item = yield from guard.read(topic_key(name))
        if item is None or item["id"] != now.id:
            return now.id
        yield from guard.attempt(*removal(Described.of(name, item), grave))


def removal(topic: Described, grave: int, **held: Any) -> tuple[Action, ...]:
    """The writes that delete a topic; `held` is what `purge` must know about the topic besides its id."""
    return (
        Delete(topic_key(topic.name), (Equals("id", topic.id), Equals("partitions", topic.partitions))),
        Update(bucket_key("$Topics", topic.name), (Remove(("names", topic.name)),), (Exists(("names", topic.name)),)),
        Delete(heads.head_key(topic.id)),
        Put(Key("$Deleted", grave), {"id": topic.id, "name": topic.name, **held}, (Absent(),)),
    )


KINDS = (
    "Log", "Chunk", "Settings", "Upkeep", "Holds", "Quarantine", "Namespace",
    "Queue", "Delayed", "Dedup", "Replay", "Requeued",
)  # fmt: skip
"""Items of a topic, and of a queue on it: their hashes are $<kind>-<topic id>."""
SHARD_KINDS = ("Owners", "Failures")
"""Items of a queue's shards: their hashes are $<kind>-<topic id>-<shard>."""


def purge() -> Steps[int]:
    """Remove the records of deleted topics; returns how many topics it finished.  It can be interrupted anywhere and
    called again.

    A topic's first settings stay: they keep a `create` without an answer from landing later."""
    graves = yield from guard.read_all("$Deleted")
    for grave in graves:
        id = grave["id"]
        for kind in KINDS:
            yield from _delete_all(f"${kind}-{id}", 1 if kind == "Settings" else 0)
        for shard in range(grave.get("shards", 0)):
            for kind in SHARD_KINDS:
                yield from _delete_all(f"${kind}-{id}-{shard}", 0)
        names = [o.name for o in (yield from guard.persist(lambda id=id: calls.list_objects(f"topics/{id}/")))]  # type: ignore[misc]
        for start in range(0, len(names), 1000):
            yield from calls.delete_objects(names[start : start + 1000])
        yield from guard.attempt(Delete(Key("$Deleted", grave["i"])))
    return len(graves)


def _delete_all(p: str, low: int) -> Steps[None]:
    while items := (yield from guard.read_range(p, low, limit=100)).items:
        yield from guard.attempt(*(Delete(Key(p, item["i"])) for item in items))
