"""Guarded writes: condition, compare, retry.

A conditional write can be refused, and can succeed without an answer.  A refusal can be one's own earlier success, and
a write without an answer may still land after the read-back.  So `attempt` never says "lost": it says written, refused
(with what is stored) or unanswered, and the protocol compares before it decides.  Only what certainly did not happen,
a throttled request or a transaction in the way, is repeated here, unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from msgspec import Struct

from tailrace.errors import Conflict, Throttled, TimedOut, Unavailable
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Action, Check, Exists, Item, Key, Slice

T = TypeVar("T")

NOT_DONE = (Throttled, Unavailable)
"""Answers that say for certain that nothing happened."""

PATIENCE = 60.0
"""Seconds that a throttled or unreachable storage is asked again before the caller is told."""


class Written(Struct, frozen=True):
    """It happened; the items as they now are, where the table says so."""

    items: tuple[Item | None, ...] | None


class Refused(Struct, frozen=True):
    """A condition did not hold at action `index`, where `item` is stored."""

    index: int
    item: Item | None


class Unanswered(Struct, frozen=True):
    """Sent, and no answer: it may have happened, or may happen yet."""


Outcome: TypeAlias = Written | Refused | Unanswered


def attempt(*actions: Action, patience: float = PATIENCE) -> Steps[Outcome]:
    """One guarded write, repeated only while it certainly did not happen."""
    try:
        return Written((yield from persist(lambda: calls.write(*actions), NOT_DONE, patience)))
    except Conflict as conflict:
        return Refused(conflict.index, conflict.item)
    except TimedOut:
        return Unanswered()


def persist(
    ask: Callable[[], Steps[T]],
    on: type[Exception] | tuple[type[Exception], ...] = (Throttled, TimedOut, Unavailable),
    patience: float = PATIENCE,
) -> Steps[T]:
    """Ask again, with pauses, while the answer is one of `on`; `Unavailable` when patience runs out."""
    began, attempts = None, 0
    while True:
        try:
            return (yield from ask())
        except on as error:
            at = yield from calls.now()
            began = at if began is None else began
            if at - began >= patience:
                raise Unavailable(
                    f"the storage has not taken a request for {at - began:.0f} s ({error}); "
                    "nothing of it is acknowledged, the same call can be made again"
                ) from error
            yield from calls.pause(attempts)
            attempts += 1


def read(key: Key) -> Steps[Item | None]:
    """One item; asks again when there is no answer."""
    return (yield from persist(lambda: calls.get(key)))


def read_range(
    p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
) -> Steps[Slice]:
    """Items of one hash; asks again when there is no answer."""
    return (yield from persist(lambda: calls.query(p, low, high, descending=descending, limit=limit)))


def read_all(p: str, low: int = 0, high: int = LAST) -> Steps[list[Item]]:
    """Every item of one hash in a range, page after page."""
    items: list[Item] = []
    while True:
        found, more = yield from read_range(p, low, high)
        items += found
        if more is None:
            return items
        low = more + 1


def truth(key: Key) -> Steps[Item | None]:
    """An item as conditions see it, which no transaction under way can hide: one that cannot hold is put to it."""
    attempts = 0
    while True:
        outcome = yield from attempt(Check(key, (Exists("$"),)))
        if isinstance(outcome, Refused):
            return outcome.item
        yield from calls.pause(attempts)
        attempts += 1


def some(after: Key | None) -> Steps[list[Item]]:
    """Items of all hashes behind a key, none at the end; asks again when there is no answer."""
    return (yield from persist(lambda: calls.scan(after)))


def settle(
    key: Key, plan: Callable[[Item | None], tuple[Action, ...] | None], seen: Item | None = None, *, known: bool = False
) -> Steps[Item | None]:
    """Bring one item to where it should be, whoever else writes it.

    `plan` looks at the stored item and gives the actions that are still needed, under conditions that two of them
    cannot both meet, or None when nothing (more) is to be done; it raises when it cannot be done.  Because it looks
    anew after each refusal and each missing answer, it recognises its own earlier success.  Gives the item in the end.
    """
    item = seen if known else (yield from read(key))
    attempts = 0
    while (actions := plan(item)) is not None:
        outcome = yield from attempt(*actions)
        if isinstance(outcome, Refused) and actions[outcome.index].key == key and attempts < 3:
            item = outcome.item
        else:
            item = yield from read(key)
        if not isinstance(outcome, Written):
            yield from calls.pause(attempts)
            attempts += 1
    return item
