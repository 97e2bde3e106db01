"""Lineage: which shards may be read, given which were read.  Pure: order follows descent, never time.

A shard may be read when its parent was read to the end, or is not listed (any more).  A parent whose children are not
known yet keeps its place, so that they are found however late they appear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tailrace.errors import PositionLost
from tailrace.storage.changes import Shard
from tailrace.streams.token import ShardPlace


class Lineage:
    """The shards that the service lists, and those that were read to the end."""

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {}
        self.finished: set[str] = set()
        self._children: dict[str, list[Shard]] = {}

    def look(self, shards: Iterable[Shard]) -> None:
        """Replace the known shards by those that the service lists now."""
        self.shards = {shard.id: shard for shard in shards}
        self._children = {}
        for shard in self.shards.values():
            if shard.parent is not None:
                self._children.setdefault(shard.parent, []).append(shard)

    def ready(self, active: Collection[str], among: Iterable[Shard] | None = None) -> list[Shard]:
        """Return the shards, of all or of `among`, that can be begun beside the active ones: everything older in their
        lines was read."""
        return [
            shard
            for shard in (self.shards.values() if among is None else among)
            if shard.id not in active and shard.id not in self.finished and self._parent_is_done(shard, active)
        ]

    def _parent_is_done(self, shard: Shard, active: Collection[str]) -> bool:
        parent = shard.parent
        if parent is None or parent in self.finished:
            return True
        return parent not in self.shards and parent not in active

    def children(self, shard: str) -> list[Shard]:
        """The children of a shard that are known so far."""
        return self._children.get(shard, [])

    def at_latest(self) -> list[Shard]:
        """Return the shards at the ends of all lines, where "latest" begins; everything before them counts as read."""
        parents = {shard.parent for shard in self.shards.values()}
        ends = [shard for shard in self.shards.values() if shard.last is None or shard.id not in parents]
        self.finished = self.shards.keys() - {shard.id for shard in ends}
        return ends

    def resume(self, places: Iterable[ShardPlace]) -> list[ShardPlace]:
        """Go on from these places, and return those whose shards are still listed.  Their ancestors count as read.

        A shard that was trimmed since gives way to its children.  `PositionLost` if neither a shard of the places nor a
        child of one is listed."""
        by_shard = {place.shard: place for place in places}
        kept = [place for place in by_shard.values() if place.shard in self.shards]
        followed = any(shard.parent in by_shard for shard in self.shards.values())
        if by_shard and not kept and not followed:
            raise PositionLost(
                "the stream has none of the token's shards any more, nor any child of them: the token is older than "
                "the 24 hours for which changes are kept, and changes after it are gone. Start at "
                '"trim_horizon", and compare with the table itself'
            )
        self.finished = self._ancestors(by_shard) | (by_shard.keys() - self.shards.keys())
        return kept

    def _ancestors(self, places: Mapping[str, ShardPlace]) -> set[str]:
        found: set[str] = set()
        line = [place.parent for place in places.values()]
        line += [self.shards[shard].parent for shard in places if shard in self.shards]
        while line:
            parent = line.pop()
            if parent is not None and parent not in found:
                found.add(parent)
                line.append(self.shards[parent].parent if parent in self.shards else None)
        return found - places.keys()
