"""Source append: the records of a serial source and the position up to which it was read, in one write.

    $Reader-<name>, 0    seq, position, id, page (and what else the source wants kept with them)

READER: APPEND + {seq += 1, position, id, page if seq = seen}.  The append was mine if the stored id is mine.  If the
item moved and the id is not mine, another life has the source: this one drops the batch and continues from the stored
position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.coordination.rules import rules
from tailrace.log.write.guarded_append import SequenceGuard, commit_guarded, open_guard
from tailrace.log.write.placement import Placed
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Add, Change, Equals, Item, Key, Path, Set, Update


def reader_key(name: str) -> Key:
    """The key of the item with a serial source's position."""
    return Key(f"$Reader-{name}")


def log_name(name: str) -> str:
    """The name of a pipeline's commit log: the topic that its source is read into."""
    return f"{name}-log"


def open_reader(name: str, position: Any) -> Steps[Item]:
    """A source's item; the first use creates it with this position."""
    return (yield from open_guard(reader_key(name), {"seq": 0, "position": position, "id": "", "page": 0}))


@dataclass(slots=True)
class SourceGuard(SequenceGuard):
    """The guard of one batch of a source: its new position, and other attributes to set with it."""

    position: Any
    others: Mapping[Path, Any]

    def action(self, id: str, page: int) -> Update:
        """The write whose condition is that no other process has moved the position since it was seen."""
        changes: tuple[Change, ...] = (
            Add("seq", 1),
            Set("position", self.position),
            Set("id", id),
            Set("page", page),
            *(Set(path, value) for path, value in self.others.items()),
        )
        return Update(self.key, changes, rules({"reader.seq": Equals("seq", self.seen["seq"])}))


def take_in(placed: list[Placed], progress: SourceGuard) -> Steps[tuple[bool, Item]]:
    """Append a batch and its position, once.  (True, the item) if this life did, else (False, the present item)."""
    won, item = yield from commit_guarded(placed, progress)
    return won, item if item is not None else (yield from progress.read())
