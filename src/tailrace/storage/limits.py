"""Limits: what no table may hold or do, because DynamoDB does not allow it. Every backend refuses the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TypeAlias

from tailrace.errors import BadInput, TooLarge
from tailrace.storage.expressions import check_expressions
from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.tables import (
    Action,
    Add,
    Append,
    Change,
    Include,
    Item,
    Key,
    Put,
    Remove,
    Set,
    Update,
    Value,
    steps_of,
)

MAX_ACTIONS = 100
MAX_WRITE_BYTES = 4 * 1024 * 1024
MAX_ITEM_BYTES = 400 * 1024
SURELY_FIT_TOGETHER = MAX_WRITE_BYTES // MAX_ITEM_BYTES
"""So many items can never exceed the bytes that one write may touch."""
MAX_NAME_BYTES = 64 * 1024 - 1
MAX_DEPTH = 32
"""The most levels of an attribute's value: lists and maps inside each other, and the values in the innermost."""
_FIRST_INT_WITH_TOO_MANY_DIGITS = 10**38
PLAIN = frozenset({type(None), bool, int, str, bytes})
_GIVEN = {Set: "value", Add: "value", Append: "values", Include: "members", Remove: None}

Rare: TypeAlias = frozenset[str]
"""Names of attributes that have a value of an unusual type (a set, a Decimal) in them."""
NONE: Rare = frozenset()


