"""Pruning: removing a stream's oldest events.  Whole calves only, ascending, then the Tip's leading events.

The floor is raised first, so a reader that misses a calf can tell that it was pruned; then the calves below it go.  If
this is cut off, the next prune finishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Written
from tailrace.events.reading import read_tip
from tailrace.events.tip import TIP, Tip, check_batch, tip_key, trim
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Delete, Item, Key, Less, Set, Update


class Pruned(NamedTuple):
    """What a prune did: events deleted; events it left because their calf has later ones; the lowest index left."""

    deleted: int
    deferred: int
    lowest: int


def prune(stream: str, until: int, new_id: Callable[[], str]) -> Steps[Pruned]:
    """Remove the events up to an index, that one included."""
    deleted, low, deferred = 0, 0, 0
    while low <= until and not deferred:
        items, more = yield from guard.read_range(stream, low, min(until, TIP - 1))
        whole = [item for item in items if check_batch(stream, item, item["i"]) <= item["n"] - 1 <= until]
        deferred = sum(until + 1 - item["i"] for item in items if item["n"] - 1 > until)
        if whole:
            yield from _raise_floor(stream, whole[-1]["n"])
        for item in whole:
            deleted += yield from _delete(stream, item)
        if more is None:
            break
        low = more + 1
    trimmed, tip = (0, (yield from read_tip(stream))) if deferred else (yield from _trim(stream, until, new_id()))
    return Pruned(deleted + trimmed, deferred, tip.floor)


def _raise_floor(stream: str, floor: int) -> Steps[None]:
    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None or item.get("floor", 0) >= floor:
            return None
        known = Less("floor", floor) if "floor" in item else Absent("floor")
        return (Update(tip_key(stream), (Set("floor", floor), Set("a", 0)), (known,)),)

    yield from guard.settle(tip_key(stream), plan)


def _delete(stream: str, item: Item) -> Steps[int]:
    """Delete a calf; gives its events, or 0 if another did before."""
    sent, attempts = False, 0
    while True:
        outcome = yield from guard.attempt(Delete(Key(stream, item["i"])))
        if isinstance(outcome, Written) or (sent and isinstance(outcome, Refused)):
            return len(item["e"])
        if isinstance(outcome, Refused):
            return 0
        sent = True
        yield from calls.pause(attempts)
        attempts += 1


def _trim(stream: str, until: int, etag: str) -> Steps[tuple[int, Tip]]:
    """Take the Tip's leading events away, under its etag; gives how many, and the Tip."""
    tip, attempts = (yield from read_tip(stream)), 0
    while tip.e and tip.first <= until:
        last, first = min(until, tip.n - 1), tip.first
        outcome = yield from guard.attempt(*trim(tip, last, etag))
        told = outcome.item if isinstance(outcome, Refused) else (yield from guard.read(tip_key(stream)))
        tip = Tip.of(stream, told)
        if isinstance(outcome, Written) or tip.etag == etag:
            return last + 1 - first, tip
        yield from calls.pause(attempts)
        attempts += 1
    return 0, tip
