"""Assignment: which member has which units.  Pure, so that every member of a group computes the same answer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol, TypeVar


class Ordered(Hashable, Protocol):
    """A value that can be sorted: the number of a partition, the name of a shard."""

    def __lt__(self, other: Any, /) -> bool: ...


U = TypeVar("U", bound=Ordered)
M = TypeVar("M", bound=Ordered)


def assign(units: Iterable[U], members: Iterable[M], current: Mapping[U, M]) -> dict[M, list[U]]:
    """The units of each member: as even as possible, moving as few as possible away from their holders in `current`.

    The result does not depend on the order of the members.  Units whose holder is not a member are free."""
    have: dict[M, list[U]] = {member: [] for member in members}
    free: list[U] = []
    for unit in sorted(set(units)):
        (have.get(current[unit], free) if unit in current else free).append(unit)
    if not have:
        return {}
    least, more = divmod(sum(map(len, have.values())) + len(free), len(have))
    # Where the units cannot be divided evenly, the members with the most keep one more: that moves the fewest.
    order = sorted(sorted(have), key=lambda member: -len(have[member]))
    share = {member: least + (n < more) for n, member in enumerate(order)}
    for member in order:
        free += have[member][share[member] :]
        del have[member][share[member] :]
    free.sort()
    for member in order:
        lacking = share[member] - len(have[member])
        have[member] += free[:lacking]
        del free[:lacking]
    return {member: sorted(mine) for member, mine in have.items()}