def size_of(value: Value) -> int:
    """The size DynamoDB counts for a value."""
    if type(value) is bytes:
        return len(value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if type(value) is dict:
        return 3 + len(value) + sum(map(size_of, value)) + sum(map(size_of, value.values()))
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, (int, Decimal)):
        return min(21, (len(str(value)) + 1) // 2 + 1)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return len(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return 3 + len(value) + sum(map(size_of, value))
    if isinstance(value, Mapping):
        return 3 + len(value) + sum(map(size_of, value)) + sum(map(size_of, value.values()))
    raise BadInput(f"a table cannot hold a {type(value).__name__}: {value!r:.60}")


def item_size(item: Item) -> int:
    """The size DynamoDB counts for an item: names and values."""
    return sum(map(size_of, item)) + sum(map(size_of, item.values()))


def check_size(key: Key, item: Item) -> int:
    """Refuse an item over the limit, as every backend must; returns its size."""
    size = item_size(item)
    if size > MAX_ITEM_BYTES:
        raise TooLarge(f"item {key.p!r}/{key.i} would have {size:,} bytes; the limit is {MAX_ITEM_BYTES:,}")
    return size


def check_write(actions: Sequence[Action], schema: KeySchema = HOME) -> None:
    """Refuse what no backend may accept: too many actions, two on one item, bad keys and values, too many bytes."""
    check_form(actions, schema)
    check_bytes(actions, schema)


def check_form(actions: Sequence[Action], schema: KeySchema = HOME) -> list[Rare]:
    """Refuse a write of a form that no backend allows: all that `check_write` refuses, except too many bytes; returns
    the rare attributes of each action."""
    if len(actions) != 1:
        if not 1 <= len(actions) <= MAX_ACTIONS:
            raise TooLarge(f"a write takes 1 to {MAX_ACTIONS} actions, not {len(actions)}")
        if len({a.key for a in actions}) < len(actions):
            raise BadInput(f"two actions of one write on the same item: {[tuple(a.key) for a in actions]}")
    rare = []
    for action in actions:
        schema.check(action.key)
        check_expressions(action, schema)
        if isinstance(action, Update):
            rare.append(check_changes(action.changes, schema))
        else:
            rare.append(rare_in(action.item) if isinstance(action, Put) else NONE)
    return rare


def check_bytes(actions: Sequence[Action], schema: KeySchema = HOME) -> None:
    """Refuse a write with an item that is too large by itself, or with too many bytes in all."""
    total = 0
    for action in actions:
        if isinstance(action, Put):
            total += check_size(action.key, {**action.item, **schema.attributes(action.key)})
        else:
            total += sum(map(size_of, given(action)))
    if len(actions) > 1 and total > MAX_WRITE_BYTES:
        raise TooLarge(f"a write of several actions may have {MAX_WRITE_BYTES:,} bytes, not {total:,}")


def check_together(items: Iterable[Item | None]) -> None:
    """Refuse a write of several actions whose items have too many bytes in all.  An item counts as it is after the
    write, or before it if the write deletes or only checks it."""
    total = sum(item_size(item) for item in items if item is not None)
    if total > MAX_WRITE_BYTES:
        raise TooLarge(f"the items of one write may have {MAX_WRITE_BYTES:,} bytes in all, not {total:,}")


def check_changes(changes: Sequence[Change], schema: KeySchema) -> Rare:
    """Refuse changes that touch the key, or the same attribute twice; returns the rare attributes that they add."""
    tops = [c.path if type(c.path) is str else c.path[0] for c in changes]
    if schema.hash in tops or schema.range in tops:
        raise BadInput("an update cannot change the key of an item")
    check_names(tops)
    if len({*tops}) < len(changes):
        paths = sorted(steps_of(c.path) for c in changes)
        if any(b[: len(a)] == a for a, b in pairwise(paths)):
            raise BadInput(f"two changes of one update meet the same attribute: {paths}")
    rare = [top for top, c in zip(tops, changes, strict=True) if not check_values(_given(c), len(steps_of(c.path)))]
    return frozenset(rare) if rare else NONE


def check_names(names: Iterable[str]) -> None:
    """Refuse names of attributes that are empty or too long."""
    for name in names:
        if not name or (4 * len(name) > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES):
            raise BadInput(f"an attribute's name has 1 to {MAX_NAME_BYTES:,} bytes, not {len(name.encode()):,}")


def given(action: Action) -> Sequence[Value]:
    """The values that an action brings, which the limits are checked for."""
    if isinstance(action, Update):
        return [_given(change) for change in action.changes]
    return (action.item,) if isinstance(action, Put) else ()


def _given(change: Change) -> Value:
    name = _GIVEN[type(change)]
    return getattr(change, name) if name else None


def check_key(key: Key) -> None:
    """Refuse keys of a home's items that some backend could not hold."""
    HOME.check(key)


def check_values(value: Value, depth: int = 1) -> bool:
    """Refuse values that some backend could not hold: empty sets, mixed sets, floats, huge numbers, deep nesting.

    Returns whether the value consists only of lists, maps and plain leaves."""
    kind = type(value)
    if kind is list or kind is dict or kind is tuple:
        if depth >= MAX_DEPTH:
            raise TooLarge(
                f"lists and maps in a table have at most {MAX_DEPTH} levels, their innermost values included"
            )
        plain = True
        for inner in value.values() if kind is dict else value:
            if not _is_plain(inner):
                plain = check_values(inner, depth + 1) and plain
        return plain
    if isinstance(value, int):
        if not -_FIRST_INT_WITH_TOO_MANY_DIGITS < value < _FIRST_INT_WITH_TOO_MANY_DIGITS:
            raise BadInput(f"a number in a table has at most 38 digits: {value}")
    elif isinstance(value, (set, frozenset)):
        if not value or len(set(map(type, value))) > 1:
            raise BadInput("a set in a table is not empty and has members of one kind")
    elif isinstance(value, Decimal):
        if not value.is_finite() or len(value.as_tuple().digits) > 38:
            raise BadInput(f"a number in a table is finite and has at most 38 digits: {value}")
    elif isinstance(value, Mapping):
        check_values(list(value.values()), depth)
    elif isinstance(value, (list, tuple)):
        check_values(list(value), depth)
    elif not isinstance(value, (str, bytes, bytearray, memoryview)) and value is not None:
        raise BadInput(f"a table cannot hold a {type(value).__name__}: {value!r:.60}")
    return kind in PLAIN


def _is_plain(value: Value) -> bool:
    """Whether a table stores this leaf without converting it."""
    kind = type(value)
    return kind in PLAIN and (
        kind is not int or -_FIRST_INT_WITH_TOO_MANY_DIGITS < value < _FIRST_INT_WITH_TOO_MANY_DIGITS
    )


def rare_in(item: Item) -> Rare:
    """The names of an item's rare attributes: those that have a set or a Decimal in them.  Refuses values that no table
    can hold."""
    check_names(item)
    rare = [name for name, value in item.items() if not _is_plain(value) and not check_values(value)]
    return frozenset(rare) if rare else NONE
