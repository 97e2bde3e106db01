"""The catalog: which topics there are.

    $Topic-<name>, 2^63-1    id, partitions, settings{}, version, created: the topic of this name
    $Settings-<id>, version  settings{}, changed: every set of settings it has had
    $Topics, bucket          names{name: id}: for listing; a name's bucket is taken from its hash
    $Deleted, n              id, name: a topic whose pages, chunks and objects are still to be removed

A topic is made and deleted by one transaction over these and its head.  An id is never used again.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Any

import msgspec

from tailrace.coordination import guard
from tailrace.errors import AlreadyThere, BadName, BadSetting, UnknownTopic
from tailrace.log import head as heads
from tailrace.log.append import Log
from tailrace.log.head import Head
from tailrace.log.settings import Settings, settings
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import (
    LAST,
    Absent,
    Action,
    Add,
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
MOST_GROWN = 16
"""How often a topic can grow: each time is kept in its head, which every append writes."""
BUCKETS = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}\Z")


@dataclass(frozen=True, slots=True)
class Described:
    """A topic as the catalog knows it."""

    name: str
    id: str
    partitions: int
    settings: Settings
    version: int
    created: int

    @classmethod
    def of(cls, name: str, item: Item) -> Described:
        """A stored one."""
        stored = msgspec.convert(item["settings"], Settings)
        return cls(name, item["id"], item["partitions"], stored, item["version"], item["created"])


def check_name(what: str, name: str) -> str:
    """Refuse a name that cannot be a topic's, a group's or a producer's."""
    if not isinstance(name, str) or not _NAME.match(name):
        shown = repr(name) if len(str(name)) < 60 else f"{str(name)[:40]!r}… ({len(str(name))} characters)"
        raise BadName(f"{shown} cannot be a {what}'s name: 1 to 200 letters, digits, '-' and '_'")
    return name


def check_partitions(partitions: int) -> int:
    """Refuse a partition count that a topic cannot have."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
        raise BadSetting(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions!r}; more = more topics")
    return partitions


def topic_key(name: str) -> Key:
    """Where a topic's description is."""
    return Key(f"$Topic-{name}", LAST)


def bucket_key(catalog: str, name: str) -> Key:
    """Which item of a listing holds a name."""
    return Key(catalog, hashlib.sha256(name.encode()).digest()[0] % BUCKETS)


def create(name: str, partitions: int, given: dict[str, Any], wall: int) -> Steps[Described]:
    """Make a topic, or raise `AlreadyThere`."""
    check_name("topic", name)
    check_partitions(partitions)
    made = msgspec.to_builtins(settings(given))
    id = secrets.token_hex(8)
    item = {"id": id, "partitions": partitions, "settings": made, "version": 0, "created": wall}
    while True:
        stored = yield from guard.read(topic_key(name))
        if stored is not None and stored["id"] != id:
            raise AlreadyThere(f"topic {name!r} exists already, with {stored['partitions']} partitions")
        if stored is not None:
            return Described.of(name, stored)
        listed = yield from _listing("$Topics", name, Set(("names", name), id))
        yield from guard.attempt(
            Put(topic_key(name), item, (Absent(),)),
            Put(Key(f"$Settings-{id}", 0), {"settings": made, "changed": wall}, (Absent(),)),
            heads.new_head(id, partitions),
            listed,
        )


def _listing(catalog: str, name: str, change: Set) -> Steps[Action]:
    """The write that puts a name on a listing, whose item may not exist yet."""
    key = bucket_key(catalog, name)
    if (yield from guard.read(key)) is None:
        return Put(key, {"names": {name: change.value}}, (Absent(),))
    return Update(key, (change,))


def describe(name: str) -> Steps[Described]:
    """The topic of this name, or `UnknownTopic` with the nearest one."""
    item = yield from guard.read(topic_key(check_name("topic", name)))
    if item is None:
        names = yield from listing("$Topics")
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ":" if names else ": this home has no topics yet;"
        raise UnknownTopic(f"there is no topic {name!r}{hint} `tailrace topic create {name}` makes it")
    return Described.of(name, item)


def listing(catalog: str) -> Steps[list[str]]:
    """All names on a listing, in order."""
    return sorted((yield from ids(catalog)))


