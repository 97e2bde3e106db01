"""Consumer groups and how far each has read.

    $Group-<group>_<topic id>, partition     SHARD: owner, epoch, position, made
    $Group-<group>_<topic id>, 2^63-1        made, start{partition: offset}: the group exists, and began here
    $Member-<group>, number                  beat, topic, name, shown{}: a process life that reads for the group
    $Name-<group>_<topic id>, hash           owner, epoch, name: the member that goes by a name given to it
    $Groups, bucket                          names{"<group>/<topic>": topic id}: for listing

A group is made by its first member, in one transaction with its place on the listing; its shards follow from `start`,
so each member that finds one missing makes the same; a shard that was made for a deleted group is made again, under a
higher epoch. SHARDs are written by their owners (see member.py) and by `reset`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tailrace.coordination import guard
from tailrace.coordination.lease import NOBODY, TTL_SECONDS, Beats
from tailrace.errors import BadInput, BadSetting, Conflict, UnknownGroup
from tailrace.log import catalog
from tailrace.log.catalog import MAX_PARTITIONS, bucket_key, ids, listing
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head
from tailrace.log.record import milliseconds
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
    Item,
    Key,
    Put,
    Remove,
    Set,
    Update,
)

if TYPE_CHECKING:
    from tailrace.log.topic import Position

MAX_SHARDS_PER_WRITE = 90
"""Shards made or removed in one write."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of one topic."""

    name: str
    log: TopicLog
    least: int = 0
    """The least number of partitions that the topic has."""

    @property
    def partitions(self) -> int:
        """How many partitions the topic is known to have."""
        return max(self.least, self.log.partitions)

    @property
    def hash_key(self) -> str:
        """The hash key of its items."""
        return f"$Group-{self.name}_{self.log.id}"

    @property
    def key(self) -> Key:
        """The key of the item that says the group exists."""
        return Key(self.hash_key, LAST)

    @property
    def entry(self) -> str:
        """The group's name on the listing."""
        return f"{self.name}/{self.log.name}"

    @property
    def title(self) -> str:
        """The group, as errors name it."""
        return f"group {self.name!r} of {self.log.name!r}"

    @property
    def kept_with_member(self) -> Mapping[str, Any]:
        """The topic, which each member's item names: the members of all of a group's topics are listed together."""
        return {"topic": self.log.id}

    def shard(self, partition: int) -> Key:
        """The key of the item with a partition's owner and position."""
        return Key(self.hash_key, partition)

    unit = shard

    def member(self, number: int) -> Key:
        """The key of the item with a member's beat."""
        return Key(f"$Member-{self.name}", number)

    def named(self, name: str) -> Key:
        """The key of the item that says which member has a name."""
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2
        return Key(f"$Name-{self.name}_{self.log.id}", number)

    def units(self) -> Steps[Mapping[int, Item]]:
        """Every partition's shard; creates those of partitions that the topic has got meanwhile."""
        if self.log.seen is None:
            yield from self.log.head()
        there = yield from shards(self)
        if len(there) < self.partitions:
            yield from check_there(self)
            yield from make(self, "earliest")
            there = yield from shards(self)
        return there

    def members(self) -> Steps[Mapping[int, Item]]:
        """Every member that reads this topic."""
        return (yield from members(self))


# --- making and reading -----------------------------------------------------------------------------------------------
def offsets(log: TopicLog, partitions: Iterable[int], position: Position) -> Steps[dict[int, int]]:
    """The offsets that a position of a group (earliest, latest, a time) stands for at this moment, in these
    partitions."""
    head = yield from log.head()
    if position == "earliest":
        return {q: head.floor[q] for q in partitions}
    if position == "latest":
        return {q: head.next[q] for q in partitions}
    if isinstance(position, datetime):
        from tailrace.log.read.seek import offset_at  # it needs Arrow, which commands on groups and topics need not

        found = {}
        for q in partitions:
            found[q] = yield from offset_at(log, q, milliseconds(position))
        return found
    if isinstance(position, int) and not isinstance(position, bool) and position >= 0:
        return dict.fromkeys(partitions, position)
    raise BadInput(f"a position is 'earliest', 'latest', an offset from 0 or a datetime, not {position!r}")


def make(group: Group, start: Position) -> Steps[None]:
    """Make a group that begins at a position, with all its shards, unless it exists."""
    made = secrets.token_hex(8)
    while (item := (yield from guard.read(group.key))) is None:
        there = (yield from group.log.head()).partitions
        begin = yield from offsets(group.log, range(there), start)
        yield from guard.attempt(
            Put(group.key, {"made": made, "start": heads.by_text(begin)}, (Absent(),)),
            Check(heads.head_key(group.log.id)),
            (yield from _listed(group)),
        )
    while missing := _missing(group, item, (yield from shards(group))):
        yield from guard.attempt(*missing[:MAX_SHARDS_PER_WRITE])


