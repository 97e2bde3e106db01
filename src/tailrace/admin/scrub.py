"""Scrub of a home: reads its database, its topics in several threads, and the items that refer to them.

It may run while the home is in use, writes nothing, and repairs nothing.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tailrace.admin.items import ItemScrubber
from tailrace.admin.report import Report
from tailrace.admin.strays import note_strays
from tailrace.errors import Damaged, UnknownTopic
from tailrace.log import catalog
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.format.head import ChunkEntry, Page
from tailrace.log.format.manifest import expand
from tailrace.log.integrity.damage import Damage, PageWalk
from tailrace.log.integrity.scrub import ChunkToScrub, ScrubResult, pieces, scrub_piece
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Store

SCRUB_THREADS = 4
QUEUED_CHUNKS_PER_WORKER = 4
"""The most chunks that are queued for each worker thread."""


@runtime_checkable
class CheckableTable(Protocol):
    """A table that can check its own file."""

    def check(self, told: Callable[[int], object]) -> tuple[list[Damaged], list[str]]:
        """Check the database file: the damage in it, and other remarks; `told` is called with the bytes of each
        read."""


def scrub(
    store: Store,
    topics: Iterable[str] | None = None,
    *,
    sample: float = 1.0,
    told: Callable[[int], object] = lambda _: None,
    workers: int = SCRUB_THREADS,
    rng: random.Random | None = None,
) -> Report:
    """Read a whole home, or some topics, and return a report of the damage; `UnknownTopic` if a named topic is missing.

    `sample` is the share of chunks, drawn at random, whose bytes are read; of the others it checks only that they
    exist.  `told` is called with the bytes of each read."""
    report = Report()
    if topics is None and isinstance(store.table, CheckableTable):
        faults, notes = store.table.check(told)
        report.notes += notes
        for fault in faults:
            report.damage("journal" if fault.where.endswith("-wal") else "database", fault)
    names = _names(store, report) if topics is None else list(dict.fromkeys(topics))
    scrubber = _Scrubber(store, report, sample, told, rng or random.Random())
    with ThreadPoolExecutor(workers, "tailrace-scrub") as pool:
        for name in names:
            _one(scrubber, name, pool, workers, gone=topics is None)
    items = ItemScrubber(store, report, scrubber.shelves)
    items.groups(None if topics is None else set(names))
    items.holders()
    if topics is None:
        items.everything()
        note_strays(store, scrubber.shelves, report)
    for shelf in scrubber.shelves.values():
        shelf.count(report)
    return report


def size(store: Store, topics: Iterable[str] | None = None) -> int:
    """The approximate number of bytes that a scrub will read, for a progress bar."""
    prefixes = ["topics/"]
    if topics is not None:
        prefixes = [f"topics/{store.run(catalog.describe(name)).id}/" for name in topics]
    file = getattr(store.table, "size", lambda: 0) if topics is None else lambda: 0
    return int(file()) + sum(one.size for prefix in prefixes for one in store.objects.list(prefix))


def _names(store: Store, report: Report) -> list[str]:
    try:
        return store.run(catalog.listing("$Topics"))
    except Damaged as error:
        report.damage("catalog", error)
        return []


def _one(scrubber: _Scrubber, name: str, pool: ThreadPoolExecutor, workers: int, gone: bool) -> None:
    try:
        described = scrubber.store.run(catalog.describe(name))
    except UnknownTopic:
        if not gone:
            raise
        if name in scrubber.store.run(catalog.listing("$Topics")):
            text = "the topic is on the list of topics, and its description is not there"
            scrubber.report.add(ScrubResult([Damage("catalog", text, name, f"item $Topic-{name}")]))
        return
    except Damaged as error:
        scrubber.report.damage("catalog", error)
        return
    log = TopicLog(name, described.id)
    try:
        scrubber.topic(log, pool, workers * QUEUED_CHUNKS_PER_WORKER)
    except UnknownTopic:
        with suppress(UnknownTopic):
            if scrubber.store.run(catalog.describe(name)).id == described.id:
                where = f"item {heads.head_key(log.id).p}"
                scrubber.report.add(ScrubResult([Damage("head", "the topic's head is not there", name, where)]))
    except Damaged as error:
        scrubber.report.damage("item", error)


@dataclass(slots=True)
class TopicChunks:
    """A topic's stored chunks, and those that the log refers to, each by 8 bytes of its id."""

    name: str
    fence: int
    stored: dict[int, tuple[array[int], array[int]]] = field(default_factory=dict)
    """The ids and sizes of stored chunks, by generation."""
    referred: array[int] = field(default_factory=lambda: array("Q"))

    def put(self, gen: int, id: str, size: int) -> None:
        """Add a chunk that a listing of the home's objects or items shows."""
        ids, sizes = self.stored.setdefault(gen, (array("Q"), array("Q")))
        ids.append(_short(id))
        sizes.append(size)

    def count(self, report: Report) -> None:
        """Count the chunks that nothing refers to: orphans below the fence, which nothing can refer to later, and
        pending ones from the fence on."""
        kept = array("Q", sorted(self.referred))
        for gen, (ids, sizes) in self.stored.items():
            for id, size in zip(ids, sizes, strict=True):
                if not _has(kept, id):
                    report.orphans += gen < self.fence
                    report.orphan_bytes += size if gen < self.fence else 0
                    report.pending += gen >= self.fence


