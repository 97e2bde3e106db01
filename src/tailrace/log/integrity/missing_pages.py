"""Missing pages: distinguishes a lost page from one that is not visible yet, and finds the offsets lost with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.errors import Damaged, Lost
from tailrace.log.format import head as heads
from tailrace.log.format.head import Page
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST


class Gap(NamedTuple):
    """Pages that are lost: the number of the first, the page behind them, and the offsets between."""

    number: int
    after: Page
    lost: tuple[Lost, ...]


def gap_at(log: TopicLog, number: int) -> Steps[Gap | None]:
    """The gap that the page of this number is in, or begins behind; None if there is no gap, or the pages are being
    changed.

    It looks for the page by a linearizable read, and only then reads the pages around it.  If the page has been merged
    since, the page before it, which is read last, stands for it by then; if it has been removed, the head shows
    that."""
    p = heads.head_key(log.id).p
    here = yield from guard.truth(heads.page_key(log.id, number))
    items, _ = yield from guard.read_range(p, 0, max(number - 1, 0), descending=True, limit=1)
    before: Page | None = None
    if items and number:
        item = yield from guard.truth(heads.page_key(log.id, items[0]["first"]))
        if item is None or (before := Page.of(item)).last >= number:
            return None
    head = log.saw((yield from guard.truth(heads.head_key(log.id))))
    if not head.first <= number < head.page:
        return None
    first, due = (before.last + 1, before.end) if before is not None else (head.first, head.floor)
    if here is None:
        items, _ = yield from guard.read_range(p, number, LAST - 1, limit=1)
        after = Page.of(items[0]) if items else head.own
    else:
        after = Page.of(here)
    gap = Gap(first, after, between(due, after.base))
    return gap if here is None or (first == number and gap.lost) else None


def between(due: Mapping[int, int], base: Mapping[int, int]) -> tuple[Lost, ...]:
    """The offsets between the end of one page and the beginning of another; partitions added in between begin at 0."""
    return tuple(Lost(q, due.get(q, 0), base[q]) for q in sorted(base) if base[q] > due.get(q, 0))


def pages_of(gap: Gap) -> str:
    """The pages of a gap, in words for people."""
    last = gap.after.first - 1
    if last < gap.number:
        return f"what should be before page {gap.number}"
    return f"page {gap.number}" if last == gap.number else f"pages {gap.number} to {last}"


def damage(log: TopicLog, gap: Gap) -> Damaged:
    """The error that names a gap: lost pages, and the offsets lost with them."""
    lost = f", and with it {', '.join(map(str, gap.lost))}" if gap.lost else ""
    return Damaged(
        f"{pages_of(gap)} of the references of {log.name!r} is missing{lost}; restore it from a backup",
        where=f"item {heads.head_key(log.id).p}/{gap.number}",
        topic=log.name,
        lost=gap.lost,
    )
