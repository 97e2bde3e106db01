"""Numbered appends, for a writer that repeats an append after a failure and may skip numbers.

    $Producer-<name>, 0    seq, id, page, topics[ids]

As with a named producer, one transaction appends and sets {seq = s, id, page}; here if seq < s, since a Spark query
skips the numbers of empty batches.  There is no epoch: the content of a number is fixed beforehand (Spark has written
it to its offset log), so it does not matter which life of the writer comes first; the others find seq >= s and have
nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.coordination.rules import rules
from tailrace.log.write.guarded_append import SequenceGuard, commit_guarded, open_guard
from tailrace.log.write.placement import Placed
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item, Key, Less, Set, Update


@dataclass(slots=True)
class NumberGuard(SequenceGuard):
    """The guard of one numbered append."""

    seq: int
    topics: list[str]

    def action(self, id: str, page: int) -> Update:
        """The write whose condition is that no append with this number or a later one has happened."""
        changes = (Set("seq", self.seq), Set("id", id), Set("page", page), Set("topics", self.topics))
        return Update(self.key, changes, rules({"once.seq": Less("seq", self.seq)}))


def number_key(name: str) -> Key:
    """The key of the item of a name."""
    return Key(f"$Producer-{name}")


def stored(name: str) -> Steps[Item]:
    """Read the item of a name with its last append number; the first use creates it."""
    return (yield from open_guard(number_key(name), {"seq": 0, "id": "", "page": 0, "topics": []}))


def append_once(name: str, seq: int, placed: Sequence[Placed]) -> Steps[Item | None]:
    """Append these, unless append number `seq` of this name, or a later one, has happened; then returns the name's
    item."""
    topics = sorted(p.log.id for p in placed)
    item = yield from stored(name)
    while item["seq"] < seq:
        won, now = yield from commit_guarded(placed, NumberGuard(number_key(name), item, seq, topics))
        if won:
            return None
        assert now is not None
        item = now
    return item
