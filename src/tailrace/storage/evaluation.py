"""Evaluation: judges conditions and applies changes, for backends that do both in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from tailrace.errors import BadInput
from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.limits import PLAIN, check_values
from tailrace.storage.tables import (
    Absent,
    Action,
    Add,
    Append,
    AtMost,
    Change,
    Condition,
    Delete,
    Equals,
    Exists,
    Include,
    Item,
    Less,
    NotIn,
    Path,
    Put,
    Regardless,
    Set,
    Update,
    Value,
    steps_of,
)

NOTHING: Value = object()
_WIDE = Context(prec=80)  # the default context would round to 28 digits


def look_up(item: Item, path: Path) -> Value:
    """The value of an item at a path that a condition names, or NOTHING."""
    at: Value = item
    for step in (path,) if type(path) is str else path:
        if not isinstance(at, (dict, Mapping)) or step not in at:
            return NOTHING
        at = at[step]
    return at


def holds(item: Item | None, when: Sequence[Condition]) -> bool:
    """Whether a stored item (None: there is none) meets all conditions, the rule about existing items included."""
    if item is None:
        return any((isinstance(c, Absent) and c.path is None) or type(c) is Regardless for c in when)
    return all(_JUDGES[type(c)](item, c) for c in when)


_JUDGES: dict[type, Callable[[Item, Any], bool]] = {
    Absent: lambda item, c: c.path is not None and look_up(item, c.path) is NOTHING,
    Regardless: lambda item, c: True,
    Exists: lambda item, c: look_up(item, c.path) is not NOTHING,
    Equals: lambda item, c: same(look_up(item, c.path), c.value),
    AtMost: lambda item, c: _is_number(n := look_up(item, c.path)) and n <= c.value,
    Less: lambda item, c: _is_number(n := look_up(item, c.path)) and n < c.value,
    NotIn: lambda item, c: not isinstance(s := look_up(item, c.path), (set, frozenset)) or c.member not in s,
}


def same(a: Value, b: Value) -> bool:
    """Whether two values are equal as a condition compares them, with every part of the same kind: True is not 1."""
    if type(a) in PLAIN and type(a) is type(b):
        return bool(a == b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def changed(item: Item | None, action: Action, schema: KeySchema = HOME) -> dict[str, Value] | None:
    """The item after an action whose condition holds (None: the action removed it, or there still is none)."""
    if isinstance(action, Update):
        out = dict(item) if item is not None else schema.attributes(action.key)
        for change in action.changes:
            if type(change) is Set and type(change.path) is str:
                out[change.path] = change.value
            else:
                _apply(out, change)
        return out
    if isinstance(action, Put):
        return {**action.item, **schema.attributes(action.key)}
    return None if item is None or isinstance(action, Delete) else dict(item)


def _apply(at: dict[str, Value], change: Change) -> None:
    *way, name = steps_of(change.path)
    for step in way:
        inner = at.get(step)
        if not isinstance(inner, dict):
            raise BadInput(f"the path {change.path!r} leads through {step!r}, which is not a map")
        at[step] = at = dict(inner)
    if isinstance(change, Set):
        at[name] = change.value
    elif isinstance(change, Add):
        if way and name not in at:
            raise BadInput(f"cannot add to {change.path!r}, which is not there")
        check_values(total := _sum(change.path, at.get(name, 0), change.value))
        at[name] = total
    elif isinstance(change, Append):
        if not isinstance(at.get(name), list):
            raise BadInput(f"cannot append to {change.path!r}, which is not a list")
        at[name] = [*at[name], *change.values]
    elif isinstance(change, Include):
        if not isinstance(old := at.get(name, change.members), (set, frozenset)):
            raise BadInput(f"cannot include members in {change.path!r}, which is not a set")
        at[name] = frozenset(old | change.members)
        check_values(at[name])
    else:
        at.pop(name, None)


def _sum(path: Path, old: Value, value: int) -> Value:
    if not _is_number(old):
        raise BadInput(f"cannot add to {path!r}, which is not a number")
    return old + value if isinstance(old, int) and isinstance(value, int) else _WIDE.add(old, value)
