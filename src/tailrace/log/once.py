"""Once: numbered appends of a writer that repeats them after a failure and may leave numbers out.

    $Producer-<name>, 0    seq, id, page, topics[ids]

As with a named producer, one transaction appends and sets {seq = s, id, page}; here if seq < s, since a Spark query
skips the numbers of empty batches.  There is no epoch: what a number holds was fixed before (Spark has written it down
in its offset log), so it does not matter which life of the writer comes first; the others find seq >= s and are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.coordination.rules import rules
from tailrace.log.append import Placed, commit_guarded
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Item, Key, Less, Put, Set, Update


@dataclass(slots=True)
class Number:
    """The guard of one numbered append."""

    name: str
    seq: int
    topics: list[str]
    seen: Item

    @property
    def key(self) -> Key:
        """Where the name's item is."""
        return Key(f"$Producer-{self.name}")

    def action(self, id: str, page: int) -> Update:
        """No append with this number or a later one is there yet."""
        changes = (Set("seq", self.seq), Set("id", id), Set("page", page), Set("topics", self.topics))
        return Update(self.key, changes, rules({"once.seq": Less("seq", self.seq)}))

    def read(self) -> Steps[Item]:
        """The name's item as stored."""
        item = yield from guard.read(self.key)
        assert item is not None, "a producer's item is never removed"
        return item

    def moved(self, item: Item) -> bool:
        """Somebody has appended under the name since."""
        return bool(item["seq"] != self.seen["seq"])


def stored(name: str) -> Steps[Item]:
    """The item of a name; made if it is used for the first time."""
    key = Key(f"$Producer-{name}")
    while (item := (yield from guard.read(key))) is None:
        fresh = {"seq": 0, "id": "", "page": 0, "topics": []}
        yield from guard.attempt(Put(key, fresh, (Absent(),)))
    return item


def append_once(name: str, seq: int, placed: Sequence[Placed]) -> Steps[Item | None]:
    """Append these, unless number `seq` of the name, or a later one, is there: then its item is the answer."""
    topics = sorted(p.log.id for p in placed)
    item = yield from stored(name)
    while item["seq"] < seq:
        won, now = yield from commit_guarded(placed, Number(name, seq, topics, item))
        if won:
            return None
        assert now is not None
        item = now
    return item
