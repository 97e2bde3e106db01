"""Limits: what no table may hold or do, because DynamoDB does not; every backend refuses the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TypeAlias

from tailrace.errors import BadInput, TooLarge
from tailrace.storage.tables import (
    LAST,
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
_WIDEST = 10**38
PLAIN = frozenset({type(None), bool, int, str, bytes})
_GIVEN = {Set: "value", Add: "value", Append: "values", Include: "members", Remove: None}

Rare: TypeAlias = frozenset[str]
"""Names of attributes whose values are not all of plain kinds."""
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
    """Refuse an item over the limit, as every backend must; gives its size."""
    size = item_size(item)
    if size > MAX_ITEM_BYTES:
        raise TooLarge(f"item {key.p!r}/{key.i} would have {size:,} bytes; the limit is {MAX_ITEM_BYTES:,}")
    return size


def check_write(actions: Sequence[Action]) -> None:
    """Refuse what no backend may accept: too many actions, two on one item, bad keys and values, too many bytes."""
    check_form(actions)
    check_bytes(actions)


def check_form(actions: Sequence[Action]) -> list[Rare]:
    """Refuse all that but too many bytes; gives the rare attributes that each action brings."""
    if len(actions) != 1:
        if not 1 <= len(actions) <= MAX_ACTIONS:
            raise TooLarge(f"a write takes 1 to {MAX_ACTIONS} actions, not {len(actions)}")
        if len({a.key for a in actions}) < len(actions):
            raise BadInput(f"two actions of one write on the same item: {[tuple(a.key) for a in actions]}")
    rare = []
    for action in actions:
        check_key(action.key)
        if isinstance(action, Update):
            rare.append(_check_changes(action.changes))
        else:
            rare.append(rare_in(action.item) if isinstance(action, Put) else NONE)
    return rare


def check_bytes(actions: Sequence[Action]) -> None:
    """Refuse an item that is too large by itself, or too many bytes in all."""
    total = 0
    for action in actions:
        if isinstance(action, Put):
            total += check_size(action.key, {**action.item, "p": action.key.p, "i": action.key.i})
        else:
            total += sum(map(size_of, given(action)))
    if len(actions) > 1 and total > MAX_WRITE_BYTES:
        raise TooLarge(f"a write of several actions may have {MAX_WRITE_BYTES:,} bytes, not {total:,}")


def _check_changes(changes: Sequence[Change]) -> Rare:
    tops = [c.path if type(c.path) is str else c.path[0] for c in changes]
    if "p" in tops or "i" in tops:
        raise BadInput("an update cannot change the key of an item")
    if len({*tops}) < len(changes):
        paths = sorted(steps_of(c.path) for c in changes)
        if any(b[: len(a)] == a for a, b in pairwise(paths)):
            raise BadInput(f"two changes of one update meet the same attribute: {paths}")
    rare = [top for top, c in zip(tops, changes, strict=True) if not check_values(_given(c))]
    return frozenset(rare) if rare else NONE


def given(action: Action) -> Sequence[Value]:
    """The values that an action brings."""
    if isinstance(action, Update):
        return [_given(change) for change in action.changes]
    return (action.item,) if isinstance(action, Put) else ()


def _given(change: Change) -> Value:
    name = _GIVEN[type(change)]
    return getattr(change, name) if name else None


def check_key(key: Key) -> None:
    """Refuse keys that some backend could not hold."""
    if not key.p or (len(key.p) > 512 and len(key.p.encode()) > 2048):
        raise BadInput(f"a hash key has 1 to 2048 bytes, not {len(key.p.encode())}")
    if not 0 <= key.i <= LAST:
        raise BadInput(f"a range key is a whole number from 0 to 2^63-1, not {key.i}")


def check_values(value: Value) -> bool:
    """Refuse values that some backend could not hold: empty sets, mixed sets, floats, huge numbers.

    Gives whether there are only lists, maps and leaves of plain kinds in it."""
    kind = type(value)
    if kind is list or kind is dict or kind is tuple:
        plain = True
        for inner in value.values() if kind is dict else value:
            if type(inner) not in PLAIN or (type(inner) is int and not -_WIDEST < inner < _WIDEST):
                plain = check_values(inner) and plain
        return plain
    if isinstance(value, int):
        if not -_WIDEST < value < _WIDEST:
            raise BadInput(f"a number in a table has at most 38 digits: {value}")
    elif isinstance(value, (set, frozenset)):
        if not value or len(set(map(type, value))) > 1:
            raise BadInput("a set in a table is not empty and has members of one kind")
    elif isinstance(value, Decimal):
        if not value.is_finite() or len(value.as_tuple().digits) > 38:
            raise BadInput(f"a number in a table is finite and has at most 38 digits: {value}")
    elif isinstance(value, Mapping):
        check_values(list(value.values()))
    elif isinstance(value, (list, tuple)):
        check_values(list(value))
    elif not isinstance(value, (str, bytes, bytearray, memoryview)) and value is not None:
        raise BadInput(f"a table cannot hold a {type(value).__name__}: {value!r:.60}")
    return kind in PLAIN


def rare_in(item: Item) -> Rare:
    """The rare attributes of an item, if a table can hold it: those that have a set or a Decimal in them."""
    rare = [name for name, value in item.items() if type(value) not in PLAIN and not check_values(value)]
    return frozenset(rare) if rare else NONE
