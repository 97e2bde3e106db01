"""MemoryChanges: the change stream of a table in memory, in the shape of DynamoDB Streams, as one shard."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from tailrace.errors import BadInput, IteratorExpired, NotThere, Trimmed
from tailrace.storage.changes import Change, Read, Shard, Start, View
from tailrace.storage.evaluation import same
from tailrace.storage.tables import Item, Key

ITERATOR_SECONDS = 15 * 60


class ShardChanges:
    """A shard and its changes.  Sequence numbers up to `trimmed` are no longer kept."""

    __slots__ = ("changes", "first", "id", "last", "parent", "trimmed")

    def __init__(self, id: str, parent: str | None, first: int) -> None:
        self.id, self.parent, self.first = id, parent, first
        self.last: int | None = None
        self.changes: list[Change] = []
        self.trimmed = 0

    def shown(self) -> Shard:
        """The shard in the form that a listing returns."""
        last = None if self.last is None else sequence_text(self.last)
        return Shard(self.id, self.parent, sequence_text(self.first), last)


class MemoryChanges:
    """Keeps the `Changes` contract.  Calls block and may come from any thread."""

    exact = True
    """Whether `latest` returns an exact place."""

    def __init__(
        self,
        view: View = "both",
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.view, self._wall, self._monotonic = view, wall, monotonic
        self._stream, self._current = "stream-1", "stream-1"
        self._lock = threading.RLock()
        self._sequence = 0
        self._kept: dict[str, ShardChanges] = {}
        self._iterators: dict[str, tuple[str, int, float]] = {}
        self._open_shards()

    # --- the contract ---
    @property
    def stream(self) -> str:
        """The id of this stream."""
        return self._stream

    def current(self) -> str | None:
        """The id of the stream that the table has now."""
        with self._lock:
            self._meet("current")
            return self._current

    def time(self) -> float:
        """The clock that dates the changes, in whole seconds as DynamoDB's."""
        return float(int(self._wall()))

    def latest(self, shard: str) -> tuple[Start, str | None]:
        """The end of a shard: exact if this stream is, else "LATEST"."""
        with self._lock:
            kept = self._shard(shard)
            if not self.exact:
                return "LATEST", None
            newest = int(kept.changes[-1].sequence) if kept.changes else kept.trimmed
            return ("AFTER_SEQUENCE_NUMBER", sequence_text(newest)) if newest else ("TRIM_HORIZON", None)

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""
        with self._lock:
            self._meet("shards")
            return [kept.shown() for kept in self._kept.values()]

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard, valid for 15 minutes."""
        with self._lock:
            self._meet("iterator")
            kept = self._shard(shard)
            at = {"TRIM_HORIZON": 0, "LATEST": self._sequence + 1}.get(start)
            if (at is None) != (sequence is not None and sequence.isdecimal()):
                raise BadInput(f"{start} with sequence {sequence!r}: only AT_ and AFTER_SEQUENCE_NUMBER take one")
            if at is None:
                at = self._number(kept, int(sequence or 0)) + (start == "AFTER_SEQUENCE_NUMBER")
            return self._place(shard, at)

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on."""
        with self._lock:
            self._meet("read")
            shard, at, made = self._iterators.get(iterator, ("", 0, 0.0))
            if not shard:
                raise BadInput(f"{iterator!r} is not an iterator of this stream")
            if self._monotonic() - made > ITERATOR_SECONDS:
                raise IteratorExpired(
                    f"iterator {iterator!r} has expired; make another after the last sequence number read"
                )
            kept = self._shard(shard)
            if 0 < at <= kept.trimmed:
                raise Trimmed(f"the changes at {iterator!r} have been trimmed; changes are kept for 24 hours")
            first = bisect_left(kept.changes, sequence_text(at), key=lambda change: change.sequence)
            found = kept.changes[first : first + limit]
            at = int(found[-1].sequence) + 1 if found else at
            exhausted = kept.last is not None and first + len(found) == len(kept.changes)
            return Read(found, None if exhausted else self._place(shard, at))

    # --- what the table calls ---
    def capture(self, key: Key, old: Item | None, new: Item | None) -> None:
        """Record a change of an item; a write that left the item as it was is no change."""
        if same(old, new):
            return
        with self._lock:
            kind: Literal["INSERT", "MODIFY", "REMOVE"] = (
                "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
            )
            shown_new = new if self.view in ("new", "both") else None
            shown_old = old if self.view in ("old", "both") else None
            self._sequence += 1
            at = datetime.fromtimestamp(int(self._wall()), UTC)
            id = f"change-{self._sequence}"
            change = Change(id, kind, sequence_text(self._sequence), at, key, shown_new, shown_old)
            self._shard_of(key).changes.append(change)

    # --- within ---
    def _meet(self, operation: str) -> None:
        """Called first by every request; a simulation counts and refuses requests here."""

    def _open_shards(self) -> None:
        self._keep(ShardChanges("shardId-00000000000000000001", None, 1))

    def _shard_of(self, key: Key) -> ShardChanges:
        """The open shard that takes the changes of a key."""
        return next(iter(self._kept.values()))

    def _keep(self, shard: ShardChanges) -> None:
        self._sequence = shard.first
        self._kept[shard.id] = shard

    def _shard(self, id: str) -> ShardChanges:
        if id not in self._kept:
            raise NotThere(f"shard {id!r} is not in the stream, or has been trimmed")
        return self._kept[id]

    def _number(self, shard: ShardChanges, number: int) -> int:
        if not shard.first <= number <= (shard.last or self._sequence):
            raise Trimmed(f"sequence number {number} is not in shard {shard.id!r}")
        if number < shard.trimmed:
            raise Trimmed(f"sequence number {number} of shard {shard.id!r} has been trimmed")
        return number

    def _place(self, shard: str, at: int) -> str:
        name = f"iterator-{len(self._iterators)}"
        self._iterators[name] = shard, at, self._monotonic()
        return name


def sequence_text(sequence: int) -> str:
    """The sequence number of a change as it is shown: texts compare as their numbers do."""
    return f"{sequence:021d}"
