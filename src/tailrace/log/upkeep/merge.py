"""Merging: turns the small chunks of neighbouring pages into a few large objects on one page.

MERGE   one transaction (at most 98 pages): check HEAD gc <= gen; put the first page (last, v + 1) if v as read; delete
each other page if v as read.  A merged entry keeps the ids and counts of the chunks it replaced, except those behind
the fence, and says that some are forgotten.  The old bytes are left to cleaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tailrace.coordination import guard
from tailrace.coordination.guard import Outcome, Unanswered, Written
from tailrace.coordination.rules import in_force, rules
from tailrace.errors import Damaged, ObjectMissing, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk, Compression
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import merge_plan
from tailrace.log.upkeep.compaction.unreadable import around
from tailrace.log.upkeep.merge_plan import MERGED_OBJECT_BYTES, MergeWindow, Pack
from tailrace.log.upkeep.repack import packed, read_pieces
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Action, AtMost, Check, Delete, Equals, Put

Told = Callable[[int], None]
"""Called with the number of bytes written since the last call, often 0.  It may block, to keep to a rate, or raise, to
stop."""


def ignore_report(_: int) -> None:
    """Take a report of a merge's progress that no caller asked for, and do nothing."""


def merge_all(
    log: TopicLog,
    compression: Compression = "none",
    size: int = MERGED_OBJECT_BYTES,
    span: int | None = None,
    told: Told = ignore_report,
) -> Steps[int]:
    """Merge the closed pages that are worth it; returns by how many the pages became fewer.  `span`: merge only
    pages whose times lie at most this many milliseconds apart, since retention keeps or removes a page as a whole."""
    before = after = 0
    merged = True
    while merged:  # the merged page may be worth merging with its neighbours
        merged = False
        head = yield from log.head()
        window, low = MergeWindow(size, head.fence, span), head.first
        while low < head.page:
            pages, low = yield from _pages(log, low, head.page - 1)
            told(0)
            for group in _groups(window, pages, last=low >= head.page):
                if (yield from merge(log, group, compression, size, worthwhile=True, told=told)):
                    merged, before, after = True, before + len(group), after + 1
    return before - after


def _pages(log: TopicLog, low: int, high: int) -> Steps[tuple[list[Page], int]]:
    """Some closed pages from a number on, and the number to go on with."""
    items, more = yield from guard.read_range(heads.head_key(log.id).p, low, min(high, LAST - 1))
    pages = [Page.of(item) for item in items]
    return pages, high + 1 if more is None or not pages else pages[-1].last + 1


def _groups(window: MergeWindow, pages: Sequence[Page], *, last: bool) -> Iterator[list[Page]]:
    for page in pages:
        yield from window.add(page)
    if last:
        yield from window.close()


def merge(
    log: TopicLog,
    pages: Sequence[Page],
    compression: Compression = "none",
    size: int = MERGED_OBJECT_BYTES,
    *,
    worthwhile: bool = False,
    told: Told = ignore_report,
) -> Steps[bool]:
    """Merge neighbouring pages into the first; False, with nothing done, if there is nothing to merge or another
    process changed them meanwhile.

    Large chunks, and those in a manifest, are taken over as they are.  `worthwhile`: small chunks too, where packing
    them is not worth the writing."""
    if not pages or (in_force("merge.join") and any(b.first != a.last + 1 for a, b in pairwise(pages))):
        return False
    before = [e for page in pages for e in page.entries]
    chosen = merge_plan.packs(before, size, worthwhile=worthwhile)
    if len(pages) == 1 and len(chosen) == len(before):
        return False
    head = yield from log.head()
    try:
        entries = yield from _packed(log, head, pages[0].base, chosen, compression, told)
    except TimedOut:
        return False
    if len(pages) == 1 and len(entries) == len(before):
        return False
    return (yield from replace(log, pages, entries, head.gen))


def _packed(
    log: TopicLog, head: Head, base: Mapping[int, int], chosen: Sequence[Pack], compression: Compression, told: Told
) -> Steps[list[ChunkEntry]]:
    out, at, left = [], base, deque(chosen)
    while left:
        pack = left.popleft()
        if len(pack) == 1:
            out.append(pack[0])
        else:
            try:
                chunk = packed((yield from read_pieces(log, pack, at)), compression)
            except (Damaged, ObjectMissing) as error:
                left.extendleft(reversed(around(log, pack, error)))
                continue
            out.append((yield from put_packed(log, head, pack, chunk)))
            told(chunk.size)
        at = heads.plus(at, heads.counts_of(pack))
    return out


def put_packed(log: TopicLog, head: Head, replaced: Sequence[ChunkEntry], chunk: Chunk) -> Steps[ChunkEntry]:
    """Store a chunk that will replace others; returns its entry."""
    entry = ChunkEntry(
        log.new_id(), False, head.gen, chunk.kind, chunk.runs, merge_plan.remembered(replaced, head.fence)
    )
    name = heads.object_name(log.id, entry.gen, entry.id)
    yield from guard.persist(lambda: calls.put_object(name, chunk.parts), guard.NOT_DONE)
    return entry


def replace(log: TopicLog, pages: Sequence[Page], entries: Sequence[ChunkEntry], gen: int) -> Steps[bool]:
    """Replace some pages, all unchanged since they were read, by one page with these entries, whose new chunks were put
    under `gen`."""
    outcome = yield from guard.attempt(*_actions(log, pages, entries, gen))
    return (yield from _happened(log, pages, entries, outcome))


def _actions(log: TopicLog, pages: Sequence[Page], entries: Sequence[ChunkEntry], gen: int) -> list[Action]:
    first = pages[0]
    item = {
        "first": first.first, "last": pages[-1].last, "base": heads.by_text(first.base),
        "e": [heads.pack(entry) for entry in entries], "t": pages[-1].latest_so_far, "v": first.revision + 1,
    }  # fmt: skip
    return [
        Check(heads.head_key(log.id), rules({"merge.gc": AtMost("gc", gen)})),
        Put(heads.page_key(log.id, first.first), item, rules({"merge.v": Equals("v", first.revision)})),
        *(Delete(heads.page_key(log.id, p.first), rules({"drop.v": Equals("v", p.revision)})) for p in pages[1:]),
    ]


def _happened(log: TopicLog, pages: Sequence[Page], entries: Sequence[ChunkEntry], outcome: Outcome) -> Steps[bool]:
    if not isinstance(outcome, Unanswered):
        return isinstance(outcome, Written)
    item = yield from guard.read(heads.page_key(log.id, pages[0].first))
    now = {e.id for e in Page.of(item).entries} if item is not None else set()
    return bool(now) and all(e.id in now for e in entries)
