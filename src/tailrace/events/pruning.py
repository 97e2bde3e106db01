"""Pruning: removes a stream's oldest events: whole calves only, in ascending order, then the first events of the Tip.

The floor is raised first, so a reader that misses a calf can tell that it was pruned; then the calves below it go.  If
a prune is interrupted, the next one finishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Written
from tailrace.events.reading import bridge, read_tip
from tailrace.events.tip import Tip, check_batch, tip_key, trim
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Delete, Item, Key, Less, Set, Update


class Pruned(NamedTuple):
    """The result of a prune: how many events it deleted; how many it left because their calf has later events, too; the
    lowest index left."""

    deleted: int
    deferred: int
    lowest: int


def prune(stream: str, until: int, new_id: Callable[[], str], *, calves_only: bool = False) -> Steps[Pruned]:
    """Remove the events up to an index, that one included."""
    tip = yield from read_tip(stream)
    deleted, etag, attempts = (yield from _finish(stream, tip.floor)), new_id(), 0
    while tip.floor <= until and tip.floor < tip.version:
        if tip.floor < tip.first:
            whole, deferred = yield from _calves(stream, tip, until)
            if not whole:
                return Pruned(deleted, deferred, tip.floor)
            yield from raise_floor(stream, whole[-1]["n"])
            for item in whole:
                deleted += yield from _delete(stream, item)
            tip = yield from read_tip(stream)
        elif calves_only:
            return Pruned(deleted, min(until + 1, tip.version) - tip.floor, tip.floor)
        else:
            trimmed, tip = yield from _trim(tip, min(until, tip.version - 1), etag)
            deleted += trimmed
            if not trimmed:  # the Tip has changed
                yield from calls.pause(attempts)
                attempts += 1
    return Pruned(deleted, 0, tip.floor)


def _finish(stream: str, floor: int) -> Steps[int]:
    """Delete what an interrupted prune left below the floor."""
    deleted = 0
    while floor and (items := (yield from guard.read_range(stream, 0, floor - 1)).items):
        for item in items:
            check_batch(stream, item)
            deleted += yield from _delete(stream, item)
    return deleted


def _calves(stream: str, tip: Tip, until: int) -> Steps[tuple[list[Item], int]]:
    """The next calves to delete as a whole; if there are none, how many events of the next calf lie within the
    range."""
    last = min(until, tip.first - 1)
    items = (yield from guard.read_range(stream, tip.floor, last)).items
    firsts = [check_batch(stream, item) for item in items]
    if not items or firsts[0] > tip.floor:
        items = yield from bridge(stream, tip.floor, firsts[0] if items else last + 1)
    whole: list[Item] = []
    for item in items:
        if item["n"] - 1 > until or (whole and item["i"] != whole[-1]["n"]):
            break
        whole.append(item)
    return whole, until + 1 - tip.floor


def raise_floor(stream: str, floor: int) -> Steps[None]:
    """Note that everything below an index is pruned."""

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None or item.get("floor", 0) >= floor:
            return None
        known = Less("floor", floor) if "floor" in item else Absent("floor")
        return (Update(tip_key(stream), (Set("floor", floor), Set("a", 0)), (known,)),)

    yield from guard.settle(tip_key(stream), plan)


def _delete(stream: str, item: Item) -> Steps[int]:
    """Delete a calf; returns how many events it had, or 0 if another process was first."""
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


def _trim(tip: Tip, last: int, etag: str) -> Steps[tuple[int, Tip]]:
    """Remove the Tip's first events, under its etag; returns their number, and the Tip."""
    outcome = yield from guard.attempt(*trim(tip, last, etag))
    told = outcome.item if isinstance(outcome, Refused) else (yield from guard.read(tip_key(tip.stream)))
    now = Tip.of(tip.stream, told)
    done = isinstance(outcome, Written) or now.etag == etag
    return (last + 1 - tip.first if done else 0), now
