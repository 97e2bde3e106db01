"""Tables: items by (hash, range), read consistently and written under conditions.

This is the contract that every backend keeps, and the small algebra of conditions and changes that all of them
understand.  A write is all or nothing.  A write needs an *existing* item unless its condition says `Absent()` or
`Regardless()`: nothing is ever created by accident.

Keys of a home's items are `p` (text) and `i` (a 63-bit whole number), as in the event store's table.  Tables of models
have keys of other names and kinds: `keys.KeySchema`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

Value: TypeAlias = Any
"""None, bool, int, Decimal, str, bytes, list, dict[str, Value], or a non-empty frozenset of str, int or bytes."""

Item: TypeAlias = Mapping[str, Value]
Path: TypeAlias = str | tuple[str, ...]
"""An attribute, or a way into nested maps: `("nx", "3")`."""

LAST = 2**63 - 1
"""The highest range key: where a Tip or a head lives."""

PAGE_BYTES = 1024 * 1024


class Key(NamedTuple):
    """The key of an item: its hash key and its range key."""

    p: str
    i: int = 0


# --- conditions -------------------------------------------------------------------------------------------------------
class Absent(Struct, frozen=True):
    """The item does not exist; with a path: it exists and has no such attribute."""

    path: Path | None = None


class Exists(Struct, frozen=True):
    """The item has this attribute. (An item must exist in any case: see the module's docstring.)"""

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
    """The attribute is a set without this member, or is missing."""

    path: Path
    member: str


class Regardless(Struct, frozen=True):
    """The item may exist or not: an update creates it, a put replaces it. No other condition may stand beside it."""


Condition: TypeAlias = Absent | Exists | Equals | AtMost | Less | NotIn | Regardless


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
    """Put these values at the end of a list, which must exist."""

    path: Path
    values: Sequence[Value]


class Include(Struct, frozen=True):
    """Add members to a set of texts (absent counts as empty)."""

    path: Path
    members: frozenset[str]


class Remove(Struct, frozen=True):
    """Remove the attribute, if it exists."""

    path: Path


Change: TypeAlias = Set | Add | Append | Include | Remove


# --- actions ----------------------------------------------------------------------------------------------------------
class Put(Struct, frozen=True):
    """Store the whole item: a new one under `Absent()`, else in place of the existing one."""

    key: Key
    item: Item
    when: tuple[Condition, ...]


class Update(Struct, frozen=True):
    """Change some attributes of an item, or (under `Absent()`) make it from these changes."""

    key: Key
    changes: tuple[Change, ...]
    when: tuple[Condition, ...] = ()


class Delete(Struct, frozen=True):
    """Remove the item, which must exist."""

    key: Key
    when: tuple[Condition, ...] = ()


class Check(Struct, frozen=True):
    """Change nothing; the whole write fails unless this holds."""

    key: Key
    when: tuple[Condition, ...] = ()


Action: TypeAlias = Put | Update | Delete | Check


class Slice(NamedTuple):
    """One page of a query.  `more` is the range key to continue after, or None at the end."""

    items: list[Item]
    more: int | None


class Table(Protocol):
    """What every table backend does.  Calls block and may come from any thread.

    Reads are consistent: they see every write that was answered before they began.  Errors: `Conflict` when a
    condition fails (with the stored item), `TimedOut` when there was no answer (the write may have happened, or
    may happen yet), `Throttled` when it was refused and nothing happened, `TooLarge` before anything is sent.
    """

    inline_bytes: int
    """A value of up to this many bytes is better kept in an item than in an object of its own."""

    joins_inline: bool
    """Whether an item of that size is best written in the same transaction as the reference to it."""

    handy_bytes: int
    """An item that grows by every write is best kept below this many bytes."""

    def get(self, key: Key) -> Item | None:
        """The item, or None."""

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash with low <= i <= high, in order; at most `limit` and at most 1 MB of them."""

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes, at most 1 MB of them, after the last key of the page before; none at the end.

        Items of one hash come in order.  An item that exists from the first call to the last comes exactly once."""

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Do all actions or none.  Returns the items as they are now (None: deleted or only checked), or None where the
        backend does not say, as DynamoDB after a transaction of several actions."""

    def close(self) -> None:
        """Give up connections; calls after this raise `Closed`."""


def steps_of(path: Path) -> tuple[str, ...]:
    """The steps of a path to an attribute: one, or one for each map in it."""
    return (path,) if isinstance(path, str) else path
