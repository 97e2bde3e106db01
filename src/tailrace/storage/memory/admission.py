"""Admission: a table in memory checks actions against every limit and copies them, quickly.

`check_write` counts the exact size of every value.  Simulations write millions of small items, so `admit` first finds
a bound, which is cheaper, and calls `check_write` only for what might be over a limit or is of an unusual type.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tailrace.storage.expressions import check_expressions
from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.limits import (
    MAX_DEPTH,
    MAX_ITEM_BYTES,
    MAX_WRITE_BYTES,
    check_changes,
    check_names,
    check_values,
    check_write,
    size_of,
)
from tailrace.storage.tables import Action, Add, Append, Change, Path, Put, Remove, Set, Update, Value, steps_of

_FIRST_INT_WITH_TOO_MANY_DIGITS = 10**38
_ACTIONS_THAT_SURELY_FIT = MAX_WRITE_BYTES // MAX_ITEM_BYTES


def admit(actions: tuple[Action, ...], schema: KeySchema = HOME) -> list[tuple[Action, int]]:
    """Copy the actions, each with an upper bound of the bytes it adds; refuses what `check_write` refuses."""
    if not 0 < len(actions) <= _ACTIONS_THAT_SURELY_FIT or (
        len(actions) > 1 and len({a.key for a in actions}) < len(actions)
    ):
        check_write(actions, schema)
    admitted = [_admitted(action, schema) for action in actions]
    if any(size > MAX_ITEM_BYTES for _, size in admitted):
        check_write(actions, schema)
    return admitted


def _admitted(action: Action, schema: KeySchema) -> tuple[Action, int]:
    key = action.key
    schema.check(key)
    check_expressions(action, schema)
    if isinstance(action, Put):
        check_names(action.item)
        whole = {**action.item, **schema.attributes(key)}
        size = bound(whole, 0)
        return Put(key, plain(whole), action.when), size
    if isinstance(action, Update):
        size = _names_bound(tuple([change.path for change in action.changes]), schema) + 4 * size_of(key.p)
        changes = []
        for change in action.changes:
            change, more = _taken(change)
            changes.append(change)
            size += more
        return Update(key, tuple(changes), action.when), size
    return action, 0


@lru_cache(maxsize=4096)
def _names_bound(paths: tuple[Path, ...], schema: KeySchema) -> int:
    check_changes(tuple(Remove(path) for path in paths), schema)
    return 32 + sum(4 + 4 * sum(map(len, steps_of(path))) for path in paths)


def _taken(change: Change) -> tuple[Change, int]:
    if isinstance(change, Add):
        return change, bound(change.value)
    depth = len(steps_of(change.path))
    if isinstance(change, Set):
        size = bound(change.value, depth)
        return Set(change.path, plain(change.value)), size
    if isinstance(change, Append):
        size = bound(list(change.values), depth)
        return Append(change.path, plain(list(change.values))), size
    return change, 0 if isinstance(change, Remove) else bound(change.members)


def bound(value: Value, depth: int = 1) -> int:
    """An upper bound of `size_of(value)`; refuses what `check_values` refuses."""
    kind = type(value)
    if kind is str:
        return 4 * len(value)
    if kind is int and -_FIRST_INT_WITH_TOO_MANY_DIGITS < value < _FIRST_INT_WITH_TOO_MANY_DIGITS:
        return 21
    if value is None or kind is bool:
        return 1
    if kind is bytes:
        return len(value)
    if (kind is list or kind is dict) and depth >= MAX_DEPTH:
        check_values(value, depth)
    if kind is list:
        return 3 + len(value) + sum([bound(inner, depth + 1) for inner in value])
    if kind is dict:
        return 3 + len(value) + sum(map(bound, value)) + sum([bound(inner, depth + 1) for inner in value.values()])
    if kind is frozenset and value and all(map(_is_text, value)):
        return 3 + len(value) + 4 * sum(map(len, value))
    check_values(value)
    return size_of(value)


def _is_text(member: Value) -> bool:
    return type(member) is str


def plain(value: Value) -> Any:
    """Copy a value as a table would return it: with lists, maps, frozensets and bytes of its own."""
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
