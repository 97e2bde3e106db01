"""Shared: whether two processes, perhaps on two hosts, see the same home.

$Shared-<who>, 0    mark: the last one that `who` has written

Two hosts can have different folders under the same path, and a copy of a home has the same id.  So one process writes a
new mark, and the other looks for it.
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update


def leave(who: str, mark: str) -> Steps[None]:
    """Write a mark, in place of the former one."""
    key = Key(f"$Shared-{who}")

    def plan(item: Item | None) -> tuple[Put | Update, ...] | None:
        if item is None:
            return (Put(key, {"mark": mark}, (Absent(),)),)
        return None if item["mark"] == mark else (Update(key, (Set("mark", mark),), (Equals("mark", item["mark"]),)),)

    yield from guard.settle(key, plan)


def sees(who: str, mark: str) -> Steps[bool]:
    """Whether this is the last mark that `who` has written."""
    item = yield from guard.read(Key(f"$Shared-{who}"))
    return item is not None and item["mark"] == mark