def ids(catalog: str) -> Steps[dict[str, str]]:
    """The names on a listing, and the ids they stand for."""
    items = yield from guard.read_all(catalog)
    return {name: id for item in items for name, id in item["names"].items()}


def overview() -> Steps[list[tuple[str, Head]]]:
    """Every topic and its head, in order of their names: one read for each, and a few for all."""
    out = []
    for name, id in sorted((yield from ids("$Topics")).items()):
        item = yield from guard.read(heads.head_key(id))
        if item is not None:  # else it was deleted just now
            out.append((name, Head(item)))
    return out


def change_settings(name: str, given: dict[str, Any], wall: int, id: str | None = None) -> Steps[Described]:
    """Give a topic (the one with this id, if one is given) other settings; the ones before stay readable."""
    mark = secrets.token_hex(4)
    while True:
        item = yield from guard.read(topic_key(check_name("topic", name)))
        if item is None:
            return (yield from describe(name))
        if id is not None and item["id"] != id:
            raise UnknownTopic(f"topic {name!r} was deleted, and made again; open it anew")
        now = Described.of(name, item)
        if item.get("mark") == mark:
            return now
        made = msgspec.to_builtins(settings(given, now.settings))
        same = (Equals("id", now.id), Equals("version", now.version))
        yield from guard.attempt(
            Update(topic_key(name), (Set("settings", made), Set("mark", mark), Add("version", 1)), same),
            Put(Key(f"$Settings-{now.id}", now.version + 1), {"settings": made, "changed": wall}, (Absent(),)),
        )


def grow(log: Log, partitions: int) -> Steps[bool]:
    """GROW: give a topic more partitions, in one transaction with what the catalog says; False if it has so many."""
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
        if len(head.grown) >= MOST_GROWN:
            raise BadSetting(
                f"topic {log.name!r} has grown {MOST_GROWN} times, and cannot again; make another topic, of "
                f"{MAX_PARTITIONS} partitions"
            )
        item = yield from guard.read(topic_key(log.name))
        if item is None or item["id"] != log.id:
            raise UnknownTopic(f"topic {log.name!r} was deleted; open it anew")
        same = (Equals("id", log.id),)
        said = Update(topic_key(log.name), (Set("partitions", partitions),), same)
        grew = True
        yield from guard.attempt(*heads.grow(log.id, head, partitions), said)


def history(id: str) -> Steps[list[tuple[int, int, Settings]]]:
    """Every set of settings a topic has had: (version, when in ms, settings), oldest first."""
    items = yield from guard.read_all(f"$Settings-{id}")
    return [(item["i"], item["changed"], msgspec.convert(item["settings"], Settings)) for item in items]


def delete(name: str) -> Steps[str]:
    """Delete a topic: it is gone at once for everyone; what it held is removed by `purge`.  Gives its id."""
    now = yield from describe(name)
    grave = Key("$Deleted", secrets.randbits(62))
    while True:
        item = yield from guard.read(topic_key(name))
        if item is None or item["id"] != now.id:
            return now.id
        yield from guard.attempt(
            Delete(topic_key(name), (Equals("id", now.id),)),
            Update(bucket_key("$Topics", name), (Remove(("names", name)),), (Exists(("names", name)),)),
            Delete(heads.head_key(now.id)),
            Put(grave, {"id": now.id, "name": name}, (Absent(),)),
        )


def purge() -> Steps[int]:
    """Remove what deleted topics held; can be cut off anywhere and called again.  Gives how many were finished.

    A topic's first settings stay: they keep a `create` without an answer from landing after this."""
    graves = yield from guard.read_all("$Deleted")
    for grave in graves:
        id = grave["id"]
        for kind in ("Log", "Chunk", "Settings", "Upkeep", "Holds", "Quarantine"):
            yield from _delete_all(f"${kind}-{id}", 1 if kind == "Settings" else 0)
        names = [o.name for o in (yield from guard.persist(lambda id=id: calls.list_objects(f"topics/{id}/")))]  # type: ignore[misc]
        for start in range(0, len(names), 1000):
            yield from calls.delete_objects(names[start : start + 1000])
        yield from guard.attempt(Delete(Key("$Deleted", grave["i"])))
    return len(graves)


def _delete_all(p: str, low: int) -> Steps[None]:
    while items := (yield from guard.read_range(p, low, limit=100)).items:
        yield from guard.attempt(*(Delete(Key(p, item["i"])) for item in items))
