"""Merge: one sequence out of several shards, by comparing their heads only.  Pure.

Within a shard the order is the shard's own, even where its times run back.  Between shards the older head goes first;
of two heads of the same time, that of the shard which was found earlier: so the result does not depend on how pages are
cut.  Neither `Merge` nor `Headless` ever walks through all shards: the cost of a change grows with the logarithm of
their number.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from datetime import datetime
from itertools import islice, takewhile

from tailrace.streams.shard import ShardReader


class Merge:
    """The shards that have a head, ordered by it."""

    def __init__(self) -> None:
        self._heads: list[tuple[datetime, int, ShardReader]] = []

    def __bool__(self) -> bool:
        return bool(self._heads)

    def add(self, reader: ShardReader) -> None:
        """Add a shard that has changes in its buffer; it must not be in the merge already."""
        heapq.heappush(self._heads, (reader.buffer[0].created_at, reader.order, reader))

    def first(self) -> ShardReader:
        """The shard whose head goes next."""
        return self._heads[0][2]

    def run(self, most: int) -> int:
        """How many changes of the first shard go before any other shard's, at least one and at most `most`."""
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
        """Go on with the first shard's next change, after its head was taken.  Returns False if its buffer is empty."""
        reader = self._heads[0][2]
        if not reader.buffer:
            heapq.heappop(self._heads)
            return False
        heapq.heapreplace(self._heads, (reader.buffer[0].created_at, reader.order, reader))
        return True


class Headless:
    """Open shards without a head, in the order in which they must be asked: a shard's `answered` never falls, except to
    0.

    A round asks the shards at the front, and each goes to the end with its answer; so they stay in the order of
    `answered`."""

    def __init__(self) -> None:
        self._readers: OrderedDict[str, ShardReader] = OrderedDict()

    def ran_dry(self, reader: ShardReader) -> None:
        """Put a shard to the front: it must be asked before any other shard's head may go."""
        reader.answered = 0
        self._readers[reader.shard] = reader
        self._readers.move_to_end(reader.shard, last=False)

    def said_nothing(self, reader: ShardReader, turn: int) -> None:
        """Put a shard to the end: it was asked in round `turn` and still has no head."""
        reader.answered = turn
        self._readers[reader.shard] = reader
        self._readers.move_to_end(reader.shard)

    def remove(self, reader: ShardReader) -> None:
        """Remove a shard that has a head now, or is read to its end."""
        self._readers.pop(reader.shard, None)

    def silent_before(self, turn: int) -> list[ShardReader]:
        """The shards that have not answered in round `turn` or later."""
        return list(takewhile(lambda reader: reader.answered < turn, self._readers.values()))

    def silent_since(self, turn: int) -> int:
        """The round since which every shard here has answered; `turn` if there is none."""
        return next((reader.answered for reader in self._readers.values()), turn)
