"""Guarded appends: those of named producers, pipelines' readers and numbered writers.

Each of these has an item of its own.  The transaction that appends also writes this item, and the item alone says
whether the append happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.rules import in_force
from tailrace.log.format import head as heads
from tailrace.log.write.attempt import (
    FurtherWrites,
    has_grown,
    notify,
    plan,
    prepare,
    see_heads,
    tell_others,
    wait_for_answer,
)
from tailrace.log.write.placement import Placed
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Item, Key, Put


def read_guard(key: Key) -> Steps[Item]:
    """The item of a guard, as stored now."""
    item = yield from guard.read(key)
    assert item is not None, "a guard's item is never removed"
    return item


def open_guard(key: Key, fresh: Item) -> Steps[Item]:
    """The item of a guard; the first process that uses it creates it."""
    while (item := (yield from guard.read(key))) is None:
        yield from guard.attempt(Put(key, fresh, (Absent(),)))
    return item


class Guard(Protocol):
    """An item that is written in the same transaction as the append and says whether it happened."""

    def action(self, id: str, page: int) -> Action:
        """The guarded write that goes with the append of this chunk, sent to this page."""

    def read(self) -> Steps[Item]:
        """The item as stored now."""

    def moved(self, item: Item) -> bool:
        """Whether the item is no longer as it was when the append was planned."""


@dataclass(slots=True)
class SequenceGuard:
    """A guard's item that counts its writes in `seq`; `seen` is the item when the append was planned."""

    key: Key
    seen: Item

    def read(self) -> Steps[Item]:
        """The item as stored now."""
        return (yield from read_guard(self.key))

    def moved(self, item: Item) -> bool:
        """Whether another process has written the item since."""
        return bool(item["seq"] != self.seen["seq"])


def commit_guarded(
    placed: Sequence[Placed], decider: Guard, others: FurtherWrites | None = None
) -> Steps[tuple[bool, Item | None]]:
    """APPEND in one transaction with a guard item, which alone says whether it happened: (won, the item if it was
    read).

    With `others` there may be no chunk to append."""
    placed, began = list(placed), None
    mine, bare = set(), "" if placed else heads.new_id()
    while True:
        mine.add(placed[0].id if placed else bare)
        pages, actions = yield from plan(placed)
        if in_force("grow.asked") and any(map(has_grown, placed)):
            yield from prepare(placed)
            continue
        page = pages[0] if placed else -1
        also = others.actions(page) if others is not None else ()
        decision = decider.action(placed[0].id if placed else bare, page)
        outcome = yield from guard.attempt(*chain(*actions), decision, *also)
        if isinstance(outcome, Written):
            notify(placed)
            return True, None
        at = sum(map(len, actions))
        if isinstance(outcome, Refused) and outcome.index == at and outcome.item is not None:
            item = outcome.item
        else:
            item = yield from decider.read()
        if item.get("id") in mine:
            notify(placed)
            return True, item
        if decider.moved(item):
            return False, item
        if isinstance(outcome, Unanswered):
            began = yield from _waited_guarded(placed, began)
        yield from tell_others(others, outcome, at + 1)
        if placed:
            yield from see_heads(placed, actions, outcome)
            yield from prepare(placed)


def _waited_guarded(placed: Sequence[Placed], began: float | None) -> Steps[float | None]:
    if placed:
        return (yield from wait_for_answer(placed[0].log, began, guard.PATIENCE))
    yield from calls.pause(0)
    return began
