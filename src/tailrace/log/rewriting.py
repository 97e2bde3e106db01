"""Rewriting: the pages of a round of compaction without the records that are not the newest of their key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from tailrace.coordination.rules import in_force
from tailrace.errors import ObjectMissing, TimedOut
from tailrace.log import head as heads
from tailrace.log import tiers
from tailrace.log.append import Log
from tailrace.log.chunk import MANIFEST, OFFSETS, Chunk, Compression
from tailrace.log.head import Entry, Head, Page
from tailrace.log.manifest import LIMIT, put_manifest
from tailrace.log.merging import Told, put_packed, replace
from tailrace.log.newest import Rows, rows_of
from tailrace.log.packing import Piece, RunWriter, chunk_of, kind_for, with_offsets
from tailrace.log.rounds import Compacting, Round, as_read, closed_page, groups, opened, unless_grown
from tailrace.log.sparing import read_around, spared
from tailrace.storage.calls import Steps


def rewrite(log: Log, how: Compacting, begun: Round, told: Told) -> Steps[bool]:
    """Every page of a round, oldest first; False if some could not be replaced, which ends the round."""
    head = yield from log.head()
    how, number = unless_grown(how, head), head.first
    while number <= begun.upto:
        pages = yield from _together(log, how, begun, number, head.gc)
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


def _together(log: Log, how: Compacting, begun: Round, number: int, gc: int) -> Steps[list[Page]]:
    """Neighbouring pages from this number on that are written anew together: as one object, about."""
    pages: list[Page] = []
    size = items = ids = 0
    while len(pages) < tiers.MOST_PAGES:
        page = yield from closed_page(log, how, number)
        if page is None or page.last > begun.upto:
            break
        size += sum(entry.size for entry in page.entries)
        items, ids = items + sum(map(len, page.packed)), ids + tiers.id_bytes(page, gc)
        alike = not pages or (begun.took(page) == begun.took(pages[0]) and not _listed(page) and not _listed(pages[0]))
        fits = size <= how.size and items <= tiers.MOST_ITEM_BYTES and ids <= tiers.MOST_IDS
        if pages and not (alike and fits):
            break
        pages.append(page)
        number = page.last + 1
    return pages


def _listed(page: Page) -> bool:
    return any(entry.kind & MANIFEST for entry in page.entries)


@dataclass(slots=True)
class Anew:
    """What some pages are to have instead, how many records are gone then, and what is left as it is, where."""

    entries: list[Entry] = field(default_factory=list)
    gone: int = 0
    unread: list[tuple[Entry, Mapping[int, int]]] = field(default_factory=list)


def _rewrite_pages(log: Log, how: Compacting, begun: Round, pages: Sequence[Page], told: Told) -> Steps[bool]:
    head = yield from log.head()
    new = yield from _anew(log, how, begun, pages, head, told)
    if new.unread and not (yield from _spare(log, begun, pages, new)):
        return False
    if not new.gone:
        return True
    entries = new.entries
    if sum(len(heads.pack(entry)) for entry in entries) > tiers.MOST_IDS + LIMIT:
        manifest = yield from put_manifest(log, entries, head.gen)
        entries = [structs.replace(manifest, made_of=tiers.remembered(entries, head.gc))]
    if not (yield from replace(log, pages, entries, head.gen)):
        return False
    begun.records += new.gone
    return True


def _anew(log: Log, how: Compacting, begun: Round, pages: Sequence[Page], head: Head, told: Told) -> Steps[Anew]:
    at, known, chunks = heads.plus(pages[0].base, {}), begun.took(pages[0]), list[Entry]()
    for page in pages:
        if (found := (yield from opened(log, page, begun))) is None:
            return Anew(unread=begun.passed_page(page))
        chunks += found
    new = Anew()
    for group in groups(chunks, how.size):
        parts = yield from read_around(
            log, group, at, lambda pieces: _kept(pieces, begun, how, known), begun.unread, begun.passed
        )
        for some, kept in parts:
            if kept is None:
                new.unread.append((some[0], at))
            if kept is None or not kept.gone:
                new.entries += some
            else:
                chunk = _encoded(kept, some, how.compression)
                new.entries.append((yield from put_packed(log, head, some, chunk)))
                told(chunk.size)
                new.gone += kept.gone
            at = heads.plus(at, heads.counts_of(some))
    return new


def _spare(log: Log, begun: Round, pages: Sequence[Page], new: Anew) -> Steps[bool]:
    """What could not be read is left as it is; False if it was replaced meanwhile, and so is no damage."""
    if not (yield from as_read(log, pages)):
        return False
    for entry, at in new.unread:
        begun.spared[entry.id] = yield from spared(log, entry, at)
    return True


@dataclass(slots=True)
class Kept:
    """What stays of some chunks, by partition, and how many records do not."""

    pieces: Mapping[int, Sequence[Piece]]
    rows: dict[int, list[Rows]] = field(default_factory=dict)
    gone: int = 0


def _kept(pieces: Mapping[int, Sequence[Piece]], begun: Round, how: Compacting, known: bool) -> Kept:
    out = Kept(pieces)
    for q, some in pieces.items():
        rows = rows_of(some)
        out.rows[q] = []
        if not rows:
            continue
        free = begun.may_delete(q, some)
        for one, stay in zip(rows, begun.newest.kept(q, rows, how.before if free else None, known), strict=True):
            left = Rows(one.batch.filter(stay), one.offsets.filter(stay))
            out.gone += len(one.offsets) - len(left.offsets)
            out.rows[q].append(left)
            if free:
                begun.left(left)
    return out


def _encoded(kept: Kept, group: Sequence[Entry], compression: Compression) -> Chunk:
    """What stays as one chunk, which stands for the offsets of all."""
    kind = kind_for(entry.kind for entry in group) | OFFSETS
    runs = {}
    for q in sorted(kept.pieces):
        runs[q] = RunWriter(kind, compression)
        for rows in kept.rows[q]:
            runs[q].add(with_offsets(rows.batch, rows.offsets), 0)
        runs[q].count = sum(piece.run.count for piece in kept.pieces[q])
    return chunk_of(kind, runs)
