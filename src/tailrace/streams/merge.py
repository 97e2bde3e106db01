"""Merge: one sequence out of several shards, by comparing their heads only.  Pure.

Within a shard the order is the shard's own, even where its times run back.  Between shards the older head goes first;
of two of the same time, that of the shard which was met earlier: so the result does not depend on how pages are cut.
Neither `Merge` nor `Headless` ever walks through all shards: the cost of a change grows with their logarithm.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from datetime import datetime
from itertools import islice, takewhile

from tailrace.streams.shard import ShardReader


class Merge:
    """The heads of shards that have one.  Finding the next change takes the logarithm of their number."""

    def __init__(self) -> None:
        self._heads: list[tuple[datetime, int, ShardReader]] = []

    def __bool__(self) -> bool:
        return bool(self._heads)

    def add(self, reader: ShardReader) -> None:
        """Let a shard that has something in its buffer take part; it must not take part already."""
        heapq.heappush(self._heads, (reader.buffer[0].created_at, reader.order, reader))

    def first(self) -> ShardReader:
        """The shard whose head goes next."""
        return self._heads[0][2]

    def run(self, most: int) -> int:
        """How many changes of the first shard go before any of another's, up to so many: at least one."""
        reader = self._heads[0][2]
        if len(self._heads) == 1:
            return min(len(reader.buffer), most)
        other, order, _ = min(self._heads[1:3])
        count = 1
        for change in islice(reader.buffer, 1, most):
            if (change.created_at, reader.order) > (other, order):
                break
            count += 1
        return count

    def advance(self) -> bool:
        """The first head was taken: go on with the next of its shard.  False if the shard's buffer is empty now."""
        reader = self._heads[0][2]
        if not reader.buffer:
            heapq.heappop(self._heads)
            return False
        heapq.heapreplace(self._heads, (reader.buffer[0].created_at, reader.order, reader))
        return True


class Headless:
    """Open shards that have no head, those first that must be asked first: a shard's `answered` never falls, but to 0.

    A round asks the shards at the front, and each goes to the end with its answer; so they stay in order of it."""

    def __init__(self) -> None:
        self._readers: OrderedDict[str, ShardReader] = OrderedDict()

    def ran_dry(self, reader: ShardReader) -> None:
        """A shard has no head, and must be asked before any other shard's head may go."""
        reader.answered = 0
        self._readers[reader.shard] = reader
        self._readers.move_to_end(reader.shard, last=False)

    def said_nothing(self, reader: ShardReader, turn: int) -> None:
        """A shard was asked in this round, and has no head still."""
        reader.answered = turn
        self._readers[reader.shard] = reader
        self._readers.move_to_end(reader.shard)

    def remove(self, reader: ShardReader) -> None:
        """A shard has a head now, or is read to its end."""
        self._readers.pop(reader.shard, None)

    def silent_before(self, turn: int) -> list[ShardReader]:
        """Shards that were not asked since a round."""
        return list(takewhile(lambda reader: reader.answered < turn, self._readers.values()))

    def silent_since(self, turn: int) -> int:
        """The round since which every one of them has answered; `turn` if there is none."""
        return next((reader.answered for reader in self._readers.values()), turn)
