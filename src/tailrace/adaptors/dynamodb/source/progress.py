"""Progress: the time when each shard last answered.  A shard that stops answering shows a growing age, also while the
run itself looks healthy."""

from __future__ import annotations

import time
from collections.abc import Callable

from tailrace.storage.changes import Changes, ForwardedChanges, Read, Start


class ShardProgress:
    """The time when each shard of some tables last answered, for `health`, which any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered: dict[tuple[str, str], float] = {}

    def note(self, table: str, shard: str) -> None:
        """Record that a shard has answered now."""
        self._answered[table, shard] = self._clock()

    def keep(self, table: str, shards: set[str]) -> None:
        """Track only these shards of a table from now on; a new one counts as answered now."""
        for one in list(self._answered):  # a list first: meanwhile other threads note answers
            if one[0] == table and one[1] not in shards:
                self._answered.pop(one, None)
        for shard in shards:
            self._answered.setdefault((table, shard), self._clock())

    def shown(self) -> str:
        """Return a text with the number of shards, and the one that has been silent for longest; "" without shards."""
        answered = dict(self._answered)
        if not answered:
            return ""
        (table, shard), at = min(answered.items(), key=lambda one: one[1])
        age = self._clock() - at
        return f"{len(answered)} shards, the last progress of each at most {age:.0f} s ago ({table} {shard})"


class WatchedChanges(ForwardedChanges):
    """The `Changes` of a table, with each answer recorded in a `ShardProgress`."""

    def __init__(self, changes: Changes, table: str, progress: ShardProgress) -> None:
        super().__init__(changes)
        self._table, self._progress = table, progress
        self.given = 0
        """The number of changes that were read."""

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """Return an iterator with the shard's name in front, because `read` gets nothing but the iterator."""
        return f"{shard}\n{self._changes.iterator(shard, start, sequence)}"

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """Return the next changes, and record that the shard has answered."""
        shard, _, inner = iterator.partition("\n")
        page = self._changes.read(inner, limit)
        self._progress.note(self._table, shard)
        self.given += len(page.changes)
        return Read(page.changes, None if page.next is None else f"{shard}\n{page.next}")
