"""Lag: what a streaming query has read in its last batch, and how far behind the topics it is, by partition.

A query's own progress reports it for every batch, for listeners as well: `latestOffset` of its source has, beside the
ends of the topics, {"orders": {…, "behind": {"0": {"records": 4, "seconds": 1.5}}}}.  The seconds count from when the
oldest record of the next chunk was written, which its entry says; `lag` looks at the next record itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from tailrace.home import Home
from tailrace.log.format.head import Head, Page
from tailrace.log.read.reader import Reader
from tailrace.log.read.seek import seek
from tailrace.log.topic_log import TopicLog
from tailrace.spark.runtime.homes import home_at, settled
from tailrace.spark.source.offsets import Json, numbers, to_json
from tailrace.spark.source.topics import TopicExtent, log_of
from tailrace.storage.calls import Steps


class QueryLag(NamedTuple):
    """One partition of a query: the rows of the last batch, the next offset to be read, and how many records and
    seconds that is behind the end.  Seconds count from when the oldest unread record was written; 0 when all is
    read."""

    topic: str
    partition: int
    rows: int
    offset: int
    records: int
    seconds: float


def lag(query: StreamingQuery, *, home: str | os.PathLike[str] | None = None) -> list[QueryLag]:
    """How a query is doing, as of its last progress and the topics' ends now; an empty list before the first batch.

    `home` is the one that the query reads from."""
    progress = query.lastProgress
    here = home_at(settled(None if home is None else os.fspath(home)))
    return [one for source in progress.sources for one in _of_source(here, source)] if progress else []


def _of_source(home: Home, source: Any) -> Iterator[QueryLag]:
    """The partitions of one source, if it is tailrace's."""
    start, end = (_offsets(text) for text in (source.startOffset, source.endOffset))
    for topic, offsets in end.items():
        log = log_of(home, topic, offsets["id"])
        ends = home.store.run(log.head()).next
        before = numbers(start.get(topic, {}))
        for q, at in numbers(offsets).items():
            records = max(0, ends.get(q, at) - at)
            seconds = _age(home, Reader(log, {q: at}, from_floor=True), q) if records else 0.0
            yield QueryLag(topic, q, at - before.get(q, 0), at, records, seconds)


def _offsets(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    known = isinstance(found, dict) and all(isinstance(v, dict) and "id" in v for v in found.values())
    return found if known else {}


def _age(home: Home, reader: Reader, q: int) -> float:
    """The seconds since the next record to be read was written."""
    for fetched in home.store.run(reader.poll(1, 1)):
        if fetched.partition == q:
            written: int = fetched.data.column("timestamp")[0].value
            return max(0.0, time.time() - written / 1000)
    return 0.0


class LagReporter:
    """Finds how far a query is from the ends of its topics.  It remembers each partition's last page, since the next
    batch usually begins there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pages: dict[tuple[str, int], Page] = {}

    def report(self, known: Iterable[TopicExtent], at: Json, now: float) -> Json:
        """The ends of the topics, and how far behind them a query is that has read up to `at`."""
        known = list(known)
        ids = {extent.name: extent.id for extent in known}
        out = to_json(ids, {(e.name, q): n for e in known for q, n in e.next.items()})
        for extent in (e for e in known if e.next):
            out[extent.name]["behind"] = self._behind(extent, at.get(extent.name, {}), now)
        return out

    def _behind(self, extent: TopicExtent, read: Mapping[str, Any], now: float) -> dict[str, dict[str, float | None]]:
        here = numbers(read) if read.get("id") == extent.id else {}
        out: dict[str, dict[str, float | None]] = {}
        for q, end in extent.next.items():
            at = max(here.get(q, 0), extent.floor[q])
            out[str(q)] = {"records": max(0, end - at), "seconds": self._seconds(extent, q, at, now)}
        return out

    def _seconds(self, extent: TopicExtent, q: int, at: int, now: float) -> float | None:
        if at >= extent.next[q]:
            return 0.0
        home = home_at(self.url)
        page = home.store.run(self._page(log_of(home, extent.name, extent.id), extent.head, q, at))
        written = None if page is None else _written(page, q, at)
        return None if written is None else max(0.0, round(now - written / 1000, 3))

    def _page(self, log: TopicLog, head: Head, q: int, at: int) -> Steps[Page | None]:
        """The page with an offset; None if it is not visible yet."""
        if at >= head.own.base.get(q, 0):
            return head.own
        page = self._pages.get((log.id, q))
        if page is None or not page.base[q] <= at < page.end[q]:
            page = yield from seek(log, head, q, at)
            if page is not None:
                self._pages[log.id, q] = page
        return page


def _written(page: Page, q: int, at: int) -> int | None:
    """When the oldest record in the run that holds an offset was written."""
    end = page.base[q]
    for run in (run for entry in page.entries for run in entry.runs if run.partition == q):
        end += run.count
        if at < end:
            return run.latest - run.span
    return None
