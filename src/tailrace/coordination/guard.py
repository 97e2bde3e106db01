"""Guarded writes: condition, compare, retry.

A conditional write can be refused, and it can succeed without an answer.  A refusal can be caused by this process's own
earlier success, and a write without an answer may still land after the read-back.  So `attempt` never says "lost": it
says written, refused (with the stored item) or unanswered, and the protocol compares before it decides.  It repeats
only writes that certainly did not happen: a throttled request, or one that met another transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from tailrace.errors import Conflict, GaveUp, Throttled, TimedOut, Unavailable
from tailrace.storage import calls
from tailrace.storage.calls import PATIENCE as PATIENCE
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Absent, Action, Check, Equals, Exists, Item, Key, Put, Set, Slice, Update

T = TypeVar("T")

NOT_DONE = (Throttled, Unavailable)
"""Errors after which it is certain that nothing happened."""


class Written(Struct, frozen=True):
    """The write happened; `items` are as they are now, if the table returns them."""

    items: tuple[Item | None, ...] | None


class Refused(Struct, frozen=True):
    """A condition did not hold at action `index`, where `item` is stored."""

    index: int
    item: Item | None


class Unanswered(Struct, frozen=True):
    """The write was sent and had no answer: it may have happened, or may happen yet."""


Outcome: TypeAlias = Written | Refused | Unanswered


def attempt(*actions: Action, patience: float = PATIENCE, tables: tuple[Any, ...] = ()) -> Steps[Outcome]:
    """One guarded write, repeated only while it certainly did not happen.

    A protocol may call it again and again: `GaveUp` ends that once there has been no answer for too long.  `tables`:
    the table of each action, if not all are on the home's own table."""
    try:
        return Written((yield from persist(lambda: calls.write(*actions, tables=tables), NOT_DONE, patience)))
    except Conflict as conflict:
        return Refused(conflict.index, conflict.item)
    except GaveUp:
        raise
    except TimedOut:
        return Unanswered()


def persist(
    ask: Callable[[], Steps[T]],
    on: type[Exception] | tuple[type[Exception], ...] = (Throttled, TimedOut, Unavailable),
    patience: float = PATIENCE,
) -> Steps[T]:
    """Repeat a request of any kind to the storage, with pauses, while it fails with one of `on`; `Unavailable` when
    patience runs out."""
    began, attempts = None, 0
    while True:
        try:
            return (yield from ask())
        except GaveUp:
            raise
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
    """Read one item consistently; repeats the read while there is no answer."""
    return (yield from persist(lambda: calls.get(key)))


def read_range(
    p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
) -> Steps[Slice]:
    """Read a page of the items of one hash; repeats the read while there is no answer."""
    return (yield from persist(lambda: calls.query(p, low, high, descending=descending, limit=limit)))


def read_all(p: str, low: int = 0, high: int = LAST) -> Steps[list[Item]]:
    """Every item of one hash in a range, page after page; repeats each read while there is no answer."""
    items: list[Item] = []
    while True:
        found, more = yield from read_range(p, low, high)
        items += found
        if more is None:
            return items
        low = more + 1


def truth(key: Key) -> Steps[Item | None]:
    """A linearizable read: sends a condition that cannot hold, so that the refusal returns the committed item, which no
    transaction under way can hide."""
    attempts = 0
    while True:
        outcome = yield from attempt(Check(key, (Exists("$"),)))
        if isinstance(outcome, Refused):
            return outcome.item
        yield from calls.pause(attempts)
        attempts += 1


def some(after: Key | None) -> Steps[list[Item]]:
    """Read some items of all hashes after a key, none at the end; repeats the read while there is no answer."""
    return (yield from persist(lambda: calls.scan(after)))


def settle_value(key: Key, name: str, value: Any) -> Steps[None]:
    """Bring an item that has one attribute to this value, whatever other processes write; creates the item if it is
    missing."""

    def plan(item: Item | None) -> tuple[Put | Update, ...] | None:
        if item is None:
            return (Put(key, {name: value}, (Absent(),)),)
        return None if item[name] == value else (Update(key, (Set(name, value),), (Equals(name, item[name]),)),)

    yield from settle(key, plan)


def settle(
    key: Key, plan: Callable[[Item | None], tuple[Action, ...] | None], seen: Item | None = None, *, known: bool = False
) -> Steps[Item | None]:
    """Bring one item to a wanted state, while other processes write it as well.

    `plan` looks at the stored item and returns the actions that are still needed, under conditions such that of two
    equal plans only one can succeed, or None when nothing is left to do; it raises if it cannot be done.  Because it
    looks again after each refusal and each missing answer, it recognises its own earlier success.  Returns the final
    item.
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
