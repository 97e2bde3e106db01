"""Stats: how many messages a queue has, shard by shard, in each state.  At any moment these sums hold:

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
    """Messages put into shards so far."""
    emitted: int = 0
    """Messages emitted by consumers so far; a message that is emitted again counts again."""
    acked: int = 0
    errored: int = 0
    """Attempts that failed."""
    dead: int = 0
    purged: int = 0
    running: int = 0
    """Messages that a consumer has emitted and that are not done."""
    failing: int = 0
    """Messages that are not done and of which an attempt has failed."""
    backlog: int = 0
    """Messages that are not done."""
    delayed: int = 0
    """Messages that are not due yet; 0 in the stats of a shard."""
    oldest_seconds: float = 0.0
    """Age of the oldest message that is not done."""
    paused: bool = False
    owner: str = ""
    """The consumer that owns this shard."""
    shards: Mapping[int, Stats] = field(default_factory=dict)
    """The stats of each shard; empty in those of a shard."""

    @property
    def inserted(self) -> int:
        """Messages pushed so far: those in shards, and the delayed ones."""
        return self.routed + self.delayed

    @property
    def consumers(self) -> dict[str, int]:
        """The consumers that own shards of the queue, and how many each owns."""
        owners = [one.owner for one in self.shards.values() if one.owner]
        return {name: owners.count(name) for name in sorted(set(owners))}

    @property
    def waiting(self) -> int:
        """Messages that no consumer has emitted yet."""
        return self.backlog - self.running


_SUMS = ("routed", "emitted", "acked", "errored", "dead", "purged", "running", "failing", "backlog")


def stats(group: Group, wall: float) -> Steps[Stats]:
    """Count a queue's messages.  Reads the shards before the log's end, so that no message counts as done that does not
    count as pushed."""
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
    """Read the log's head and the number of delayed messages, with no move of delayed messages between the two reads:
    neither number would count one that is moved in between."""
    clock = yield from guard.read(clock_key(group.log.id))
    while True:
        head = yield from group.log.head()
        if clock is None:  # a first message delayed since this began does not count
            return head, 0
        before, clock = clock, (yield from guard.read(clock_key(group.log.id)))
        if clock is None or clock["moved"] == before["moved"]:
            return head, before["pushed"] - before["moved"]


def as_json(one: Stats) -> dict[str, object]:
    """Return stats as plain values for JSON, without the shards."""
    out: dict[str, object] = {f.name: getattr(one, f.name) for f in fields(one) if f.name != "shards"}
    return {"inserted": one.inserted, **out, "waiting": one.waiting}
