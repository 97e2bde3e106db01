"""Intake: records of a serial source, and how far it has been read, in one write.

    $Reader-<name>, 0    seq, position, id, page (and what else the source wants kept with them)

READER: APPEND + {seq += 1, position, id, page if seq = seen}.  It was mine if the stored id is mine.  Moved and not
mine: another life has the source; the batch is thrown away, and reading goes on from the stored position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.rules import rules
from tailrace.log.append import Placed, commit_guarded
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Change, Equals, Item, Key, Path, Put, Set, Update


def reader_key(name: str) -> Key:
    """Where a source's position is."""
    return Key(f"$Reader-{name}")


def log_name(name: str) -> str:
    """The name of the topic that a pipeline's source is taken in to: its commit log."""
    return f"{name}-log"


def open_reader(name: str, position: Any) -> Steps[Item]:
    """A source's item; made with this position if it is read for the first time."""
    key = reader_key(name)
    while (item := (yield from guard.read(key))) is None:
        fresh = {"seq": 0, "position": position, "id": "", "page": 0}
        yield from guard.attempt(Put(key, fresh, (Absent(),)))
    return item


@dataclass(slots=True)
class Progress:
    """The guard of one batch of a source: its new position, and other attributes to set with it."""

    name: str
    seen: Item
    position: Any
    others: Mapping[Path, Any]

    def action(self, id: str, page: int) -> Update:
        """Nobody has moved the position since it was seen."""
        changes: tuple[Change, ...] = (
            Add("seq", 1),
            Set("position", self.position),
            Set("id", id),
            Set("page", page),
            *(Set(path, value) for path, value in self.others.items()),
        )
        return Update(reader_key(self.name), changes, rules({"reader.seq": Equals("seq", self.seen["seq"])}))

    def read(self) -> Steps[Item]:
        """The source's item as stored."""
        item = yield from guard.read(reader_key(self.name))
        assert item is not None, "a reader's item is never removed"
        return item

    def moved(self, item: Item) -> bool:
        """Another life has stored a batch since."""
        return bool(item["seq"] != self.seen["seq"])


def take_in(placed: list[Placed], progress: Progress) -> Steps[tuple[bool, Item]]:
    """Append a batch and its position, once.  (True, the item) if this life did; else (False, where it now is)."""
    won, item = yield from commit_guarded(placed, progress)
    return won, item if item is not None else (yield from progress.read())
