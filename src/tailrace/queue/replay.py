"""Replays: a range of a queue's messages is delivered again, beside the live ones.

    $Replay-<topic id>, number * 128 + shard    shard, first, position, until, queue{}: see shard.py

The shard's owner delivers the range, in the same lanes as the live messages.  The shard's own position does not move.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered
from tailrace.log.catalog import MAX_PARTITIONS
from tailrace.queue.settings import deleted, queue_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Check, Delete, Item, Key, Put


class Replay(NamedTuple):
    """A replay: its number, its messages, and how many of them are left."""

    number: int
    messages: int
    left: int


def items(topic_id: str) -> Steps[dict[Key, Item]]:
    """Return the items of every replay of a queue."""
    p = f"$Replay-{topic_id}"
    return {Key(p, item["i"]): item for item in (yield from guard.read_all(p))}


def start(topic_id: str, ranges: Mapping[int, tuple[int, int]], number: int | None = None) -> Steps[int]:
    """Store a replay of each shard's range, from one offset up to before another; returns the replay's number.
    `UnknownQueue` if the queue was deleted."""
    number = secrets.randbits(40) if number is None else number
    p = f"$Replay-{topic_id}"
    puts = [
        Put(Key(p, number * MAX_PARTITIONS + q), {"shard": q, "first": a, "position": a, "until": b}, (Absent(),))
        for q, (a, b) in ranges.items()
        if a < b
    ]
    for n in range(0, len(puts), 90):
        there = Check(queue_key(topic_id))
        while isinstance(outcome := (yield from guard.attempt(there, *puts[n : n + 90])), Unanswered):
            pass  # if this attempt has landed, the next one is refused
        if isinstance(outcome, Refused) and outcome.index == 0:
            raise deleted()
    return number


def states(found: Mapping[Key, Item]) -> list[Replay]:
    """Sum up the items of each replay over its shards."""
    out: dict[int, Replay] = {}
    for key, item in found.items():
        number, done = key.i // MAX_PARTITIONS, int.from_bytes(item.get("queue", {}).get("bits", b""), "little")
        before = out.get(number, Replay(number, 0, 0))
        left = item["until"] - item["position"] - done.bit_count()
        out[number] = Replay(number, before.messages + item["until"] - item["first"], before.left + left)
    return [out[number] for number in sorted(out)]


def remove(topic_id: str, number: int | None = None, *, only_done: bool = False) -> Steps[int]:
    """Remove the items of replays: of all, of one `number`, or only finished ones; returns how many items."""
    doomed = [
        key
        for key, item in (yield from items(topic_id)).items()
        if number in (None, key.i // MAX_PARTITIONS) and (not only_done or item["position"] >= item["until"])
    ]
    for key in doomed:
        yield from guard.attempt(Delete(key))
    return len(doomed)
