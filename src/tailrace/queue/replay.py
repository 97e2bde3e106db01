"""Replays: a range of a queue's messages is delivered again, beside the live ones.

    $Replay-<topic id>, number * 128 + shard    shard, until, position, queue{}: see shard.py

The shard's owner delivers it, in the same lanes as the live messages.  The shard's own position does not move.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.guard import Unanswered
from tailrace.log.catalog import MAX_PARTITIONS
from tailrace.queue.settings import queue_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Check, Delete, Item, Key, Put


class Replay(NamedTuple):
    """A replay and how far it has come."""

    number: int
    messages: int
    left: int


def items(topic_id: str) -> Steps[dict[Key, Item]]:
    """Every replay's items."""
    p = f"$Replay-{topic_id}"
    return {Key(p, item["i"]): item for item in (yield from guard.read_all(p))}


def start(topic_id: str, ranges: Mapping[int, tuple[int, int]], number: int | None = None) -> Steps[int]:
    """Deliver these ranges of shards again, from one offset up to before another; gives the replay's number."""
    number = secrets.randbits(40) if number is None else number
    p = f"$Replay-{topic_id}"
    puts = [
        Put(Key(p, number * MAX_PARTITIONS + q), {"shard": q, "first": a, "position": a, "until": b}, (Absent(),))
        for q, (a, b) in ranges.items()
        if a < b
    ]
    for n in range(0, len(puts), 90):
        there = Check(queue_key(topic_id))
        while isinstance((yield from guard.attempt(there, *puts[n : n + 90])), Unanswered):
            pass  # a second attempt is refused where the first has landed
    return number


def states(found: Mapping[Key, Item]) -> list[Replay]:
    """Replays as people see them."""
    out: dict[int, Replay] = {}
    for key, item in found.items():
        number, done = key.i // MAX_PARTITIONS, int.from_bytes(item.get("queue", {}).get("bits", b""), "little")
        before = out.get(number, Replay(number, 0, 0))
        left = item["until"] - item["position"] - done.bit_count()
        out[number] = Replay(number, before.messages + item["until"] - item["first"], before.left + left)
    return [out[number] for number in sorted(out)]


def remove(topic_id: str, number: int | None = None, *, only_done: bool = False) -> Steps[int]:
    """Remove replays, one or all, or only those that are over; gives how many items that were."""
    doomed = [
        key
        for key, item in (yield from items(topic_id)).items()
        if number in (None, key.i // MAX_PARTITIONS) and (not only_done or item["position"] >= item["until"])
    ]
    for key in doomed:
        yield from guard.attempt(Delete(key))
    return len(doomed)
