"""Looking: after a missing answer, did an append happen, on which offsets, and can it still?

LOOK    newest page item with i <= page: it covers the page, so search it, merged ids too; head.first > page → gone;
        else read again, since reads of several items may be torn; one that is lost is `Damaged`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged
from tailrace.log import head as heads
from tailrace.log import missing
from tailrace.log.head import Head, Page
from tailrace.log.quarantine import covering
from tailrace.storage import calls
from tailrace.storage.calls import Steps

if TYPE_CHECKING:
    from tailrace.log.append import Log

GONE: Mapping[int, int] = {}
"""The offsets of a chunk whose page retention has removed."""


def find(log: Log, head: Head, id: str, gen: int, pages: Iterable[int]) -> Steps[Mapping[int, int] | None]:
    """The first offsets of a chunk, as of a head; GONE if its page was removed, or has forgotten; None if it is not
    there.

    `pages` are those that attempts in doubt were sent to: one that the head has left without the chunk can never take
    it.  With no attempt in doubt only the head is looked at, since no page can have it.  Merging forgets only ids of
    chunks that are behind the fence."""
    if id in head.ids:
        return head.own.offsets_of(id)
    gone = False
    for number in sorted(n for n in pages if n < head.page):
        try:
            page = yield from look(log, number)
        except Damaged:  # whoever reads there is told; what was on it, nobody can tell
            page = None
        if page is None:
            gone = True
        elif (offsets := page.offsets_of(id)) is not None:
            return offsets
        elif page.forgot and in_force("look.forgot"):
            gone = gone or gen < (yield from log.head()).gc
    return GONE if gone else None


def look(log: Log, number: int) -> Steps[Page | None]:
    """LOOK: the page that covers this number, merged or not; None if retention removed it."""
    p, torn = heads.head_key(log.id).p, False
    while True:
        items, _ = yield from guard.read_range(p, 0, number, descending=True, limit=1)
        if items and (page := Page.of(items[0])).last >= number:
            return page
        if (yield from log.head()).first > number:
            return None
        if torn and (gap := (yield from missing.gap_at(log, number))) is not None:
            raise missing.damage(log, gap)
        torn = True  # reads of several items may be
        yield from calls.pause(0)


def look_over(log: Log, number: int) -> Steps[Page | None]:
    """The same for a reader: where the page is lost and the loss quarantined, the page behind it."""
    try:
        return (yield from look(log, number))
    except Damaged:
        gap = yield from missing.gap_at(log, number)
        if gap is None or (yield from covering(log, gap.lost)) is None:
            raise
        return gap.after
