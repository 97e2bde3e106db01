"""Rewriting: writes the pages of a round of compaction again, without the records that have a newer one of their
key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from msgspec import structs

from tailrace.coordination.rules import in_force
from tailrace.errors import ObjectMissing, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, OFFSETS, Chunk, Compression
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.manifest import MAX_ENTRY_BYTES_WITHOUT_MANIFEST, put_manifest
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import merge_plan
from tailrace.log.upkeep.compaction.newest_by_key import Rows, each_rows
from tailrace.log.upkeep.compaction.round import (
    CompactionRound,
    CompactionSettings,
    as_read,
    closed_page,
    groups,
    opened,
    unless_grown,
)
from tailrace.log.upkeep.compaction.unreadable import read_around, spared
from tailrace.log.upkeep.merge import Told, put_packed, replace
from tailrace.log.upkeep.merge_plan import MERGED_OBJECT_BYTES
from tailrace.log.upkeep.repack import RunToPack, RunWriter, chunk_of, kind_for, with_offsets
from tailrace.storage.calls import Steps


def rewrite(log: TopicLog, how: CompactionSettings, begun: CompactionRound, told: Told) -> Steps[bool]:
    """Rewrite every page of a round, oldest first; False if some could not be replaced, which ends the round."""
    head = yield from log.head()
    how, number = unless_grown(how, head), head.first
    while number <= begun.upto:
        pages = yield from _pages_for_one_object(log, how, begun, number, head.fence)
        if not pages:
            return False
        told(0)
        try:
            finished = yield from _rewrite_pages(log, how, begun, pages, told)
        except (ObjectMissing, TimedOut):
            return False
        if not finished and in_force("compact.in_order"):
            return False
        number = pages[-1].last + 1
    return True


def _pages_for_one_object(
    log: TopicLog, how: CompactionSettings, begun: CompactionRound, number: int, fence: int
) -> Steps[list[Page]]:
    """Neighbouring pages from this number on that are rewritten together: about as many as make one object."""
    pages: list[Page] = []
    size = items = ids = 0
    while len(pages) < merge_plan.MAX_PAGES_PER_MERGE:
        page = yield from closed_page(log, how, number)
        if page is None or page.last > begun.upto:
            break
        size += sum(entry.size for entry in page.entries)
        items, ids = items + sum(map(len, page.packed)), ids + merge_plan.id_bytes(page, fence)
        alike = not pages or (begun.took(page) == begun.took(pages[0]) and not _listed(page) and not _listed(pages[0]))
        fits = (
            size <= how.size
            and items <= merge_plan.MAX_ENTRY_BYTES_PER_MERGE
            and ids <= merge_plan.MAX_REMEMBERED_ID_BYTES
        )
        if pages and not (alike and fits):
            break
        pages.append(page)
        number = page.last + 1
    return pages


def _listed(page: Page) -> bool:
    return any(entry.kind & MANIFEST for entry in page.entries)


@dataclass(slots=True)
class Replacement:
    """What replaces some pages: the new entries, how many records are dropped, and which chunks stay as they are."""

    entries: list[ChunkEntry] = field(default_factory=list)
    gone: int = 0
    unread: list[tuple[ChunkEntry, Mapping[int, int]]] = field(default_factory=list)


def _rewrite_pages(
    log: TopicLog, how: CompactionSettings, begun: CompactionRound, pages: Sequence[Page], told: Told
) -> Steps[bool]:
    head = yield from log.head()
    new = yield from _replacement(log, how, begun, pages, head, told)
    if new.unread and not (yield from _note_unreadable(log, begun, pages, new)):
        return False
    if not new.gone:
        return True
    entries = new.entries
    if (
        sum(len(heads.pack(entry)) for entry in entries)
        > merge_plan.MAX_REMEMBERED_ID_BYTES + MAX_ENTRY_BYTES_WITHOUT_MANIFEST
    ):
        manifest = yield from put_manifest(log.id, entries, log.new_id, head.gen)
        entries = [structs.replace(manifest, made_of=merge_plan.remembered(entries, head.fence))]
    if not (yield from replace(log, pages, entries, head.gen)):
        return False
    begun.records += new.gone
    return True


def _replacement(
    log: TopicLog, how: CompactionSettings, begun: CompactionRound, pages: Sequence[Page], head: Head, told: Told
) -> Steps[Replacement]:
    at, known, chunks = heads.plus(pages[0].base, {}), begun.took(pages[0]), list[ChunkEntry]()
    for page in pages:
        if (found := (yield from opened(log, page, begun))) is None:
            return Replacement(unread=begun.passed_page(page))
        chunks += found
    new = Replacement()
    for group in groups(chunks, how.size):
        parts = yield from read_around(
            log, group, at, lambda pieces: _remaining(pieces, begun, how, known), begun.unread, begun.passed
        )
        for some, kept in parts:
            if kept is None:
                new.unread.append((some[0], at))
            if kept is None or not kept.gone:
                new.entries += some
            else:
                chunk = kept.chunk()
                new.entries.append((yield from put_packed(log, head, some, chunk)))
                told(chunk.size)
                new.gone += kept.gone
            at = heads.plus(at, heads.counts_of(some))
    return new


def _note_unreadable(log: TopicLog, begun: CompactionRound, pages: Sequence[Page], new: Replacement) -> Steps[bool]:
    """Note chunks that cannot be read as left as they are; False if they were replaced meanwhile, and so are not
    damaged."""
    if not (yield from as_read(log, pages)):
        return False
    for entry, at in new.unread:
        begun.spared[entry.id] = yield from spared(log, entry, at)
    return True


MAX_DECODED_BYTES = MERGED_OBJECT_BYTES + MERGED_OBJECT_BYTES // 4
"""Bytes of decoded records that are judged together: all of an uncompressed group, but only part of a compressed one
that becomes large when decoded."""


class RemainingRecords:
    """The records of some chunks that stay, and how many do not.  Records are encoded as soon as a certain amount has
    been decoded, so that memory does not depend on how well they are compressed."""

    def __init__(self, pieces: Mapping[int, Sequence[RunToPack]], compression: Compression) -> None:
        self._kind = kind_for(piece.kind for some in pieces.values() for piece in some) | OFFSETS
        self._runs = {q: RunWriter(self._kind, compression) for q in sorted(pieces)}
        for q, run in self._runs.items():
            run.count = sum(piece.run.count for piece in pieces[q])
        self._waiting: list[tuple[int, Rows]] = []
        self._size = 0
        self.gone = 0

    def add(self, q: int, rows: Rows, stay: pa.Array[Any]) -> Rows:
        """Take the next records of a partition; keeps and returns those that stay."""
        left = Rows(rows.batch.filter(stay), rows.offsets.filter(stay))
        self.gone += len(rows.offsets) - len(left.offsets)
        self._waiting.append((q, left))
        self._size += left.batch.nbytes
        if self._size > MAX_DECODED_BYTES:
            self._encode()
        return left

    def _encode(self) -> None:
        for q, rows in self._waiting:
            self._runs[q].add(with_offsets(rows.batch, rows.offsets), 0)
        self._waiting, self._size = [], 0

    def chunk(self) -> Chunk:
        """The remaining records as one chunk, which stands for the offsets of all."""
        self._encode()
        return chunk_of(self._kind, self._runs)


def _remaining(
    pieces: Mapping[int, Sequence[RunToPack]], begun: CompactionRound, how: CompactionSettings, known: bool
) -> RemainingRecords:
    out = RemainingRecords(pieces, how.compression)
    for q, some in pieces.items():
        free = begun.may_delete(q, some)
        for rows in _portions(each_rows(some)):
            for one, stay in zip(rows, begun.newest.kept(q, rows, how.before if free else None, known), strict=True):
                left = out.add(q, one, stay)
                if free:
                    begun.left(left)
    return out


def _portions(rows: Iterator[Rows]) -> Iterator[list[Rows]]:
    """Records in portions: large enough to make one lookup of their keys worthwhile, small enough for the memory."""
    some: list[Rows] = []
    size = 0
    for one in rows:
        some.append(one)
        size += one.batch.nbytes
        if size > MAX_DECODED_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