def _short(id: str) -> int:
    return int(id, 16) & (1 << 64) - 1


def _has(sorted_ids: array[int], id: int) -> bool:
    at = bisect_left(sorted_ids, id)
    return at < len(sorted_ids) and sorted_ids[at] == id


class _Scrubber:
    def __init__(
        self, store: Store, report: Report, sample: float, told: Callable[[int], object], rng: random.Random
    ) -> None:
        self.store, self.report, self.sample, self.told, self.rng = store, report, sample, told, rng
        self.shelves: dict[str, TopicChunks] = {}

    def topic(self, log: TopicLog, pool: ThreadPoolExecutor, most: int) -> None:
        """Scrub a topic: this thread walks over the pages, the pool's threads read the chunks.  Waits for them."""
        head = self.store.run(log.head())
        shelf = self.shelves[log.id] = TopicChunks(log.name, head.fence)
        self.report.topics += 1
        for one in self.store.objects.list(f"topics/{log.id}/"):
            if (parts := heads.parts_of(one.name)) is not None:
                shelf.put(*parts[1:], one.size)
        there = array("Q", sorted(id for ids, _ in shelf.stored.values() for id in ids)) if self.sample < 1 else None
        walk, busy = PageWalk(log), set[Future[None]]()
        while (page := self._next(walk)) is not None:
            for piece in pieces(page):
                ids = self._ids(log, piece.entry)
                shelf.referred.extend(ids)
                if there is not None and self._left_out(piece.entry, ids, there):
                    continue
                busy.add(pool.submit(self._piece, log, piece))
                if len(busy) >= most:
                    done, busy = wait(busy, return_when=FIRST_COMPLETED)
                    for one_done in done:
                        one_done.result()
        for task in busy:
            task.result()
        self.report.add(ScrubResult(walk.found))

    def _next(self, walk: PageWalk) -> Page | None:
        return self.store.run(walk.next())

    def _left_out(self, entry: ChunkEntry, ids: list[int], there: array[int]) -> bool:
        if self.rng.random() < self.sample or entry.inline or not all(_has(there, id) for id in ids):
            return False  # an inline chunk is small, and not in the list of objects
        self.report.unread += 1
        return True

    def _ids(self, log: TopicLog, entry: ChunkEntry) -> list[int]:
        """The id of an entry's chunk, and of the chunks that it lists if it is a manifest."""
        ids = [_short(entry.id)]
        if entry.kind & MANIFEST:
            with suppress(Damaged, LookupError):  # the scrub of the chunk itself reports it
                ids += [_short(chunk.id) for chunk in self.store.run(expand(log.id, entry))]
        return ids

    def _piece(self, log: TopicLog, piece: ChunkToScrub) -> None:
        try:
            found = self.store.run(scrub_piece(log, piece))
        except Damaged as error:  # an item of the table; `scrub_piece` returns damage of chunks
            self.report.damage("item", error)
            return
        except UnknownTopic:
            return  # deleted meanwhile
        self.report.add(found)
        self.told(found.bytes)