def _missing(group: Group, item: Item, there: Mapping[int, Item]) -> list[Action]:
    """The writes that make the shards a group lacks; a deleted group of the same name may have left some.

    A partition that the topic got after the group was made is read from its beginning."""
    out: list[Action] = []
    start = heads.by_number(item["start"])
    for q, position in ((q, start[q]) for q in range(max(len(start), group.partitions))):
        old = there.get(q)
        if old is None or old["made"] != item["made"]:
            epoch = old["epoch"] + 1 if old else 0
            fresh = {"owner": NOBODY, "epoch": epoch, "position": position, "made": item["made"]}
            out.append(Put(group.shard(q), fresh, (Equals("epoch", old["epoch"]),) if old else (Absent(),)))
    return out


def _listed(group: Group) -> Steps[Action]:
    key = bucket_key("$Groups", group.entry)
    if (yield from guard.read(key)) is None:
        return Put(key, {"names": {group.entry: group.log.id}}, (Absent(),))
    return Update(key, (Set(("names", group.entry), group.log.id),))


def shards(group: Group) -> Steps[dict[int, Item]]:
    """Every shard's item of a group (owner, epoch, position), by partition."""
    items = yield from guard.read_all(group.hash_key, 0, MAX_PARTITIONS - 1)
    return {item["i"]: item for item in items}


def all_shards(group: Group) -> Steps[dict[int, Item]]:
    """The shard of a group for every partition; one that is not stored yet is given as the next member will create
    it."""
    head, item = (yield from group.log.head()), (yield from guard.read(group.key))
    start = heads.by_number(item["start"] if item is not None else {})
    there = yield from shards(group)
    fresh = {q: {"owner": NOBODY, "epoch": 0, "position": start[q]} for q in range(head.partitions)}
    return {q: there.get(q, fresh[q]) for q in fresh}


def passed(head: Head, positions: Mapping[int, int]) -> int:
    """How many of a topic's growths a group has passed.  It passes one when it has committed every partition up to the
    offset at which the topic grew."""
    for n, growth in enumerate(head.grown):
        if any(positions.get(q, 0) < at for q, at in growth.at.items()):
            return n
    return len(head.grown)


def members(group: Group) -> Steps[dict[int, Item]]:
    """Every member's item, by number, without the members that read other topics for the group."""
    items = yield from guard.read_all(group.member(0).p)
    return {item["i"]: item for item in items if item["topic"] == group.log.id}


def check_there(group: Group) -> Steps[None]:
    """Raise `UnknownGroup`, with the nearest name, unless the group exists; `UnknownTopic` if its topic was deleted."""
    if (yield from guard.read(group.key)) is not None:
        return
    yield from group.log.head()  # a topic is gone before its groups are
    names = [entry.split("/")[0] for entry in (yield from listing("$Groups")) if entry.endswith(f"/{group.log.name}")]
    hint = BadSetting.unknown("it", group.name, names) if names else "it has none yet; the first consumer makes one"
    raise UnknownGroup(f"topic {group.log.name!r} has no group {group.name!r}: {hint}")


QUEUE = "queue"
"""The name of the group of a queue's consumers.  On a queue's topic no other consumer or command may read for this
group, reset it or delete it."""


def refuse_queue(group: Group, what: str) -> Steps[None]:
    """Refuse a change to a group that belongs to a queue: it would break the queue's windows."""
    if group.name == QUEUE and (yield from guard.read(Key(f"$Queue-{group.log.id}"))) is not None:
        name = group.log.name
        raise BadInput(
            f"{what}: {group.title} belongs to the queue {name!r}, which keeps there what is handled; "
            f"`tailrace queue replay {name}` delivers messages again, `tailrace queue purge {name}` drops them"
        )


def refuse_topic_of_queue(name: str) -> Steps[None]:
    """Refuse to delete a topic that holds a queue: the queue's own items would stay behind."""
    described = yield from catalog.find(name)
    if described is not None and (yield from guard.read(Key(f"$Queue-{described.id}"))) is not None:
        raise BadInput(
            f"topic {name!r} holds the messages of a queue; `tailrace queue delete {name}` deletes both, "
            f"and so does home.queue({name!r}).delete(sure=True)"
        )


def groups() -> Steps[list[tuple[str, str, str]]]:
    """Every group of every topic: (group, topic, topic id), in order."""
    topics = yield from ids("$Topics")
    listed = yield from ids("$Groups")
    parts = [(*entry.split("/"), id) for entry, id in sorted(listed.items())]
    return [(group, topic, id) for group, topic, id in parts if topics.get(topic) == id]


def groups_of(topic_id: str) -> Steps[list[str]]:
    """The names of one topic's groups, in order."""
    listed = yield from ids("$Groups")
    return sorted(entry.split("/")[0] for entry, id in listed.items() if id == topic_id)


