"""Lag: how far a reader is behind, and the state of a consumer group for people to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.errors import Damaged
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.read.reader import Reader
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item

MAX_PASSED = 10
"""Damaged chunks that a look passes in search of a readable record."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a reader is behind: records not read yet, and the age in seconds of the oldest that can be read; both 0
    when caught up."""

    records: int
    seconds: float
    partitions: Mapping[int, Lag] = field(default_factory=dict)
    """The lag of each partition."""


def lag(log: TopicLog, positions: Mapping[int, int], wall: float) -> Steps[Lag]:
    """How far these positions are behind the topic's end, at this time in seconds since 1970."""
    head = yield from log.head()
    parts = {}
    for q, position in positions.items():
        position = max(position, head.floor[q])
        records, seconds = max(0, head.next[q] - position), 0.0
        if records:
            stamp = yield from _oldest_stamp(log, q, position)
            seconds = 0.0 if stamp is None else max(0.0, wall - stamp)
        parts[q] = Lag(records, seconds)
    most = max((part.seconds for part in parts.values()), default=0.0)
    return Lag(sum(part.records for part in parts.values()), most, parts)


def _oldest_stamp(log: TopicLog, q: int, position: int) -> Steps[float | None]:
    """The time of the first record from a position on, in seconds since 1970; None if there is none.

    Passes damaged chunks: whoever looks must see how far all others are, too, and readers report the damage."""
    for _ in range(MAX_PASSED):
        try:
            fetched = yield from Reader(log, {q: position}, from_floor=True).poll(1)
        except Damaged as error:
            ends = [one.end for one in error.lost if one.partition == q and one.end > position]
            if not ends:
                return None
            position = max(ends)
            continue
        return next((one.data.column(0)[0].value / 1000 for one in fetched), None)
    return None


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member's state; `expires` (milliseconds since 1970) is when a member that stays silent counts as gone."""

    number: int
    name: str
    host: str
    pid: int
    expires: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """How far a group has come in a partition, and the number of the member that reads it (0: no member does)."""

    partition: int
    owner: int
    epoch: int
    position: int
    end: int
    lag: Lag


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's state: its members and partitions."""

    group: str
    topic: str
    members: tuple[MemberState, ...]
    partitions: tuple[PartitionState, ...]
    lag: Lag


def describe(group: Group, wall: float) -> Steps[GroupState]:
    """A group's members, and the owner, position and lag of each partition."""
    yield from groups.check_there(group)
    held = yield from groups.all_shards(group)
    there = yield from groups.members(group)
    behind = yield from lag(group.log, {q: item["position"] for q, item in held.items()}, wall)
    ends = group.log.newest.next
    return GroupState(
        group.name,
        group.log.name,
        tuple(_member_state(n, item, held) for n, item in there.items()),
        tuple(
            PartitionState(q, item["owner"], item["epoch"], item["position"], ends[q], behind.partitions[q])
            for q, item in held.items()
        ),
        behind,
    )


def _member_state(number: int, item: Item, held: Mapping[int, Item]) -> MemberState:
    show: Mapping[str, Any] = item["shown"]
    mine = tuple(q for q, shard in held.items() if shard["owner"] == number)
    return MemberState(number, item["name"], show["host"], show["pid"], show["expires"], mine)
