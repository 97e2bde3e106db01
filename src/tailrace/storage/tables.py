"""Tables: items by (hash, range), read consistently and written under conditions.

This is the contract that `sqlite`, `dynamodb` and the simulated table keep, and the small algebra of
conditions and changes they all understand.  A write is all or nothing.  A write meets an *existing* item unless
its condition says `Absent()`: nothing is ever created by accident.

Keys are `p` (text) and `i` (a 63-bit whole number), in every item, as in the event store's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from tailrace.errors import BadInput, TooLarge

Value: TypeAlias = Any
"""None, bool, int, Decimal, str, bytes, list, dict[str, Value], or a non-empty frozenset of str, int or bytes."""

Item: TypeAlias = Mapping[str, Value]
Path: TypeAlias = str | tuple[str, ...]
"""An attribute, or a way into nested maps: `("nx", "3")`."""

LAST = 2**63 - 1
"""The highest range key: where a Tip or a head lives."""

MAX_ACTIONS = 100
MAX_WRITE_BYTES = 4 * 1024 * 1024
MAX_ITEM_BYTES = 400 * 1024
PAGE_BYTES = 1024 * 1024


class Key(NamedTuple):
    """Where an item lives."""

    p: str
    i: int = 0


# --- conditions -------------------------------------------------------------------------------------------------------
class Absent(Struct, frozen=True):
    """The item does not exist; with a path: it exists and has no such attribute."""

    path: Path | None = None


class Exists(Struct, frozen=True):
    """The item has this attribute.  (That the item exists goes without saying, see the module's docstring.)"""

    path: Path


class Equals(Struct, frozen=True):
    """The attribute has exactly this value."""

    path: Path
    value: Value


class AtMost(Struct, frozen=True):
    """The attribute is a number, and not above this one."""

    path: Path
    value: int


class Less(Struct, frozen=True):
    """The attribute is a number below this one."""

    path: Path
    value: int


class NotIn(Struct, frozen=True):
    """The attribute is a set without this member, or is not there at all."""

    path: Path
    member: str


Condition: TypeAlias = Absent | Exists | Equals | AtMost | Less | NotIn


# --- changes ----------------------------------------------------------------------------------------------------------
class Set(Struct, frozen=True):
    """Give the attribute this value."""

    path: Path
    value: Value


class Add(Struct, frozen=True):
    """Add a number to a number.  An absent attribute counts as 0; an absent one inside a map is refused."""

    path: Path
    value: int


class Append(Struct, frozen=True):
    """Put these at the end of a list, which must be there."""

    path: Path
    values: Sequence[Value]


class Include(Struct, frozen=True):
    """Add members to a set of texts (absent counts as empty)."""

    path: Path
    members: frozenset[str]


class Remove(Struct, frozen=True):
    """Take the attribute away, if it is there."""

    path: Path


Change: TypeAlias = Set | Add | Append | Include | Remove


# --- actions ----------------------------------------------------------------------------------------------------------
class Put(Struct, frozen=True):
    """Store the whole item: a new one under `Absent()`, else in place of the one that is there."""

    key: Key
    item: Item
    when: tuple[Condition, ...]


class Update(Struct, frozen=True):
    """Change some attributes of an item, or (under `Absent()`) make it from these changes."""

    key: Key
    changes: tuple[Change, ...]
    when: tuple[Condition, ...] = ()


class Delete(Struct, frozen=True):
    """Remove the item, which must be there."""

    key: Key
    when: tuple[Condition, ...] = ()


class Check(Struct, frozen=True):
    """Change nothing; the whole write fails unless this holds."""

    key: Key
    when: tuple[Condition, ...] = ()


Action: TypeAlias = Put | Update | Delete | Check


class Slice(NamedTuple):
    """One page of a query.  `more` is the range key to go on after, or None at the end."""

    items: list[Item]
    more: int | None


class Table(Protocol):
    """What every table backend does.  Calls block and may come from any thread.

    Reads are consistent: they see every write that was answered before they began.  Errors: `Conflict` when a
    condition fails (with the stored item), `TimedOut` when there was no answer (the write may have happened, or
    may happen yet), `Throttled` when it was refused and nothing happened, `TooLarge` before anything is sent.
    """

    inline_bytes: int
    """Up to this size a value is better kept in an item than in an object of its own."""

    joins_inline: bool
    """Whether an item of that size is best written in the same transaction as what refers to it."""

    def get(self, key: Key) -> Item | None:
        """The item, or None."""

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash with low <= i <= high, in order; at most `limit` and at most 1 MB of them."""

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Do all actions or none.  Answers the items as they now are (None: deleted or only checked), or None
        where the backend does not say, as DynamoDB does not of a transaction of several."""

    def close(self) -> None:
        """Give up connections; calls after this raise `Closed`."""


# --- evaluation, for backends that do it themselves -------------------------------------------------------------------
NOTHING: Value = object()
_WIDE = Context(prec=80)  # the usual one would round to 28 digits
_PLAIN = frozenset({type(None), bool, int, str, bytes})


def steps_of(path: Path) -> tuple[str, ...]:
    """A path as its steps."""
    return (path,) if isinstance(path, str) else path


def look_up(item: Item, path: Path) -> Value:
    """The value at a path, or NOTHING."""
    at: Value = item
    for step in (path,) if type(path) is str else path:
        if not isinstance(at, (dict, Mapping)) or step not in at:
            return NOTHING
        at = at[step]
    return at


def holds(item: Item | None, when: Sequence[Condition]) -> bool:
    """Whether a stored item (None: there is none) meets all conditions and the rule about existing."""
    if item is None:
        return any(isinstance(c, Absent) and c.path is None for c in when)
    return all(_JUDGES[type(c)](item, c) for c in when)


_JUDGES: dict[type, Callable[[Item, Any], bool]] = {
    Absent: lambda item, c: c.path is not None and look_up(item, c.path) is NOTHING,
    Exists: lambda item, c: look_up(item, c.path) is not NOTHING,
    Equals: lambda item, c: same(look_up(item, c.path), c.value),
    AtMost: lambda item, c: _is_number(n := look_up(item, c.path)) and n <= c.value,
    Less: lambda item, c: _is_number(n := look_up(item, c.path)) and n < c.value,
    NotIn: lambda item, c: not isinstance(s := look_up(item, c.path), (set, frozenset)) or c.member not in s,
}


def same(a: Value, b: Value) -> bool:
    """Equal in value and, all the way down, in kind: True is not 1."""
    if type(a) in _PLAIN and type(a) is type(b):
        return bool(a == b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def changed(item: Item | None, action: Action) -> dict[str, Value] | None:
    """The item after an action whose condition holds (None: it is gone, or there is still none)."""
    if isinstance(action, Update):
        out = dict(item) if item is not None else {"p": action.key.p, "i": action.key.i}
        for change in action.changes:
            _apply(out, change)
        return out
    if isinstance(action, Put):
        return {**action.item, "p": action.key.p, "i": action.key.i}
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


# --- limits -----------------------------------------------------------------------------------------------------------
_GIVEN = {Set: "value", Add: "value", Append: "values", Include: "members"}


def size_of(value: Value) -> int:
    """The size DynamoDB counts for a value."""
    if type(value) is bytes:
        return len(value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
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
    """Refuse what no backend may accept: too many actions, two on one item, bad keys, too many bytes."""
    several = len(actions) != 1
    if several and not 1 <= len(actions) <= MAX_ACTIONS:
        raise TooLarge(f"a write takes 1 to {MAX_ACTIONS} actions, not {len(actions)}")
    if several and len({a.key for a in actions}) < len(actions):
        raise BadInput(f"two actions of one write on the same item: {[tuple(a.key) for a in actions]}")
    total = 0
    for action in actions:
        check_key(action.key)
        if isinstance(action, Put):
            total += check_size(action.key, {**action.item, "p": action.key.p, "i": action.key.i})
            check_values(action.item)
        elif isinstance(action, Update):
            total += _check_changes(action.changes, several)
    if several and total > MAX_WRITE_BYTES:
        raise TooLarge(f"a write of several actions may have {MAX_WRITE_BYTES:,} bytes, not {total:,}")


def _check_changes(changes: Sequence[Change], several: bool) -> int:
    paths = [steps_of(c.path) for c in changes]
    tops = {path[0] for path in paths}
    if "p" in tops or "i" in tops:
        raise BadInput("an update cannot change the key of an item")
    if len(tops) < len(paths) and any(b[: len(a)] == a for a, b in pairwise(sorted(paths))):
        raise BadInput(f"two changes of one update meet the same attribute: {paths}")
    values = [getattr(c, _GIVEN[type(c)]) for c in changes if type(c) is not Remove]
    check_values(values)
    return sum(map(size_of, values)) if several else 0


def check_key(key: Key) -> None:
    """Refuse keys that some backend could not hold."""
    if not key.p or (len(key.p) > 512 and len(key.p.encode()) > 2048):
        raise BadInput(f"a hash key has 1 to 2048 bytes, not {len(key.p.encode())}")
    if not 0 <= key.i <= LAST:
        raise BadInput(f"a range key is a whole number from 0 to 2^63-1, not {key.i}")


def check_values(value: Value) -> None:
    """Refuse values that some backend could not hold: empty sets, mixed sets, floats, huge numbers."""
    if isinstance(value, (str, bytes, bool)) or value is None:
        return
    if isinstance(value, int):
        if abs(value) >= 10**38:
            raise BadInput(f"a number in a table has at most 38 digits: {value}")
    elif isinstance(value, (list, tuple, Mapping)):
        for inner in value if isinstance(value, (list, tuple)) else value.values():
            if type(inner) not in _PLAIN or (type(inner) is int and not -(10**38) < inner < 10**38):
                check_values(inner)
    elif isinstance(value, (set, frozenset)):
        if not value or len(set(map(type, value))) > 1:
            raise BadInput("a set in a table is not empty and has members of one kind")
    elif isinstance(value, Decimal):
        if not value.is_finite() or len(value.as_tuple().digits) > 38:
            raise BadInput(f"a number in a table is finite and has at most 38 digits: {value}")
    elif not isinstance(value, (bytearray, memoryview)):
        raise BadInput(f"a table cannot hold a {type(value).__name__}: {value!r:.60}")
