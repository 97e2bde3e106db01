"""SimulatedChanges: a table's change stream whose shards split when told to, as no server for tests does.

The rules are DynamoDB's.  A shard takes the changes of some hash keys; when it splits it is closed, and each of its
keys goes to one of two children.  So the changes of one item are always in one line of descent, in order, and a child
must not be read before its parent is exhausted.
"""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal

from tailrace.errors import BadInput, NotThere
from tailrace.storage.changes import Change, Read, Shard, Start, View
from tailrace.storage.evaluation import same
from tailrace.storage.tables import Item, Key
from tailrace.testing.clock import ManualClock

ITERATOR_SECONDS = 15 * 60
KEPT_SECONDS = 24 * 60 * 60


class _Piece:
    """A shard and the keys it takes: those whose hash lies in [low, high)."""

    __slots__ = ("changes", "first", "high", "id", "last", "low", "parent", "trimmed")

    def __init__(self, id: str, parent: str | None, low: float, high: float, first: int) -> None:
        self.id, self.parent, self.low, self.high, self.first = id, parent, low, high, first
        self.last: int | None = None
        self.changes: list[Change] = []
        self.trimmed = 0

    def shown(self) -> Shard:
        return Shard(self.id, self.parent, _text(self.first), None if self.last is None else _text(self.last))


class SimulatedChanges:
    """Keeps the `Changes` contract, and can `split`, `roll` and `trim`.  Calls block and may come from any thread.

    `empty` is how often a read gives nothing though there is something, as DynamoDB's do.
    """

    def __init__(
        self,
        *,
        shards: int = 1,
        view: View = "both",
        clock: ManualClock | None = None,
        empty: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.view, self.clock, self.empty = view, clock or ManualClock(), empty
        self._rng, self._lock = random.Random(seed), threading.RLock()
        self._sequence = 0
        self._pieces: dict[str, _Piece] = {}
        self._iterators: dict[str, tuple[str, int, float]] = {}
        for n in range(shards):
            self._begin(None, n / shards, (n + 1) / shards)

    # --- the contract ---
    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""
        with self._lock:
            return [p.shown() for p in self._pieces.values()]

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard, valid for 15 minutes."""
        with self._lock:
            piece = self._piece(shard)
            at = {"TRIM_HORIZON": 0, "LATEST": self._sequence + 1}.get(start)
            if (at is None) != (sequence is not None and sequence.isdecimal()):
                raise BadInput(f"{start} with sequence {sequence!r}: only AT_ and AFTER_SEQUENCE_NUMBER take one")
            if at is None:
                at = self._number(piece, int(sequence or 0)) + (start == "AFTER_SEQUENCE_NUMBER")
            return self._place(shard, at)

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on."""
        with self._lock:
            shard, at, made = self._iterators.get(iterator, ("", 0, 0.0))
            if not shard:
                raise BadInput(f"{iterator!r} is not an iterator of this stream")
            if self.clock.monotonic() - made > ITERATOR_SECONDS:
                raise NotThere(f"iterator {iterator!r} has expired; make another after the last sequence number read")
            piece = self._piece(shard)
            if 0 < at <= piece.trimmed:
                raise NotThere(f"what was at {iterator!r} has been trimmed; changes are kept for 24 hours")
            if piece.changes and self._rng.random() < self.empty:
                return Read([], self._place(shard, at))
            found = [c for c in piece.changes if int(c.sequence) >= at][:limit]
            at = int(found[-1].sequence) + 1 if found else at
            exhausted = piece.last is not None and not any(int(c.sequence) >= at for c in piece.changes)
            return Read(found, None if exhausted else self._place(shard, at))

    # --- what tests do to it ---
    def capture(self, key: Key, old: Item | None, new: Item | None) -> None:
        """Take down what happened to an item; a write that changed nothing is no change."""
        if same(old, new):
            return
        with self._lock:
            kind: Literal["INSERT", "MODIFY", "REMOVE"] = (
                "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
            )
            shown_new = new if self.view in ("new", "both") else None
            shown_old = old if self.view in ("old", "both") else None
            self._sequence += 1
            at = datetime.fromtimestamp(int(self.clock.wall()), UTC)
            id = f"change-{self._sequence}"
            change = Change(id, kind, _text(self._sequence), at, key, shown_new, shown_old)
            self._open(key).changes.append(change)

    def split(self, shard: str | None = None) -> tuple[str, str]:
        """Close a shard (by default the first open one) and open two children, each for half of its keys."""
        with self._lock:
            piece = self._close(shard)
            middle = (piece.low + piece.high) / 2
            return self._begin(piece.id, piece.low, middle), self._begin(piece.id, middle, piece.high)

    def roll(self, shard: str | None = None) -> str:
        """Close a shard and open one child for all of its keys, as DynamoDB does every few hours."""
        with self._lock:
            piece = self._close(shard)
            return self._begin(piece.id, piece.low, piece.high)

    def trim(self) -> None:
        """Forget changes older than 24 hours, and closed shards without any left."""
        with self._lock:
            oldest = self.clock.wall() - KEPT_SECONDS
            for piece in list(self._pieces.values()):
                while piece.changes and piece.changes[0].created_at.timestamp() < oldest:
                    piece.trimmed = int(piece.changes.pop(0).sequence)
                if piece.last is not None and not piece.changes:
                    del self._pieces[piece.id]

    # --- within ---
    def _begin(self, parent: str | None, low: float, high: float) -> str:
        self._sequence += 1
        id = f"shardId-{self._sequence:020d}-{self._rng.getrandbits(32):08x}"
        self._pieces[id] = _Piece(id, parent, low, high, self._sequence)
        return id

    def _close(self, shard: str | None) -> _Piece:
        still = [p for p in self._pieces.values() if p.last is None and shard in (None, p.id)]
        if not still:
            raise NotThere(
                f"no open shard {shard or ''}; there are {[p.id for p in self._pieces.values() if not p.last]}"
            )
        self._sequence += 1
        still[0].last = self._sequence
        return still[0]

    def _open(self, key: Key) -> _Piece:
        place = int.from_bytes(blake2b(key.p.encode(), digest_size=6).digest(), "big") / 2**48
        return next(p for p in self._pieces.values() if p.last is None and p.low <= place < p.high)

    def _piece(self, shard: str) -> _Piece:
        if shard not in self._pieces:
            raise NotThere(f"shard {shard!r} is not in the stream, or has been trimmed")
        return self._pieces[shard]

    def _number(self, piece: _Piece, number: int) -> int:
        if number < piece.first or (piece.last is not None and number > piece.last):
            raise NotThere(f"sequence number {number} is not in shard {piece.id!r}")
        if number <= piece.trimmed:
            raise NotThere(f"sequence number {number} of shard {piece.id!r} has been trimmed")
        return number

    def _place(self, shard: str, at: int) -> str:
        name = f"iterator-{len(self._iterators)}"
        self._iterators[name] = shard, at, self.clock.monotonic()
        return name


def _text(sequence: int) -> str:
    return f"{sequence:021d}"
