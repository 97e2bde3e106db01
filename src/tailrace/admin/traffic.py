"""Traffic: the chunks, records and bytes lately appended to a topic, counted from its pages.

A page has an entry for each chunk, and a merged entry lists the chunks that it replaced, unless it has forgotten them.
So the pages have the commits of all producers in all processes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import OFFSETS
from tailrace.log.format.head import ChunkEntry, Page
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps

DAY_MS = 86_400_000
MIN_COUNTED_MS = 60_000
"""The shortest time from which the traffic of a day is estimated."""
MAX_PAGES = 500
"""The most pages that are read."""


@dataclass(slots=True)
class Traffic:
    """The chunks, records and bytes that were appended within `seconds` up to the newest record."""

    chunks: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_a_day(self) -> int:
        """The bytes that a day at this rate has."""
        return round(self.bytes * DAY_MS / 1000 / self.seconds)

    @property
    def chunk_bytes(self) -> int:
        """The mean size of a chunk; at least 1."""
        return max(1, self.bytes // self.chunks)


def traffic(log: TopicLog) -> Steps[Traffic | None]:
    """The traffic of the day up to the newest record, as far back as the pages still count chunks; None if that is less
    than a minute."""
    head = yield from log.head()
    out, page = Traffic(), head.own
    newest = oldest = max(head.closed_latest, page.latest)
    for _ in range(MAX_PAGES):
        for entry in reversed(page.entries):
            if entry.latest < newest - DAY_MS or _uncounted(entry):
                return _over(out, newest, oldest)
            _count(out, entry)
            oldest = min([oldest, *(run.latest - run.span for run in entry.runs if run.length)])
        p, low, high = heads.head_key(log.id).p, head.first, page.first - 1
        found, _more = yield from guard.read_range(p, low, high, descending=True, limit=1)
        if not found:
            break
        page = Page.of(found[0])
    return _over(out, newest, oldest)


def _uncounted(entry: ChunkEntry) -> bool:
    """Whether an entry no longer says how many chunks, or bytes, were appended for it."""
    return bool(entry.kind & OFFSETS) or any(id == "" for id, _ in entry.made_of)


def _count(out: Traffic, entry: ChunkEntry) -> None:
    out.chunks += len(entry.made_of) or 1
    out.records += sum(entry.counts.values())
    out.bytes += entry.size


def _over(out: Traffic, newest: int, oldest: int) -> Traffic | None:
    out.seconds = (newest - oldest) / 1000
    return out if newest - oldest >= MIN_COUNTED_MS else None
