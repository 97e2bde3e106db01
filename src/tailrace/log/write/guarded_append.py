"""Guarded appends: those of named producers, pipelines' readers and numbered writers.

Each of these has an item of its own.  The transaction that appends also writes this item, and the item alone says
whether the append happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Written
from tailrace.log.format import head as heads
from tailrace.log.write.attempt import FurtherWrites, attempt_until_decided, see_heads
from tailrace.log.write.placement import Placed
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
    return (
        yield from attempt_until_decided(
            list(placed), ByGuard(decider, "" if placed else heads.new_id()), others, guard.PATIENCE
        )
    )


class ByGuard:
    """Whether an append has happened is said by a guard item, which has the id of the chunk that it was written
    with."""

    def __init__(self, decider: Guard, bare: str) -> None:
        self._decider, self._bare = decider, bare
        """The guard, and what stands for a chunk's id where there is no chunk to append."""
        self._mine: set[str] = set()

    def writes(self, placed: Sequence[Placed], pages: Sequence[int]) -> Sequence[Action]:
        """The guard's write."""
        id, page = (placed[0].id, pages[0]) if placed else (self._bare, -1)
        self._mine.add(id)
        return (self._decider.action(id, page),)

    def before_regrouping(self, placed: Sequence[Placed]) -> Steps[None]:
        """Nothing is known without an attempt: the guard item answers the next one."""
        yield from ()

    def judge(
        self, placed: Sequence[Placed], pages: Sequence[int], actions: Sequence[list[Action]], outcome: guard.Outcome
    ) -> Steps[tuple[bool, Item | None] | None]:
        """Whether this or an earlier attempt has landed, or another process has moved the guard; and the item, if it
        was read."""
        if isinstance(outcome, Written):
            return True, None
        if isinstance(outcome, Refused) and outcome.index == sum(map(len, actions)) and outcome.item is not None:
            item = outcome.item
        else:
            item = yield from self._decider.read()
        if item.get("id") in self._mine:
            return True, item
        if self._decider.moved(item):
            return False, item
        yield from see_heads(placed, actions, outcome)
        return None