# --- what operators do ------------------------------------------------------------------------------------------------
def active(group: Group, ttl: float = TTL_SECONDS) -> Steps[list[str]]:
    """The names of a group's members that are alive.  Waits up to `ttl` for their beats to move, since the clocks of
    other hosts cannot be trusted."""
    beats, first = Beats(ttl), None
    while True:
        before = yield from calls.now()
        found = yield from members(group)
        after = yield from calls.now()
        beats.look({n: item["beat"] for n, item in found.items()}, before, after)
        seen = {n: item["beat"] for n, item in found.items()}
        first = first or seen
        if moved := [n for n, beat in seen.items() if first.get(n) != beat]:
            return [found[n]["name"] for n in moved]
        if beats.silent >= seen.keys():
            return []
        yield from calls.pause(5)


def refuse_active(group: Group, ttl: float) -> Steps[None]:
    """Raises `Conflict` while a member of the group lives."""
    if names := (yield from active(group, ttl)):
        raise Conflict(f"group {group.name!r} has active members: {', '.join(names)}; stop them, or force it")


def reset(group: Group, position: Position, *, force: bool = False, ttl: float = TTL_SECONDS) -> Steps[dict[int, int]]:
    """Move a whole group, back or forward; returns its new positions.  Epochs rise: with `force`, a member that reads
    for the group is fenced, and starts again from the new positions."""
    yield from check_there(group)
    yield from refuse_queue(group, "cannot be reset")
    if not force:
        yield from refuse_active(group, ttl)
    yield from make(group, "earliest")
    to = yield from offsets(group.log, (yield from shards(group)), position)
    mark = secrets.token_hex(8)
    try:
        for q, offset in to.items():
            yield from guard.settle(group.shard(q), _reset(group, q, offset, mark))
    except UnknownGroup:
        yield from group.log.head()
        raise
    return to


def _reset(group: Group, partition: int, offset: int, mark: str) -> Callable[[Item | None], tuple[Action, ...] | None]:
    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            raise UnknownGroup(f"group {group.name!r} of {group.log.name!r} was deleted meanwhile")
        if item.get("reset") == mark:
            return None
        changes = (Set("owner", NOBODY), Add("epoch", 1), Set("position", offset), Set("reset", mark))
        return (Update(group.shard(partition), changes, (Equals("epoch", item["epoch"]),)),)

    return plan


def delete(group: Group, *, force: bool = False, ttl: float = TTL_SECONDS) -> Steps[None]:
    """Remove a group and its positions; it is gone at once.  The call can be interrupted anywhere and repeated."""
    yield from refuse_queue(group, "cannot be deleted")
    if not (yield from shards(group)):
        yield from check_there(group)
    if not force:
        yield from refuse_active(group, ttl)
    yield from _clear(group)


def _clear(group: Group) -> Steps[None]:
    item = yield from guard.read(group.key)
    while item is not None and (yield from guard.read(group.key)) == item:
        bucket, name = bucket_key("$Groups", group.entry), ("names", group.entry)
        names = ((yield from guard.read(bucket)) or {"names": {}})["names"]
        unlist = [Update(bucket, (Remove(name),), (Equals(name, group.log.id),))]
        yield from guard.attempt(
            Delete(group.key, (Equals("made", item["made"]),)),
            *(unlist if names.get(group.entry) == group.log.id else []),
        )
    for number in (yield from members(group)):
        yield from guard.attempt(Delete(group.member(number)))
    yield from _remove(group.named("").p)
    yield from _remove(group.hash_key, item["made"] if item else None)


def _remove(p: str, made: str | None = None) -> Steps[None]:
    """Remove the items under one hash key, except those of a group that was made again under the same name."""
    while True:
        items = yield from guard.read_all(p, 0, LAST - 1)
        doomed = [item for item in items if made in (None, item.get("made"))][:MAX_SHARDS_PER_WRITE]
        if not doomed:
            return
        yield from guard.attempt(*(Delete(Key(p, item["i"]), (Equals("epoch", item["epoch"]),)) for item in doomed))


def forget(topic_id: str) -> Steps[int]:
    """Remove the groups of a deleted topic; returns how many there were."""
    listed = yield from ids("$Groups")
    gone = [entry.split("/") for entry, id in listed.items() if id == topic_id]
    for name, topic in gone:
        yield from _clear(Group(name, TopicLog(topic, topic_id), 0))
    return len(gone)


def purge() -> Steps[int]:
    """Remove the groups of deleted topics, and the topics' records; returns how many topics were finished.

    If the process is killed half-way, the next deletion, or upkeep, does the rest."""
    for grave in (yield from guard.read_all("$Deleted")):
        yield from forget(grave["id"])
        if "shards" in grave:  # a queue's group: known even if its place on the listing is gone already
            yield from _clear(Group(QUEUE, TopicLog(grave["name"], grave["id"])))
    return (yield from catalog.purge())
