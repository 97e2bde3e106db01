"""Pages: finds a page by its number, merged or not.

LOOK    newest page item with i <= page: it covers the page; head.first > page → retention removed it;
        else read again, since reads of several items may be torn; a lost page is `Damaged`
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.errors import Damaged
from tailrace.log.format import head as heads
from tailrace.log.format.head import Page
from tailrace.log.integrity import missing_pages
from tailrace.log.integrity.quarantine import covering
from tailrace.log.topic_log import TopicLog
from tailrace.storage import calls
from tailrace.storage.calls import Steps


def look(log: TopicLog, number: int) -> Steps[Page | None]:
    """LOOK: the page that covers this number, merged or not; None if retention removed it."""
    p, torn = heads.head_key(log.id).p, False
    while True:
        items, _ = yield from guard.read_range(p, 0, number, descending=True, limit=1)
        if items and (page := Page.of(items[0])).last >= number:
            return page
        if (yield from log.head()).first > number:
            return None
        if torn and (gap := (yield from missing_pages.gap_at(log, number))) is not None:
            raise missing_pages.damage(log, gap)
        torn = True  # reads of several items may be
        yield from calls.pause(0)


def look_over(log: TopicLog, number: int) -> Steps[Page | None]:
    """LOOK for readers: if the page is lost, and an operator has quarantined the loss, the page behind it."""
    try:
        return (yield from look(log, number))
    except Damaged:
        gap = yield from missing_pages.gap_at(log, number)
        if gap is None or (yield from covering(log, gap.lost)) is None:
            raise
        return gap.after
