"""Supervision of a queue: pause, play, purge, and how evenly shards are shared.  Each step can be cut off anywhere and
repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused
from tailrace.coordination.lease import NOBODY
from tailrace.coordination.rules import in_force
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.queue import diary
from tailrace.queue.settings import TTL, deleted
from tailrace.queue.window import Window
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Add, Condition, Equals, Item, Key, Set, Update


def set_paused(group: Group, paused: bool, patience: float = TTL) -> Steps[None]:
    """PAUSE: stop the emitting and handing out of messages in every consumer, or resume it.

    After a pause, returns once the owners of all shards have looked at the queue, or after `patience` seconds.  The
    number in each shard rises with every change, so a write that lands late changes nothing."""
    yield from groups.make(group, "earliest")
    for q in (yield from groups.shards(group)):
        yield from guard.settle(group.shard(q), _pausing(group, q, paused))
    if paused:
        owners = {item["owner"] for item in (yield from groups.shards(group)).values()} - {NOBODY}
        asked = yield from _ask(group, owners)
        yield from _heeded(group, owners, asked, patience)


def _ask(group: Group, owners: set[int]) -> Steps[dict[int, int]]:
    """Ask each owner to look at the queue now, before its next regular look; returns the number with which each will
    answer."""
    asked = {n: item.get("asked", 0) + 1 for n, item in (yield from groups.members(group)).items() if n in owners}
    for n in asked:
        yield from guard.attempt(Update(group.member(n), (Add("asked", 1),)))
    return asked


def _heeded(group: Group, owners: set[int], asked: Mapping[int, int], patience: float) -> Steps[None]:
    """Wait until each owner has looked, or owns no shard any more, but no longer than `patience`.  A consumer that does
    not answer hands out nothing after that time, because each look allows it to hand out for only that long."""
    began = yield from calls.now()
    while in_force("queue.heeded"):
        there = yield from groups.members(group)
        left = {item["owner"] for item in (yield from groups.shards(group)).values()} & owners
        if all(n in asked and n in there and there[n].get("heeded", 0) >= asked[n] for n in left):
            return
        if (yield from calls.now()) - began >= patience:
            return
        yield from calls.pause(3)


def _pausing(group: Group, q: int, paused: bool) -> Callable[[Item | None], tuple[Action, ...] | None]:
    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None or bool(item.get("paused", 0) % 2) == paused:
            return None
        seen = item.get("paused")
        when: tuple[Condition, ...] = (Absent("paused") if seen is None else Equals("paused", seen),)
        if not in_force("queue.pause_seen"):
            when = ()
        return (Update(group.shard(q), (Set("paused", (seen or 0) + 1),), when),)

    return plan


def shares(group: Group) -> Steps[tuple[dict[str, int], bool]]:
    """Return how many shards each consumer owns, and whether that is even: all shards are owned, and no two consumers
    differ by two."""
    owners = [item["owner"] for item in (yield from groups.all_shards(group)).values()]
    members = yield from groups.members(group)
    counts = {n: owners.count(n) for n in members}
    even = not members or (sum(counts.values()) == len(owners) and max(counts.values()) - min(counts.values()) <= 1)
    return {str(members[n]["name"]): count for n, count in sorted(counts.items())}, even


def purge(group: Group, now: int) -> Steps[int]:
    """Drop every message that is in a shard now and not done; returns how many.

    Each shard's epoch rises, so its owner is fenced; the next owner starts behind the dropped messages.  The diary's
    entry is part of the same write, and says whether a write without an answer has happened."""
    head = yield from group.log.head()
    id, dropped = secrets.token_hex(8), 0
    for q in (yield from groups.shards(group)):
        sent: tuple[Key, int] | None = None
        while True:
            item = yield from guard.truth(group.shard(q))
            if sent is not None and ((yield from guard.truth(sent[0])) or {}).get("id") == id:
                dropped, sent = dropped + sent[1], None
                continue  # the item may have been read before the write has landed
            if item is None or item["position"] >= head.next[q]:
                break
            w = Window.of(item["position"], item.get("queue"))
            left = head.next[q] - w.position - w.done_ahead
            noted, there = diary.purged(group.log.id, q, item["epoch"] + 1, now, w, id)
            sent = noted.key, left
            outcome = yield from guard.attempt(_dropping(group.shard(q), item, w, head.next[q], left), noted, there)
            if isinstance(outcome, Refused) and outcome.index == 2:
                raise deleted()
    return dropped


def _dropping(key: Key, item: Item, w: Window, end: int, left: int) -> Update:
    """The write that drops what the window of a shard's item leaves open before the offset `end`."""
    new = Window(end, upto=end, emitted=w.emitted, acked=w.acked, errored=w.errored)
    new.dead, new.purged, new.marks = w.dead, w.purged + left, w.marks
    v = item["queue"]["v"] if "queue" in item else 0
    same: tuple[Condition, ...] = (Equals("epoch", item["epoch"]), Equals("position", item["position"]))
    same += (Equals(("queue", "v"), v) if v else Absent("queue"),)
    changes = (
        Set("owner", NOBODY),
        Add("epoch", 1),
        Set("position", new.position),
        Set("low", new.position - 1),
        Set("queue", new.stored(v + 1)),
    )
    return Update(key, changes, same)
