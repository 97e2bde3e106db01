"""Quarantine: damaged offsets that an operator has decided to do without.  Readers pass over exactly these, and say so.

    $Quarantine-<topic id>, partition·first    partition, first, end, where, why, who, at (milliseconds since 1970)

It changes no records and no offsets.  Only a reader that has found damage reads it, so it costs nothing otherwise;
lifting it brings the error back, or the records, if they were restored.  See docs/decisions/050-quarantine.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tailrace.coordination import guard
from tailrace.errors import Lost
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Delete, Equals, Item, Key, Put

FIRST_BITS = 55
"""Bits of the first offset in the range key; those above are the partition."""


class PassedOffsets(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Offsets of a partition that readers pass over, with the user who decided so, when and why."""

    partition: int
    first: int
    end: int
    where: str
    why: str
    who: str
    at: int

    @property
    def lost(self) -> Lost:
        """The offsets, as damage names them."""
        return Lost(self.partition, self.first, self.end)


def _hash(log: TopicLog) -> str:
    return f"$Quarantine-{log.id}"


def _key(log: TopicLog, lost: Lost) -> Key:
    return Key(_hash(log), lost.partition << FIRST_BITS | lost.first)


def passes(log: TopicLog) -> Steps[list[PassedOffsets]]:
    """All quarantined offsets of a topic, which readers pass over."""
    items = yield from guard.read_all(_hash(log))
    return [msgspec.convert({k: v for k, v in item.items() if k not in ("p", "i")}, PassedOffsets) for item in items]


def covering(log: TopicLog, lost: Iterable[Lost]) -> Steps[list[PassedOffsets] | None]:
    """The decisions that cover these offsets, one for each; None unless all offsets are covered."""
    decided = yield from passes(log)
    found = []
    for q, first, end in lost:
        one = next((p for p in decided if p.partition == q and p.first <= first and end <= p.end), None)
        if one is None:
            return None
        found.append(one)
    return found


def quarantine(log: TopicLog, lost: Sequence[Lost], where: str, why: str, who: str, wall: int) -> Steps[int]:
    """Let readers pass over these offsets; returns how many of the decisions are new."""
    new = 0
    for one in lost:
        item = {"partition": one.partition, "first": one.first, "end": one.end, "where": where, "why": why}
        item |= {"who": who, "at": wall}
        before = yield from guard.read(_key(log, one))
        if before is None or before["end"] < one.end:
            yield from guard.settle(_key(log, one), _wider(_key(log, one), item))
            new += 1
    return new


def _wider(key: Key, item: Item) -> Callable[[Item | None], tuple[Action, ...] | None]:
    def plan(stored: Item | None) -> tuple[Action, ...] | None:
        if stored is None:
            return (Put(key, item, (Absent(),)),)
        return None if stored["end"] >= item["end"] else (Put(key, item, (Equals("end", stored["end"]),)),)

    return plan


def lift(log: TopicLog, partition: int | None = None) -> Steps[list[PassedOffsets]]:
    """Lift quarantines, all of them or those of one partition; returns them."""
    gone = []
    for one in (yield from passes(log)):
        if partition in (None, one.partition):
            key = _key(log, one.lost)
            yield from guard.settle(key, lambda item, key=key: (Delete(key),) if item is not None else None)  # type: ignore[misc]
            gone.append(one)
    return gone
