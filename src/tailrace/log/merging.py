"""Merging: the small chunks of neighbouring pages become one object and one page.

MERGE   one transaction (at most 98 pages): check HEAD gc <= gen; put the first page (last, v + 1) if v as read; delete
        each other page if v as read.  The merged entry keeps the ids and counts of what it replaced.  The old bytes
        are left to cleaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from tailrace.coordination import guard
from tailrace.coordination.guard import Outcome, Unanswered, Written
from tailrace.coordination.rules import rules
from tailrace.errors import ObjectMissing, TimedOut
from tailrace.log import head as heads
from tailrace.log.append import Log
from tailrace.log.buffer import unified
from tailrace.log.chunk import MANIFEST, Compression, decode, encode
from tailrace.log.head import Entry, Page
from tailrace.log.reader import read_runs, where_is
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, AtMost, Check, Delete, Equals, Put

MOST_PAGES = 98


def merge(log: Log, pages: Sequence[Page], compression: Compression = "none") -> Steps[bool]:
    """Merge neighbouring pages into the first; False if somebody else changed them meanwhile, and nothing happened.

    Nothing happens either to pages with a manifest: what it lists is large enough."""
    if any(entry.kind & MANIFEST for page in pages for entry in page.entries):
        return False
    if any(b.first != a.last + 1 for a, b in pairwise(pages)):
        return False
    gen = (yield from log.head()).gen
    try:
        batches = yield from _gather(log, pages)
    except ObjectMissing:
        return False
    chunk = encode(batches, compression)
    made_of = tuple(
        made for page in pages for e in page.entries for made in (e.made_of or ((e.id, tuple(e.counts.items())),))
    )
    entry = Entry(log.new_id(), False, gen, chunk.kind, chunk.runs, made_of)
    try:
        name = heads.object_name(log.id, gen, entry.id)
        yield from guard.persist(lambda: calls.put_object(name, chunk.parts), guard.NOT_DONE)
    except TimedOut:
        return False
    outcome = yield from guard.attempt(*_actions(log, pages, entry))
    return (yield from _happened(log, pages, entry, outcome))


def _gather(log: Log, pages: Sequence[Page]) -> Steps[dict[int, list[pa.RecordBatch]]]:
    batches: dict[int, list[pa.RecordBatch]] = {}
    for page in pages:
        for entry in page.entries:
            data = yield from read_runs(log, entry, entry.runs)
            for run, piece in zip(entry.runs, data, strict=True):
                batches.setdefault(run.partition, []).extend(decode(entry.kind, run, piece, where_is(log.id, entry)))
    return unified(batches)


def _actions(log: Log, pages: Sequence[Page], entry: Entry) -> list[Action]:
    first = pages[0]
    item = {
        "first": first.first, "last": pages[-1].last, "base": heads.by_text(first.base), "e": [heads.pack(entry)],
        "t": pages[-1].t, "v": first.v + 1,
    }  # fmt: skip
    return [
        Check(heads.head_key(log.id), rules({"merge.gc": AtMost("gc", entry.gen)})),
        Put(heads.page_key(log.id, first.first), item, rules({"merge.v": Equals("v", first.v)})),
        *(Delete(heads.page_key(log.id, p.first), rules({"drop.v": Equals("v", p.v)})) for p in pages[1:]),
    ]


def _happened(log: Log, pages: Sequence[Page], entry: Entry, outcome: Outcome) -> Steps[bool]:
    if not isinstance(outcome, Unanswered):
        return isinstance(outcome, Written)
    item = yield from guard.read(heads.page_key(log.id, pages[0].first))
    return item is not None and any(e.id == entry.id for e in Page.of(item).entries)
