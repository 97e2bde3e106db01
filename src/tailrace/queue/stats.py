"""Stats: how many messages a queue has, shard by shard, and in which state.  They add up at any moment:

inserted = routed + delayed    routed = acked + dead + purged + backlog    backlog = waiting + running
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tailrace.coordination import guard
from tailrace.log.format.head import Head, by_number
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.groups.lag import lag
from tailrace.queue.delayed import clock_key
from tailrace.queue.shard import is_paused
from tailrace.queue.window import Window
from tailrace.storage.calls import Steps


@dataclass(frozen=True, slots=True)
class Stats:
    """The messages of a shard, or of a whole queue."""

    routed: int = 0
    """Messages put into a shard so far."""
    emitted: int = 0
    """Messages handed to consumers so far; one that is handed out again counts again."""
    acked: int = 0
    errored: int = 0
    """Attempts that failed."""
    dead: int = 0
    purged: int = 0
    running: int = 0
    """Messages that a consumer has, and that are not done."""
    failing: int = 0
    """Of these, messages that have failed and are tried again."""
    backlog: int = 0
    """Messages that are not done."""
    delayed: int = 0
    """Messages that wait for their time; of a whole queue only."""
    oldest_seconds: float = 0.0
    """Age of the oldest message that is not done."""
    paused: bool = False
    owner: str = ""
    """The consumer that has this shard."""
    shards: Mapping[int, Stats] = field(default_factory=dict)
    """The same for each shard."""

    @property
    def inserted(self) -> int:
        """Messages pushed so far: those in a shard, and those that are delayed."""
        return self.routed + self.delayed

    @property
    def consumers(self) -> dict[str, int]:
        """The consumers that own shards, and how many each."""
        owners = [one.owner for one in self.shards.values() if one.owner]
        return {name: owners.count(name) for name in sorted(set(owners))}

    @property
    def waiting(self) -> int:
        """Messages that no consumer has yet."""
        return self.backlog - self.running


_SUMS = ("routed", "emitted", "acked", "errored", "dead", "purged", "running", "failing", "backlog")


def stats(group: Group, wall: float) -> Steps[Stats]:
    """The stats of a queue.  The shards are read before the log's end, so that nothing is done that was not pushed."""
    made = yield from guard.read(group.key)
    units = yield from groups.all_shards(group)
    members = yield from groups.members(group)
    head, waiting = yield from _routed_and_delayed(group)
    start = by_number(made["start"]) if made is not None else {}
    behind = yield from lag(group.log, {q: item["position"] for q, item in units.items()}, wall)
    each = {}
    for q, item in units.items():
        w = Window.of(item["position"], item.get("queue"))
        owner = members.get(item["owner"])
        held = item["owner"] != 0
        each[q] = Stats(
            routed=head.next[q] - start.get(q, 0),
            emitted=w.emitted,
            acked=w.acked,
            errored=w.errored,
            dead=w.dead,
            purged=w.purged,
            running=w.open if held else 0,
            failing=sum(1 for n in w.attempts if n < w.upto) if held else len(w.attempts),
            backlog=head.next[q] - w.position - w.done_ahead,
            oldest_seconds=behind.partitions[q].seconds,
            paused=is_paused(units, q),
            owner=str(owner["name"]) if owner is not None else "",
        )
    total = {name: sum(getattr(one, name) for one in each.values()) for name in _SUMS}
    return Stats(
        **total,
        delayed=waiting,
        oldest_seconds=max((one.oldest_seconds for one in each.values()), default=0.0),
        paused=any(one.paused for one in each.values()),
        shards=each,
    )


def _routed_and_delayed(group: Group) -> Steps[tuple[Head, int]]:
    """The log's head, and how many messages are delayed, with no move of delayed messages between the two: one that is
    moved meanwhile would be in neither number."""
    clock = yield from guard.read(clock_key(group.log.id))
    while True:
        head = yield from group.log.head()
        if clock is None:  # what was delayed since then was not there when this began
            return head, 0
        before, clock = clock, (yield from guard.read(clock_key(group.log.id)))
        if clock is None or clock["moved"] == before["moved"]:
            return head, before["pushed"] - before["moved"]


def as_json(one: Stats) -> dict[str, object]:
    """Stats as plain values, for programs."""
    out: dict[str, object] = {f.name: getattr(one, f.name) for f in fields(one) if f.name != "shards"}
    return {"inserted": one.inserted, **out, "waiting": one.waiting}
