"""Stored positions: a group's positions, stored without a member, for readers that come and go, such as HTTP clients.

    STORE   position = p, owner = none, epoch + 1 if it had an owner    if owner and epoch are as seen

A partition that a living member owns is refused: its commits would be undone.  A position only goes forward here;
`reset` moves it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tailrace.coordination import guard
from tailrace.coordination.lease import NOBODY, TTL_SECONDS
from tailrace.errors import BadInput, Conflict, OutOfRange, UnknownGroup, UnknownPartition
from tailrace.log.groups.group import Group, active, all_shards, check_there, make, refuse_queue, shards
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Add, Change, Equals, Item, Set, Update


def positions(group: Group) -> Steps[dict[int, int]]:
    """The next offset of each partition; `UnknownGroup` if there is no such group."""
    yield from check_there(group)
    held = yield from all_shards(group)
    return {q: int(item["position"]) for q, item in held.items()}


def store(group: Group, wanted: Mapping[int, int], *, ttl: float = TTL_SECONDS) -> Steps[dict[int, int]]:
    """Store the positions of some partitions; returns those of all.  Repeating a call changes nothing."""
    yield from refuse_queue(group, "its positions cannot be stored")
    yield from check_there(group)
    yield from make(group, "earliest")
    head = yield from group.log.head()
    for q, at in wanted.items():
        if q not in head.next:
            raise UnknownPartition(f"topic {group.log.name!r} has no partition {q}; it has 0 to {head.partitions - 1}")
        if not 0 <= at <= head.next[q]:
            raise OutOfRange(
                f"offset {at} of partition {q} of {group.log.name!r} is beyond its end, {head.next[q]}",
                floor=head.floor[q],
                end=head.next[q],
            )
    there = yield from shards(group)
    if any(there[q]["owner"] != NOBODY for q in wanted) and (names := (yield from active(group, ttl))):
        raise Conflict(f"{group.title} has members that store its positions themselves: {', '.join(names)}")
    for q, at in wanted.items():
        yield from guard.settle(group.shard(q), _plan(group, q, at))
    return (yield from positions(group))


def _plan(group: Group, q: int, at: int) -> Callable[[Item | None], tuple[Action, ...] | None]:
    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            raise UnknownGroup(f"{group.title} was deleted meanwhile")
        owned = item["owner"] != NOBODY
        if item["position"] == at and not owned:
            return None
        if item["position"] > at:
            raise BadInput(
                f"{group.title} is at offset {item['position']} of partition {q} already; a reset moves it back to {at}"
            )
        changes: tuple[Change, ...] = (Set("position", at),)
        if owned:
            changes = (*changes, Set("owner", NOBODY), Add("epoch", 1))
        when = (Equals("owner", item["owner"]), Equals("epoch", item["epoch"]), Equals("position", item["position"]))
        return (Update(group.shard(q), changes, when),)

    return plan
