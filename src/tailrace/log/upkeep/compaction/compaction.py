"""Compaction: keeps only the newest record of each key in closed pages, and tombstones only for a while.

    $Upkeep-<topic id>, 0    compacted, tombstones, left: how far compaction has come (a page's number), the earliest
                             timestamp of a tombstone that it has left there, and, for each partition, the offset of the
                             first chunk that it could not read

COMPACT   NEWEST of the pages since the last compaction, as many as fit into memory.  Then every page up to these,
oldest first and all joining: records that are not the newest of their key are dropped by a MERGE of as many pages as
make an object.  A tombstone may go once compaction has been through all older records, so a page that cannot be
replaced ends the round.  No tombstone goes while there are pages from before the topic grew: its key was in another
partition then.  A chunk that cannot be read stays, and so does every tombstone behind it: once the chunk is restored,
the tombstones keep its records deleted, and compaction begins again.

A compacted chunk has its records' offsets in a column; the counts in its entry are those of the offsets it stands for,
so all offsets are what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import CompactBy
from tailrace.log.format.head import Page
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.compaction.newest_by_key import NewestByKey, each_rows
from tailrace.log.upkeep.compaction.rewrite import rewrite
from tailrace.log.upkeep.compaction.round import (
    CompactionRound,
    CompactionSettings,
    as_read,
    closed_page,
    groups,
    left_before,
    note,
    opened,
    restored,
    unless_grown,
    upkeep_key,
)
from tailrace.log.upkeep.compaction.unreadable import SparedChunk, read_around, undecided
from tailrace.log.upkeep.merge import Told, ignore_report
from tailrace.log.upkeep.repack import RunToPack
from tailrace.log.upkeep.retention import page_bytes
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item

MAX_KEY_BYTES_PER_ROUND = 128 * 1024 * 1024
"""Bytes of keys that one round reads."""
DIRTY_RATIO = 0.5
"""A round begins when the new bytes are this share of the compacted ones: so compaction writes at most three bytes for
each byte that producers append."""


class Compacted(NamedTuple):
    """How many records compaction removed, and which chunks it left as they are, since they cannot be read."""

    records: int
    spared: tuple[SparedChunk, ...] = ()


def compact(log: TopicLog, how: CompactionSettings, told: Told = ignore_report) -> Steps[Compacted]:
    """Compact the pages that are worth it.  While there is damage that is not quarantined, the progress is not stored:
    the next upkeep looks again, and reports the damage again."""
    removed, left = 0, dict[str, SparedChunk]()
    while True:
        mark = yield from guard.read(upkeep_key(log.id))
        begun = yield from _begin(log, unless_grown(how, (yield from log.head())), mark, told)
        if begun is None:
            break
        finished = yield from rewrite(log, how, begun, told)
        removed, left = removed + begun.records, left | begun.spared
        if not finished or (yield from undecided(log, tuple(begun.spared.values()))) is not None:
            break
        yield from note(log, begun, mark)
        if restored(begun, mark) or (not begun.records and mark is not None and begun.upto == mark["compacted"]):
            break
    return Compacted(removed, tuple(left.values()))


def _begin(log: TopicLog, how: CompactionSettings, mark: Item | None, told: Told) -> Steps[CompactionRound | None]:
    """The next round, if it is worth it: as many new pages as fit into memory."""
    done = mark["compacted"] if mark else -1
    clean, dirty = yield from _sizes(log, how, done)
    if not _due(how, mark) and (not dirty or dirty < DIRTY_RATIO * clean):
        return None
    begun, number = CompactionRound(NewestByKey(how.by), done, stays=left_before(mark)), (yield from log.head()).first
    while (page := (yield from closed_page(log, how, number))) is not None:
        number = page.last + 1
        told(0)
        if page.last > done:
            if not (yield from _collect_keys(log, page, begun, how)):
                return None
            begun.upto = page.last
            begun.taken.add((page.first, page.revision))
            if begun.newest.size > MAX_KEY_BYTES_PER_ROUND:
                break
    begun.newest.settle()
    return begun


def _due(how: CompactionSettings, mark: Item | None) -> bool:
    """Whether there are tombstones that should have gone long ago."""
    left = mark["tombstones"] if mark else None
    return left is not None and how.before is not None and left < how.before - how.delay


def _sizes(log: TopicLog, how: CompactionSettings, done: int) -> Steps[tuple[int, int]]:
    """The bytes of pages that were compacted before, and of those that are new."""
    clean = dirty = 0
    number = (yield from log.head()).first
    while (page := (yield from closed_page(log, how, number))) is not None:
        size = yield from page_bytes(log, page)
        clean, dirty = (clean + size, dirty) if page.last <= done else (clean, dirty + size)
        number = page.last + 1
    return clean, dirty


def _collect_keys(log: TopicLog, page: Page, begun: CompactionRound, how: CompactionSettings) -> Steps[bool]:
    """Collect the keys of a page, except those that cannot be read; False if another upkeep replaced the page
    meanwhile."""
    chunks, at, unread = (yield from opened(log, page, begun)), heads.plus(page.base, {}), len(begun.unread)
    for group in groups(chunks or (), how.size):
        parts = yield from read_around(log, group, at, lambda pieces: _keys(pieces, how.by), begun.unread, begun.passed)
        for some, found in parts:
            if found is not None:
                begun.newest.add_all(found)
            at = heads.plus(at, heads.counts_of(some))
    if chunks is None:
        begun.passed_page(page)
    clean = chunks is not None and len(begun.unread) == unread
    return clean or (yield from as_read(log, [page]))


def _keys(pieces: Mapping[int, Sequence[RunToPack]], by: CompactBy) -> NewestByKey:
    """The newest record of each key among these pieces alone, so that a chunk that cannot be read to its end adds
    nothing. Keys are decoded a few at a time, however well they are compressed."""
    newest = NewestByKey(by)
    for q, some in pieces.items():
        for rows in each_rows(some, "key", "unset"):
            newest.add(q, rows)
    return newest
