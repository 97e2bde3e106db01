"""What a simulated table takes in: actions checked against every limit and copied, quickly.

`check_write` counts the exact size of every value.  Simulations write millions of small items, so here a bound that is
cheaper to find comes first, and `check_write` is asked only about what might be over a limit or is of an unusual kind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tailrace.storage.limits import MAX_ITEM_BYTES, MAX_WRITE_BYTES, check_key, check_values, check_write, size_of
from tailrace.storage.tables import Action, Add, Append, Change, Key, Path, Put, Remove, Set, Update, Value, steps_of

_DIGITS = 10**38
_FEW = MAX_WRITE_BYTES // MAX_ITEM_BYTES


def admit(actions: tuple[Action, ...]) -> list[tuple[Action, int]]:
    """The actions, copied, each with a bound of the bytes it brings; refuses what `check_write` refuses."""
    if not 0 < len(actions) <= _FEW or (len(actions) > 1 and len({a.key for a in actions}) < len(actions)):
        check_write(actions)
    admitted = [_admitted(action) for action in actions]
    if any(size > MAX_ITEM_BYTES for _, size in admitted):
        check_write(actions)
    return admitted


def _admitted(action: Action) -> tuple[Action, int]:
    key = action.key
    check_key(key)
    if isinstance(action, Put):
        item: dict[str, Value] = plain({**action.item, "p": key.p, "i": key.i})
        return Put(key, item, action.when), bound(item)
    if isinstance(action, Update):
        size = _names_bound(tuple([change.path for change in action.changes])) + 4 * len(key.p)
        changes = []
        for change in action.changes:
            change, more = _taken(change)
            changes.append(change)
            size += more
        return Update(key, tuple(changes), action.when), size
    return action, 0


@lru_cache(maxsize=4096)
def _names_bound(paths: tuple[Path, ...]) -> int:
    check_write((Update(Key("any"), tuple(Remove(path) for path in paths)),))
    return 32 + sum(4 + 4 * sum(map(len, steps_of(path))) for path in paths)


def _taken(change: Change) -> tuple[Change, int]:
    if isinstance(change, Add):
        return change, bound(change.value)
    if isinstance(change, Set):
        value = plain(change.value)
        return Set(change.path, value), bound(value)
    if isinstance(change, Append):
        values = plain(list(change.values))
        return Append(change.path, values), bound(values)
    return change, 0 if isinstance(change, Remove) else bound(change.members)


def bound(value: Value) -> int:
    """At least `size_of(value)`; refuses what `check_values` refuses."""
    kind = type(value)
    if kind is str:
        return 4 * len(value)
    if kind is int and -_DIGITS < value < _DIGITS:
        return 21
    if value is None or kind is bool:
        return 1
    if kind is bytes:
        return len(value)
    if kind is list:
        return 3 + len(value) + sum(map(bound, value))
    if kind is dict:
        return 3 + len(value) + sum(map(bound, value)) + sum(map(bound, value.values()))
    if kind is frozenset and value and all(map(_is_text, value)):
        return 3 + len(value) + 4 * sum(map(len, value))
    check_values(value)
    return size_of(value)


def _is_text(member: Value) -> bool:
    return type(member) is str


def plain(value: Value) -> Any:
    """A copy as a table would give it back: lists, maps, frozensets and bytes of its own."""
    kind = type(value)
    if kind is str or kind is int or kind is bytes or value is None:
        return value
    if kind is dict:
        return {name: plain(inner) for name, inner in value.items()}
    if kind is list or kind is tuple:
        return [plain(inner) for inner in value]
    if kind is set:
        return frozenset(value)
    if kind is bytearray or kind is memoryview:
        return bytes(value)
    return value
