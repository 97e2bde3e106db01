"""Reach marks: whether two processes, perhaps on two hosts, see the same home.

$Shared-<who>, 0    mark: the last one that `who` has written

Two hosts can have different folders under the same path, and a copy of a home has the same id.  So one process writes a
new mark, and the other looks for it.
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Key


def leave(who: str, mark: str) -> Steps[None]:
    """Write a mark, in place of the one before."""
    yield from guard.settle_value(Key(f"$Shared-{who}"), "mark", mark)


def sees(who: str, mark: str) -> Steps[bool]:
    """Whether this is the last mark that `who` has written."""
    item = yield from guard.read(Key(f"$Shared-{who}"))
    return item is not None and item["mark"] == mark
