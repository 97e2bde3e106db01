"""Assignment: who reads which shard.  Pure, so that every member of a group comes to the same answer by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


M = TypeVar("M", bound=_Ordered)


def assign(shards: Iterable[int], members: Iterable[M], current: Mapping[int, M]) -> dict[M, list[int]]:
    """Shards for each member: as even as can be, moving as few as possible from who has them in `current`.

    Does not depend on the order in which members are given.  Shards of somebody who is no member are free."""
    have: dict[M, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for shard in sorted(set(shards)):
        (have.get(current[shard], free) if shard in current else free).append(shard)
    if not have:
        return {}
    least, more = divmod(sum(map(len, have.values())) + len(free), len(have))
    # Those who have the most keep one more, where it does not come out even: that moves the fewest.
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
