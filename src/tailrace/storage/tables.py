"""Tables: items by (hash, range), read consistently and written under conditions.

This is the contract that `sqlite`, `dynamodb` and the simulated table keep, and the small algebra of
conditions and changes they all understand.  A write is all or nothing.  A write meets an *existing* item unless
its condition says `Absent()`: nothing is ever created by accident.

Keys are `p` (text) and `i` (a 63-bit whole number), in every item, as in the event store's table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

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
@dataclass(frozen=True, slots=True)
class Absent:
    """The item does not exist; with a path: it exists and has no such attribute."""

    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """The item has this attribute.  (That the item exists goes without saying, see the module's docstring.)"""

    path: Path


@dataclass(frozen=True, slots=True)
class Equals:
    """The attribute has exactly this value."""

    path: Path
    value: Value


@dataclass(frozen=True, slots=True)
class AtMost:
    """The attribute is a number, and not above this one."""

    path: Path
    value: int


@dataclass(frozen=True, slots=True)
class Less:
    """The attribute is a number below this one."""

    path: Path
    value: int


@dataclass(frozen=True, slots=True)
class NotIn:
    """The attribute is a set without this member, or is not there at all."""

    path: Path
    member: str


Condition: TypeAlias = Absent | Exists | Equals | AtMost | Less | NotIn


# --- changes ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Set:
    """Give the attribute this value."""

    path: Path
    value: Value


@dataclass(frozen=True, slots=True)
class Add:
    """Add a number to a number (absent counts as 0)."""

    path: Path
    value: int


@dataclass(frozen=True, slots=True)
class Append:
    """Put these at the end of a list, which must be there."""

    path: Path
    values: Sequence[Value]


@dataclass(frozen=True, slots=True)
class Include:
    """Add members to a set of texts (absent counts as empty)."""

    path: Path
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the attribute away, if it is there."""

    path: Path


Change: TypeAlias = Set | Add | Append | Include | Remove


# --- actions ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Put:
    """Store the whole item: a new one under `Absent()`, else in place of the one that is there."""

    key: Key
    item: Item
    when: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """Change some attributes of an item, or (under `Absent()`) make it from these changes."""

    key: Key
    changes: tuple[Change, ...]
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item, which must be there."""

    key: Key
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
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


# --- evaluation, for backends that do it themselves ----------------------------------------------------------------------
class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()
_WIDE = Context(prec=80)  # the usual one would round to 28 digits


def steps_of(path: Path) -> tuple[str, ...]:
    """A path as its steps."""
    return (path,) if isinstance(path, str) else path


def look_up(item: Item, path: Path) -> Value:
    """The value at a path, or NOTHING."""
    at: Value = item
    for step in steps_of(path):
        if not isinstance(at, Mapping) or step not in at:
            return NOTHING
        at = at[step]
    return at


def holds(item: Item | None, when: Sequence[Condition]) -> bool:
    """Whether a stored item (None: there is none) meets all conditions and the rule about existing."""
    if any(isinstance(c, Absent) and c.path is None for c in when):
        return item is None
    return item is not None and all(_holds(item, c) for c in when)


def _holds(item: Item, condition: Condition) -> bool:
    match condition:
        case Absent(path):
            return path is None or look_up(item, path) is NOTHING
        case Exists(path):
            return look_up(item, path) is not NOTHING
        case Equals(path, value):
            return same(look_up(item, path), value)
        case AtMost(path, value):
            return _is_number(n := look_up(item, path)) and bool(n <= value)
        case Less(path, value):
            return _is_number(n := look_up(item, path)) and bool(n < value)
        case NotIn(path, member):
            return not isinstance(s := look_up(item, path), (set, frozenset)) or member not in s


def same(a: Value, b: Value) -> bool:
    """Equal in value and, all the way down, in kind: True is not 1."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def changed(item: Item | None, action: Action) -> dict[str, Value] | None:
    """The item after an action whose condition holds (None: it is gone, or there is still none)."""
    match action:
        case Put(key, new):
            return {**new, "p": key.p, "i": key.i}
        case Delete():
            return None
        case Check():
            return dict(item) if item is not None else None
        case Update(key, changes):
            out: dict[str, Value] = dict(item) if item is not None else {"p": key.p, "i": key.i}
            for change in changes:
                _apply(out, change)
            return out


def _apply(item: dict[str, Value], change: Change) -> None:
    *way, name = steps_of(change.path)
    at = item
    for step in way:
        inner = at.get(step)
        if not isinstance(inner, dict):
            raise BadInput(f"the path {change.path!r} leads through {step!r}, which is not a map")
        at[step] = at = dict(inner)
    match change:
        case Set(_, value):
            at[name] = value
        case Add(_, value):
            at[name] = _sum(change.path, at.get(name, 0), value)
        case Append(_, values):
            if not isinstance(at.get(name), list):
                raise BadInput(f"cannot append to {change.path!r}, which is not a list")
            at[name] = [*at[name], *values]
        case Include(_, members):
            if not isinstance(old := at.get(name, members), (set, frozenset)):
                raise BadInput(f"cannot include members in {change.path!r}, which is not a set")
            check_values(old | members)
            at[name] = frozenset(old | members)
        case Remove():
            at.pop(name, None)


def _sum(path: Path, old: Value, value: int) -> Value:
    if not _is_number(old):
        raise BadInput(f"cannot add to {path!r}, which is not a number")
    total = old + value if isinstance(old, int) and isinstance(value, int) else _WIDE.add(old, value)
    check_values(total)
    return total


# --- limits -----------------------------------------------------------------------------------------------------------
def size_of(value: Value) -> int:
    """The size DynamoDB counts for a value."""
    match value:
        case None | bool():
            return 1
        case int() | Decimal():
            return min(21, (len(str(value)) + 1) // 2 + 1)
        case str():
            return len(value) if value.isascii() else len(value.encode())
        case bytes() | bytearray() | memoryview():
            return len(value)
        case list() | tuple():
            return 3 + sum(1 + size_of(v) for v in value)
        case Mapping():
            return 3 + sum(1 + size_of(k) + size_of(v) for k, v in value.items())
        case frozenset() | set():
            return 3 + sum(1 + size_of(v) for v in value)
        case _:
            raise BadInput(f"a table cannot hold a {type(value).__name__}: {value!r:.60}")


def item_size(item: Item) -> int:
    """The size DynamoDB counts for an item: names and values."""
    return sum(size_of(name) + size_of(value) for name, value in item.items())


def check_size(key: Key, item: Item) -> int:
    """Refuse an item over the limit, as every backend must; gives its size."""
    size = item_size(item)
    if size > MAX_ITEM_BYTES:
        raise TooLarge(f"item {key.p!r}/{key.i} would have {size:,} bytes; the limit is {MAX_ITEM_BYTES:,}")
    return size


def check_write(actions: Sequence[Action]) -> None:
    """Refuse what no backend may accept: too many actions, two on one item, bad keys, too many bytes."""
    if not 1 <= len(actions) <= MAX_ACTIONS:
        raise TooLarge(f"a write takes 1 to {MAX_ACTIONS} actions, not {len(actions)}")
    if len(actions) > 1 and len({a.key for a in actions}) < len(actions):
        raise BadInput(
            "two actions of one write on the same item: " + ", ".join(f"{a.key.p}/{a.key.i}" for a in actions)
        )
    total = 0
    for action in actions:
        check_key(action.key)
        if isinstance(action, Put):
            total += check_size(action.key, {**action.item, "p": action.key.p, "i": action.key.i})
            check_values(action.item)
        elif isinstance(action, Update):
            _check_paths(action.changes)
            total += sum(_change_size(c) for c in action.changes)
    if len(actions) > 1 and total > MAX_WRITE_BYTES:
        raise TooLarge(f"a write of several actions may have {MAX_WRITE_BYTES:,} bytes, not {total:,}")


def _check_paths(changes: Sequence[Change]) -> None:
    paths = sorted(steps_of(c.path) for c in changes)
    if any(path[0] in ("p", "i") for path in paths):
        raise BadInput("an update cannot change the key of an item")
    if any(b[: len(a)] == a for a, b in pairwise(paths)):
        raise BadInput(f"two changes of one update meet the same attribute: {paths}")


def _change_size(change: Change) -> int:
    match change:
        case Set(_, value) | Add(_, value) | Append(_, value) | Include(_, value):
            check_values(value)
            return size_of(value)
        case Remove():
            return 0


def check_key(key: Key) -> None:
    """Refuse keys that some backend could not hold."""
    if not key.p or len(key.p.encode()) > 2048:
        raise BadInput(f"a hash key has 1 to 2048 bytes, not {len(key.p.encode())}")
    if not 0 <= key.i <= LAST:
        raise BadInput(f"a range key is a whole number from 0 to 2^63-1, not {key.i}")


def check_values(value: Value) -> None:
    """Refuse values that some backend could not hold: empty sets, mixed sets, floats, huge numbers."""
    if isinstance(value, Mapping):
        for inner in value.values():
            check_values(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            check_values(inner)
    elif isinstance(value, (set, frozenset)):
        if not value or len({type(v) for v in value}) > 1:
            raise BadInput("a set in a table is not empty and has members of one kind")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**38:
        raise BadInput(f"a number in a table has at most 38 digits: {value}")
    elif isinstance(value, Decimal) and (not value.is_finite() or len(value.as_tuple().digits) > 38):
        raise BadInput(f"a number in a table is finite and has at most 38 digits: {value}")
    elif isinstance(value, float):
        raise BadInput(f"a table holds whole numbers and Decimals, not the float {value!r}")
