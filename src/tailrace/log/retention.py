"""Retention: the floor rises, then whole pages below it go.

FLOOR   floor[q] = f if it is lower, confirmed; then, oldest page first and only if wholly below the floors, one
        transaction: HEAD first = last + 1 if first = the page's; delete the page if v as read; then its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.coordination.rules import rules
from tailrace.log import head as heads
from tailrace.log.append import Log
from tailrace.log.cleaning import drop
from tailrace.log.head import Head, Page
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Delete, Equals, Less, Set, Update


def raise_floor(log: Log, floors: Mapping[int, int]) -> Steps[Head]:
    """Raise the floor to these offsets where it is lower, never beyond the end; gives the head that shows it."""
    while True:
        head = yield from log.head()
        lower = {q: min(f, head.next[q]) for q, f in floors.items() if head.floor[q] < min(f, head.next[q])}
        if not lower:
            return head
        for q, f in lower.items():
            path = ("floor", str(q))
            when = rules({"floor.less": Less(path, f)})
            yield from guard.attempt(Update(heads.head_key(log.id), (Set(path, f),), when))


def drop_pages(log: Log) -> Steps[int]:
    """Remove the oldest pages while they are wholly below the floors; gives how many."""
    removed = 0
    while True:
        head = yield from log.head()
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, head.first, LAST - 1, limit=1)
        if not items or (page := Page.of(items[0])).first != head.first:
            return removed
        if any(end > head.floor[q] for q, end in page.end.items() if end > page.base[q]):
            return removed
        outcome = yield from guard.attempt(
            Update(heads.head_key(log.id), (Set("first", page.last + 1),), (Equals("first", page.first),)),
            Delete(heads.page_key(log.id, page.first), rules({"drop.v": Equals("v", page.v)})),
        )
        if isinstance(outcome, Written):
            removed += 1
            yield from drop(log, page.entries)
