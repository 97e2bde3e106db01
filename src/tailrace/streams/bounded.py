"""Bounded streams: what a reader delivered between one token and a later one, delivered again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tailrace.errors import PositionLost
from tailrace.storage.changes import Changes, ForwardedChanges, Read, Shard, Start
from tailrace.streams.stream import Stream
from tailrace.streams.token import JSON, Token, decode

PAUSE_SECONDS = 0.01


class Bounded(ForwardedChanges):
    """The `Changes` of a table up to the places of a token, as if nothing had come after them."""

    def __init__(self, changes: Changes, end: Token) -> None:
        super().__init__(changes)
        self._ends = {place.shard: place.after for place in end.shards}
        self.reached: set[str] = {shard for shard, after in self._ends.items() if after is None}
        """Shards that were read up to the token."""

    def shards(self) -> list[Shard]:
        """Return the token's shards and their ancestors; when the token was taken, no other shard had begun or
        mattered."""
        known = {shard.id: shard for shard in self._changes.shards()}
        line, wanted = [shard for shard in self._ends if shard in known], set()
        while line:
            shard = line.pop()
            wanted.add(shard)
            parent = known[shard].parent
            if parent is not None and parent in known:
                line.append(parent)
        return [shard for shard in known.values() if shard.id in wanted]

    def check(self, trimmed: list[str]) -> None:
        """Raise `PositionLost` if a part of the stretch is not kept any more."""
        gone = trimmed or sorted(self._ends.keys() - {shard.id for shard in self._changes.shards()})
        if gone:
            raise PositionLost(
                f"changes between the two tokens are gone with the shard {gone[0]}; changes are kept for 24 hours. "
                'Start at "trim_horizon", and compare with the table itself'
            )

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """Return an iterator that begins with the shard's name, because `read` gets nothing but the iterator."""
        end = self._ends.get(shard)
        if end is not None and sequence is not None and int(sequence) >= int(end):
            self.reached.add(shard)
        return f"{shard}\n{self._changes.iterator(shard, start, sequence)}"

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """Return the next changes, none behind the token."""
        shard, _, inner = iterator.partition("\n")
        if shard in self.reached:
            return Read([], iterator)
        page = self._changes.read(inner, limit)
        end = self._ends.get(shard)
        if end is None:
            return Read(page.changes, None if page.next is None else f"{shard}\n{page.next}")
        kept = [change for change in page.changes if int(change.sequence) <= int(end)]
        if len(kept) < len(page.changes) or (kept and kept[-1].sequence == end) or page.next is None:
            self.reached.add(shard)
        return Read(kept, f"{shard}\n{page.next or inner}")


def between(changes: Changes, start: JSON, end: JSON, *, table: str, columns: Any) -> Iterator[Any]:
    """Yield Arrow batches of the changes behind one token and not behind a later token of the same reader."""
    bounded = Bounded(changes, decode(end, table, changes.stream))
    with Stream(bounded, start, table=table, make=lambda change: change, columns=columns) as stream:
        bounded.check(stream.trimmed)
        while True:
            yield from stream.batches()
            bounded.check(stream.trimmed)
            if stream.shards <= bounded.reached:
                return
            time.sleep(PAUSE_SECONDS)
