"""Gaps: how far a reader gets with a number of bytes, and whether compaction has removed records there, judged by
entries alone."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.coordination import guard
from tailrace.log.format.chunk import OFFSETS
from tailrace.log.format.head import Head, Page, head_key, plus
from tailrace.log.format.manifest import expand
from tailrace.log.read.pages import look_over
from tailrace.log.read.seek import expanded, seek
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps


def skim(log: TopicLog, start: Mapping[int, int], until: Mapping[int, int], max_bytes: int) -> Steps[dict[int, int]]:
    """How far a reader gets from `start` with at most `max_bytes`, but at least one run: the offsets after the runs it
    takes."""
    head = yield from log.head()
    here, left = dict(start), max_bytes
    number = yield from _first_page(log, head, start)
    while left > 0 and number <= head.page:
        page = head.own if number == head.page else (yield from look_over(log, number))
        if page is None:
            number = (yield from log.head()).first
            continue
        for q, end, length in (yield from _runs(log, page, start, until)):
            if length > left and here != start:
                return here
            here[q], left = max(here[q], min(end, until[q])), left - length
        number = page.last + 1
    return here


def _first_page(log: TopicLog, head: Head, start: Mapping[int, int]) -> Steps[int]:
    first = head.page
    for q, offset in start.items():
        if offset < head.own.base[q]:
            page = yield from seek(log, head, q, offset)
            first = min(first, page.first if page else head.first)
    return first


def _runs(
    log: TopicLog, page: Page, start: Mapping[int, int], until: Mapping[int, int]
) -> Steps[list[tuple[int, int, int]]]:
    """Each run that still has bytes, as (partition, the offset after it, bytes)."""
    out, at = [], plus(page.base, {})
    for entry in page.entries:
        ends, here = plus(at, entry.counts), {q: at[q] for q in start}
        if any(before < until[q] and start[q] < ends[q] for q, before in here.items()):
            for run in (run for e in (yield from expanded(log, entry, here)) for run in e.runs):
                q = run.partition
                before, at[q] = at[q], at[q] + run.count
                if q in start and before < until[q] and start[q] < at[q]:
                    out.append((q, at[q], run.length))
        at = ends
    return out


def thinned(log: TopicLog, since: Mapping[int, int] | None = None) -> Steps[bool]:
    """Whether compaction has removed records, or has worked on pages that end behind these offsets: only then does a
    chunk store its records' offsets."""
    head = yield from log.head()
    low = head.first
    while low < head.page:
        items, more = yield from guard.read_range(head_key(log.id).p, low, head.page - 1)
        pages = [page for page in map(Page.of, items) if since is None or _ends_behind(page, since)]
        for entry in (entry for page in pages for entry in page.entries):
            if any(chunk.kind & OFFSETS for chunk in (yield from expand(log.id, entry))):
                return True
        low = head.page if more is None else more + 1
    return False


def _ends_behind(page: Page, offsets: Mapping[int, int]) -> bool:
    return any(end > offsets.get(q, 0) for q, end in page.end.items())
