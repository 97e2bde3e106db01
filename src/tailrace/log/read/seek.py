"""Seeking: the page that holds an offset, and the offset that belongs to a time, by binary search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.coordination import guard
from tailrace.errors import Damaged, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import OFFSETS, PartitionRun, batches_of
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.manifest import expand
from tailrace.log.format.run import lost_with, named, read_runs, where_is
from tailrace.log.integrity.quarantine import covering
from tailrace.log.read.pages import look_over
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST

TIMESTAMP = frozenset({"timestamp"})


def seek(log: TopicLog, head: Head, partition: int, offset: int) -> Steps[Page | None]:
    """The page that holds an offset, by binary search; None if it is not visible (yet)."""
    return (yield from _search(log, head, lambda page: page.base[partition] <= offset))


def pages_around(log: TopicLog, head: Head, timestamp: int) -> Steps[tuple[Page | None, Page | None]]:
    """The last closed page up to which no record is later than a time, and the page after it, each if there is one."""
    before = yield from _search(log, head, lambda page: page.latest_so_far <= timestamp)
    number = before.last + 1 if before is not None else head.first
    items, _ = yield from guard.read_range(heads.head_key(log.id).p, number, LAST - 1, limit=1)
    return before, Page.of(items[0]) if items else None


def _search(log: TopicLog, head: Head, at_or_before: Callable[[Page], bool]) -> Steps[Page | None]:
    """The last page for which this holds, by binary search; it must hold for all pages up to that one, and for none
    after it."""
    low, high, best = head.first, head.page - 1, None
    p = heads.head_key(log.id).p
    while low <= high:
        middle = (low + high) // 2
        items, _ = yield from guard.read_range(p, 0, middle, descending=True, limit=1)
        page = Page.of(items[0]) if items else None
        if page is None or page.last < low:
            low = middle + 1
        elif at_or_before(page):
            best, low = page, max(page.last, middle) + 1
        else:
            high = page.first - 1
    return best


def offset_at(log: TopicLog, partition: int, timestamp: int) -> Steps[int]:
    """The offset of the first record of a partition at or after a time; the next offset if there is none yet."""
    missing = ""
    while True:
        try:
            return (yield from _offset_at(log, partition, timestamp))
        except ObjectMissing as error:  # merged since its page was read; gone for good if a fresh page still names it
            if error.name == missing:
                raise Damaged(
                    f"{error.name} is gone, and with it records of partition {partition} of {log.name!r}; "
                    "restore it from a backup",
                    where=error.name,
                    topic=log.name,
                ) from error
            missing = error.name


def _offset_at(log: TopicLog, partition: int, timestamp: int) -> Steps[int]:
    head = yield from log.head()
    number = head.page
    if head.closed_latest >= timestamp:
        before = yield from _search(log, head, lambda page: page.latest_so_far < timestamp)
        number = before.last + 1 if before else head.first
    while number < head.page:
        page = yield from look_over(log, number)
        if page is None:
            number = (yield from log.head()).first
            continue
        found = yield from _first_at(log, page, partition, timestamp)
        if found is not None:
            return max(found, head.floor[partition])
        number = page.last + 1
    found = yield from _first_at(log, head.own, partition, timestamp)
    return head.next[partition] if found is None else max(found, head.floor[partition])


def _first_at(log: TopicLog, page: Page, partition: int, timestamp: int) -> Steps[int | None]:
    at = page.base[partition]
    for entry in page.entries:
        if entry.latest < timestamp:
            at += entry.counts.get(partition, 0)
            continue
        chunks = yield from expanded(log, entry, {partition: at})
        for chunk, run in [(e, run) for e in chunks for run in e.runs]:
            if run.partition != partition:
                continue
            if run.length and run.latest >= timestamp:
                found = yield from _in_run(log, chunk, run, timestamp, at)
                if found is not None:
                    return found
            at += run.count
    return None


def expanded(log: TopicLog, entry: ChunkEntry, at: Mapping[int, int]) -> Steps[tuple[ChunkEntry, ...]]:
    """The chunks that an entry stands for; the entry itself if the list of a manifest cannot be read and the lost
    records are quarantined.  `at`: the offsets at which the entry begins, of the partitions that matter."""
    try:
        return (yield from expand(log.id, entry))
    except (Damaged, ObjectMissing) as error:
        yield from _pass(log, [run for run in entry.runs if run.partition in at], at, error)
        return (entry,)


def _pass(
    log: TopicLog, runs: Sequence[PartitionRun], at: Mapping[int, int], error: Damaged | ObjectMissing
) -> Steps[None]:
    """Raise the error, unless these runs are quarantined: readers pass over them."""
    lost = lost_with(runs, at)
    if (yield from covering(log, lost)) is None:
        raise named(error, log.name, lost) if isinstance(error, Damaged) else error


def _in_run(log: TopicLog, chunk: ChunkEntry, run: PartitionRun, timestamp: int, first: int) -> Steps[int | None]:
    """The offset of the first record at or after a time, in one run."""
    try:
        data = yield from read_runs(log.id, chunk, [run])
        batches = batches_of(chunk.kind, run, data[0], where_is(log.id, chunk), TIMESTAMP)
        return _place_at(batches, chunk.kind, timestamp, first)
    except (Damaged, ObjectMissing) as error:
        yield from _pass(log, [run], {run.partition: first}, error)
        return None


def _place_at(batches: Iterable[pa.RecordBatch], kind: int, timestamp: int, first: int) -> int | None:
    """The offset of the first record at or after a time, in batches that begin at offset `first`."""
    mark = pa.scalar(timestamp, pa.timestamp("ms", "UTC"))
    for batch in batches:
        index: int = pc.index(pc.greater_equal(batch.column(0), mark), True).as_py()
        if index >= 0:
            return int(batch.column("offset")[index].as_py()) if kind & OFFSETS else first + index
        first += batch.num_rows
    return None
