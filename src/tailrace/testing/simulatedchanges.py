"""SimulatedChanges: a table's change stream that splits its shards on command, which no DynamoDB server for tests does.

The rules are DynamoDB's.  A shard takes the changes of some hash keys.  A split closes it, and each of its keys goes to
one of two children.  So the changes of one item are always in one line of descent, in order, and a reader must not read
a child before it has exhausted the parent.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from hashlib import blake2b

from tailrace.errors import NotThere, Throttled
from tailrace.storage.changes import Change, Read, Shard, View
from tailrace.storage.keys import sortable
from tailrace.storage.memory.changes import MemoryChanges, ShardChanges
from tailrace.storage.tables import Key
from tailrace.testing.clock import ManualClock

KEPT_SECONDS = 24 * 60 * 60


class SimulatedChanges(MemoryChanges):
    """Keeps the `Changes` contract, and can `split`, `roll`, `trim`, `expire` and `replace`.  Calls block and may come
    from any thread.

    `empty` is the share of reads that return nothing although there are changes, as some of DynamoDB's do; `throttled`
    the share of requests that are refused; `late` the most listings of shards from which a new child may be missing.
    """

    def __init__(
        self,
        *,
        shards: int = 1,
        view: View = "both",
        clock: ManualClock | None = None,
        empty: float = 0.0,
        throttled: float = 0.0,
        late: int = 0,
        exact: bool = False,
        seed: int = 0,
    ) -> None:
        self.clock = clock or ManualClock()
        self.empty, self.throttled, self.late, self.exact = empty, throttled, late, exact
        self.requests: Counter[str] = Counter()
        """How often each operation was requested."""
        self._rng = random.Random(seed)
        self._first_shards = shards
        self._hash_ranges: dict[str, tuple[float, float]] = {}
        self._hidden: dict[str, int] = {}
        super().__init__(view, wall=self.clock.wall, monotonic=self.clock.monotonic)

    # --- the contract, with faults ---
    def shards(self) -> list[Shard]:
        """Return all shards that are still kept, parents before children, without those that are still hidden."""
        with self._lock:
            shown = [shard for shard in super().shards() if not self._is_hidden(shard.id)]
            self._hidden = {id: looks - 1 for id, looks in self._hidden.items() if looks > 1}
            return shown

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """Return the next changes at an iterator, perhaps none, and the iterator that goes on."""
        with self._lock:
            read = super().read(iterator, limit)
            shard, at, _ = self._iterators[iterator]
            if self._kept[shard].changes and self._rng.random() < self.empty:
                return Read([], self._place(shard, at))
            return read

    # --- what tests do to it ---
    @property
    def sequence(self) -> int:
        """The newest sequence number."""
        return self._sequence

    def every(self) -> list[Shard]:
        """Return all shards, also those that listings do not show yet."""
        with self._lock:
            return [shard.shown() for shard in self._kept.values()]

    def within(self, shard: str) -> list[Change]:
        """Return the changes in a shard, without counting a request."""
        with self._lock:
            return list(self._kept[shard].changes)

    def newest_time(self) -> float:
        """Return the latest time of any change; 0 if there is none."""
        times = [c.created_at.timestamp() for shard in self._kept.values() for c in shard.changes]
        return max(times, default=0.0)

    def shard_of(self, p: str) -> str:
        """Return the open shard that takes the changes of a hash key."""
        with self._lock:
            return self._shard_of(Key(p)).id

    def split(self, shard: str | None = None) -> tuple[str, str]:
        """Close a shard (by default the first open one) and open two children, each for half of its keys."""
        with self._lock:
            closed = self._close(shard)
            low, high = self._hash_ranges[closed]
            middle = (low + high) / 2
            return self._begin(closed, low, middle), self._begin(closed, middle, high)

    def roll(self, shard: str | None = None) -> str:
        """Close a shard and open one child for all of its keys, as DynamoDB does every few hours."""
        with self._lock:
            closed = self._close(shard)
            return self._begin(closed, *self._hash_ranges[closed])

    def trim(self) -> None:
        """Drop changes older than 24 hours, and closed shards without any left."""
        with self._lock:
            oldest = self.clock.wall() - KEPT_SECONDS
            for shard in list(self._kept.values()):
                while shard.changes and shard.changes[0].created_at.timestamp() < oldest:
                    shard.trimmed = int(shard.changes.pop(0).sequence)
                if shard.last is not None and not shard.changes:
                    del self._kept[shard.id]

    def expire(self) -> None:
        """Make all iterators expire, as if 15 minutes had passed."""
        with self._lock:
            self._iterators = {name: (shard, at, -math.inf) for name, (shard, at, _) in self._iterators.items()}

    def replace(self) -> SimulatedChanges:
        """Switch the stream off and on again: this one ends without children; returns its successor."""
        with self._lock:
            for shard in self._kept.values():
                if shard.last is None:
                    self._close(shard.id)
            after = SimulatedChanges(view=self.view, clock=self.clock)
            after._stream = after._current = self._current = f"stream-{int(self._stream[7:]) + 1}"
            return after

    # --- within ---
    def _is_hidden(self, shard: str | None) -> bool:
        """Whether listings do not show a shard yet, or one of its ancestors."""
        return shard in self._kept and (bool(self._hidden.get(shard)) or self._is_hidden(self._kept[shard].parent))

    def _meet(self, operation: str) -> None:
        self.requests[operation] += 1
        if self.throttled and self._rng.random() < self.throttled:
            raise Throttled(f"{operation} was refused for now")

    def _open_shards(self) -> None:
        for n in range(self._first_shards):
            self._begin(None, n / self._first_shards, (n + 1) / self._first_shards)

    def _begin(self, parent: str | None, low: float, high: float) -> str:
        first = self._sequence + 1
        id = f"shardId-{first:020d}-{self._rng.getrandbits(32):08x}"
        self._keep(ShardChanges(id, parent, first))
        self._hash_ranges[id] = low, high
        if parent is not None and self.late:
            self._hidden[id] = self._rng.randint(0, self.late)
        return id

    def _close(self, shard: str | None) -> str:
        still = [s for s in self._kept.values() if s.last is None and shard in (None, s.id)]
        if not still:
            raise NotThere(
                f"no open shard {shard or ''}; there are {[s.id for s in self._kept.values() if not s.last]}"
            )
        self._sequence += 1
        still[0].last = self._sequence
        return still[0].id

    def _shard_of(self, key: Key) -> ShardChanges:
        place = int.from_bytes(blake2b(sortable(key.p), digest_size=6).digest(), "big") / 2**48
        for shard in self._kept.values():
            low, high = self._hash_ranges[shard.id]
            if shard.last is None and low <= place < high:
                return shard
        raise NotThere(f"no open shard takes the changes of {key.p!r}: this stream was replaced")
