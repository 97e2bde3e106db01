"""Merging: the small chunks of neighbouring pages become few large objects on one page.

MERGE   one transaction (at most 98 pages): check HEAD gc <= gen; put the first page (last, v + 1) if v as read; delete
        each other page if v as read.  A merged entry keeps the ids and counts of what it replaced, except of chunks
        behind the fence, and says so.  The old bytes are left to cleaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tailrace.coordination import guard
from tailrace.coordination.guard import Outcome, Unanswered, Written
from tailrace.coordination.rules import rules
from tailrace.errors import Damaged, ObjectMissing, TimedOut
from tailrace.log import head as heads
from tailrace.log import tiers
from tailrace.log.append import Log
from tailrace.log.chunk import Chunk, Compression
from tailrace.log.head import Entry, Head, Page
from tailrace.log.packing import packed, read_pieces
from tailrace.log.sparing import around
from tailrace.log.tiers import SIZE, Pack, Window
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Action, AtMost, Check, Delete, Equals, Put

Told = Callable[[int], None]
"""Called with how many more bytes were written, often with none; may block, to hold a rate, or raise, to stop."""


def unheard(_: int) -> None:
    """For who does not want to be told."""


def merge_all(
    log: Log, compression: Compression = "none", size: int = SIZE, span: int | None = None, told: Told = unheard
) -> Steps[int]:
    """Merge whatever is worth it in all closed pages; gives how many pages became fewer.

    `span`: only pages whose times lie at most so many milliseconds apart, since a page is retained as a whole."""
    before = after = 0
    merged = True
    while merged:  # what has become one page may be worth being merged with its neighbours
        merged = False
        head = yield from log.head()
        window, low = Window(size, head.gc, span), head.first
        while low < head.page:
            pages, low = yield from _pages(log, low, head.page - 1)
            told(0)
            for group in _groups(window, pages, last=low >= head.page):
                if (yield from merge(log, group, compression, size, worthwhile=True, told=told)):
                    merged, before, after = True, before + len(group), after + 1
    return before - after


def _pages(log: Log, low: int, high: int) -> Steps[tuple[list[Page], int]]:
    """Some closed pages from a number on, and the number to go on with."""
    items, more = yield from guard.read_range(heads.head_key(log.id).p, low, min(high, LAST - 1))
    pages = [Page.of(item) for item in items]
    return pages, high + 1 if more is None or not pages else pages[-1].last + 1


def _groups(window: Window, pages: Sequence[Page], *, last: bool) -> Iterator[list[Page]]:
    for page in pages:
        yield from window.add(page)
    if last:
        yield from window.close()


def merge(
    log: Log,
    pages: Sequence[Page],
    compression: Compression = "none",
    size: int = SIZE,
    *,
    worthwhile: bool = False,
    told: Told = unheard,
) -> Steps[bool]:
    """Merge neighbouring pages into the first; False if there is nothing to merge, or somebody else changed them
    meanwhile, and nothing happened.

    Large chunks, and those in a manifest, are taken over as they are.  `worthwhile`: small ones too, where packing
    them is not worth being written."""
    if not pages or any(b.first != a.last + 1 for a, b in pairwise(pages)):
        return False
    before = [e for page in pages for e in page.entries]
    chosen = tiers.packs(before, size, worthwhile=worthwhile)
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
    log: Log, head: Head, base: Mapping[int, int], chosen: Sequence[Pack], compression: Compression, told: Told
) -> Steps[list[Entry]]:
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


def put_packed(log: Log, head: Head, replaced: Sequence[Entry], chunk: Chunk) -> Steps[Entry]:
    """Store a chunk that is to replace others; gives its entry."""
    entry = Entry(log.new_id(), False, head.gen, chunk.kind, chunk.runs, tiers.remembered(replaced, head.gc))
    name = heads.object_name(log.id, entry.gen, entry.id)
    yield from guard.persist(lambda: calls.put_object(name, chunk.parts), guard.NOT_DONE)
    return entry


def replace(log: Log, pages: Sequence[Page], entries: Sequence[Entry], gen: int) -> Steps[bool]:
    """Let one page with these entries, whose new chunks were put under `gen`, stand for some pages, all as read."""
    outcome = yield from guard.attempt(*_actions(log, pages, entries, gen))
    return (yield from _happened(log, pages, entries, outcome))


def _actions(log: Log, pages: Sequence[Page], entries: Sequence[Entry], gen: int) -> list[Action]:
    first = pages[0]
    item = {
        "first": first.first, "last": pages[-1].last, "base": heads.by_text(first.base),
        "e": [heads.pack(entry) for entry in entries], "t": pages[-1].t, "v": first.v + 1,
    }  # fmt: skip
    return [
        Check(heads.head_key(log.id), rules({"merge.gc": AtMost("gc", gen)})),
        Put(heads.page_key(log.id, first.first), item, rules({"merge.v": Equals("v", first.v)})),
        *(Delete(heads.page_key(log.id, p.first), rules({"drop.v": Equals("v", p.v)})) for p in pages[1:]),
    ]


def _happened(log: Log, pages: Sequence[Page], entries: Sequence[Entry], outcome: Outcome) -> Steps[bool]:
    if not isinstance(outcome, Unanswered):
        return isinstance(outcome, Written)
    item = yield from guard.read(heads.page_key(log.id, pages[0].first))
    now = {e.id for e in Page.of(item).entries} if item is not None else set()
    return bool(now) and all(e.id in now for e in entries)
