"""Retention holds: the holders that still need records of a topic, and so keep upkeep from removing them.

    $Holds-<topic id>, 0    by[p, …]: the hash keys of the holders' items
    p, partition            low: this holder no longer needs anything up to this offset

A holder without an item for a partition has acknowledged nothing there, and holds everything.  A pipeline's writers
hold its commit log by their offsets, a queue's shards its messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.coordination import guard
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Key


def holds_key(topic_id: str) -> Key:
    """The key of the list of a topic's holders."""
    return Key(f"$Holds-{topic_id}")


def hold(topic_id: str, by: Iterable[str]) -> Steps[None]:
    """Replace the holders of a topic by these."""
    yield from guard.settle_value(holds_key(topic_id), "by", sorted(by))


def held(topic_id: str, partitions: Iterable[int]) -> Steps[dict[int, int] | None]:
    """The first offset of each partition that a holder still needs; None if the topic has no holders."""
    item = yield from guard.read(holds_key(topic_id))
    if item is None or not item["by"]:
        return None
    lowest: dict[int, int] = {}
    for p in item["by"]:
        found = {one["i"]: one.get("low", -1) + 1 for one in (yield from guard.read_all(p, 0, LAST - 1))}
        for q in partitions:
            lowest[q] = min(lowest.get(q, found.get(q, 0)), found.get(q, 0))
    return lowest
