"""Retention: raises the floor, then removes the pages wholly below it.

FLOOR   floor[q] = f if it is lower, confirmed; then, oldest page first and only if wholly below the floors, one
        transaction: HEAD first = last + 1 if first = the page's; delete the page if v as read; then its bytes.

A page is removed only as a whole: by time, once its latest record is old enough; by bytes, while enough is left without
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.coordination.rules import in_force, rules
from tailrace.errors import Damaged, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head, Page
from tailrace.log.format.manifest import expand
from tailrace.log.integrity import missing_pages
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.clean import drop
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Delete, Equals, Less, Set, Update


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What retention keeps: records since a time (milliseconds), a number of bytes, and whatever a holder still
    needs."""

    since: int | None = None
    bytes: int | None = None
    held: Mapping[int, int] | None = None
    """The first offset of each partition that a holder still needs; None: there is no holder."""

    def may_go(self, page: Page, left: int) -> bool:
        """Whether the oldest page may be removed, given how many bytes are left without it."""
        if self.holds(page):
            return False
        old = self.since is not None and page.latest < self.since
        return old or (self.bytes is not None and left >= self.bytes)

    def holds(self, page: Page) -> bool:
        """Whether a holder still needs part of a page."""
        if self.held is None or not in_force("upkeep.held"):
            return False
        return any(end > self.held.get(q, 0) for q, end in page.end.items())


def retain(log: TopicLog, keep: RetentionRule) -> Steps[tuple[int, int]]:
    """Remove the oldest pages that need not be kept; returns how many records and bytes they had."""
    if keep.since is None and keep.bytes is None:
        return 0, 0
    left = (yield from stored_bytes(log)) if keep.bytes is not None else 0
    head = yield from log.head()
    floors, number, removed = dict(head.floor), head.first, 0
    while number < head.page:
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, number, LAST - 1, limit=1)
        if not items:
            break
        page = Page.of(items[0])
        size = yield from page_bytes(log, page)
        if not keep.may_go(page, left - size):
            break
        floors, left, removed, number = page.end, left - size, removed + size, page.last + 1
    yield from raise_floor(log, floors)
    yield from drop_pages(log)
    return sum(max(0, floors[q] - head.floor[q]) for q in floors), removed


def stored_bytes(log: TopicLog) -> Steps[int]:
    """The bytes of all records of a topic, which retention by size compares with its limit."""
    head = yield from log.head()
    total, low = (yield from page_bytes(log, head.own)), head.first
    while low < head.page:
        items, more = yield from guard.read_range(heads.head_key(log.id).p, low, head.page - 1)
        for item in items:
            total += yield from page_bytes(log, Page.of(item))
        low = head.page if more is None else more + 1
    return total


def page_bytes(log: TopicLog, page: Page) -> Steps[int]:
    """The bytes of the records on a page, which retention by size counts; the chunks of a manifest count only if its
    list can be read."""
    total = 0
    for entry in page.entries:
        try:
            total += sum(e.size for e in (yield from expand(log.id, entry)))
        except (ObjectMissing, Damaged):
            continue
    return total


def raise_floor(log: TopicLog, floors: Mapping[int, int]) -> Steps[Head]:
    """Raise the floor to these offsets where it is lower, never beyond the end; returns the head that shows it."""
    while True:
        head = yield from log.head()
        lower = {q: min(f, head.next[q]) for q, f in floors.items() if head.floor[q] < min(f, head.next[q])}
        if not lower:
            return head
        for q, f in lower.items():
            path = ("floor", str(q))
            when = rules({"floor.less": Less(path, f)})
            yield from guard.attempt(Update(heads.head_key(log.id), (Set(path, f),), when))


def drop_pages(log: TopicLog) -> Steps[int]:
    """Remove the oldest pages while they are wholly below the floors; returns how many."""
    removed = 0
    while True:
        head = yield from log.head()
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, head.first, LAST - 1, limit=1)
        if not items or (page := Page.of(items[0])).first != head.first:
            if (yield from _drop_gap(log, head)):
                continue
            return removed
        above = any(end > head.floor[q] for q, end in page.end.items() if end > page.base[q])
        if above and in_force("retain.below_floor"):
            return removed
        outcome = yield from guard.attempt(
            Update(heads.head_key(log.id), (Set("first", page.last + 1),), (Equals("first", page.first),)),
            Delete(heads.page_key(log.id, page.first), rules({"drop.v": Equals("v", page.revision)})),
        )
        if isinstance(outcome, Written):
            removed += 1
            yield from drop(log, page.entries)


def _drop_gap(log: TopicLog, head: Head) -> Steps[bool]:
    """Skip lost pages, once all their offsets are below the floors."""
    gap = (yield from missing_pages.gap_at(log, head.first)) if head.first < head.page else None
    if gap is None or any(end > head.floor[q] for q, _, end in gap.lost):
        return False
    key = heads.head_key(log.id)
    yield from guard.attempt(Update(key, (Set("first", gap.after.first),), (Equals("first", head.first),)))
    return True
