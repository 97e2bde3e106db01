"""Skimming: how far one gets with so many bytes, told by the entries alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.log import head as heads
from tailrace.log.append import Log, look
from tailrace.log.head import Head, Page
from tailrace.log.reader import seek
from tailrace.storage.calls import Steps


def skim(log: Log, start: Mapping[int, int], until: Mapping[int, int], max_bytes: int) -> Steps[dict[int, int]]:
    """The offsets after the runs, from `start` on and together of at most `max_bytes`, but at least one."""
    head = yield from log.head()
    here, left = dict(start), max_bytes
    number = yield from _first_page(log, head, start)
    while left > 0 and number <= head.page:
        page = head.own if number == head.page else (yield from look(log, number))
        if page is None:
            number = (yield from log.head()).first
            continue
        for q, end, length in _runs(page, start, until):
            if length > left and here != start:
                return here
            here[q], left = max(here[q], min(end, until[q])), left - length
        number = page.last + 1
    return here


def _first_page(log: Log, head: Head, start: Mapping[int, int]) -> Steps[int]:
    first = head.page
    for q, offset in start.items():
        if offset < head.own.base[q]:
            page = yield from seek(log, head, q, offset)
            first = min(first, page.first if page else head.first)
    return first


def _runs(page: Page, start: Mapping[int, int], until: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """(partition, the offset after it, bytes) of each run with something between."""
    at = dict(page.base)
    for entry in page.entries:
        for run in entry.runs:
            q = run.partition
            end = at[q] + run.count
            if q in start and at[q] < until[q] and start[q] < end:
                yield q, end, run.length
        at = heads.plus(at, entry.counts)
