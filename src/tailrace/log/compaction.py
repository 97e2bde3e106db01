"""Compaction: of closed pages only the newest record of each key stays, and a tombstone only for a while.

    $Upkeep-<topic id>, 0    compacted, tombstones, left: how far compaction has come (a page's number), the earliest
                             timestamp of a tombstone that it has left there, and, for each partition, the offset of the
                             first chunk that it could not read

COMPACT   NEWEST of the pages since the last compaction, as many as fit into memory.  Then every page up to these,
          oldest first and all joining: what is not the newest of its key goes, as many pages together as make an
          object, by a MERGE.  A tombstone may go once all that is older than it has been gone through, so pages that
          cannot be replaced end the round; and not while there are pages of before the topic grew, where its key was
          elsewhere.  A chunk that cannot be read stays as it is, and so does every tombstone behind it, which may
          be what keeps its records deleted once it is restored; then compaction begins anew.

A compacted chunk has its records' offsets in a column; the counts in its entry are those of the offsets it stands for,
so all offsets are what they were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow.compute as pc
from msgspec import structs

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged, ObjectMissing, TimedOut
from tailrace.log import head as heads
from tailrace.log import tiers
from tailrace.log.append import Log
from tailrace.log.chunk import MANIFEST, OFFSETS, Chunk, CompactBy, Compression
from tailrace.log.head import Entry, Head, Page
from tailrace.log.manifest import LIMIT, expand, put_manifest
from tailrace.log.merging import Told, put_packed, replace, unheard
from tailrace.log.newest import Newest, Rows, rows_of
from tailrace.log.packing import Piece, RunWriter, chunk_of, kind_for, with_offsets
from tailrace.log.retention import Keep, page_bytes
from tailrace.log.sparing import Spared, read_around, spared, undecided
from tailrace.log.tiers import SIZE
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update

MEMORY = 128 * 1024 * 1024
"""Bytes of keys that one round takes in."""
DIRTY = 0.5
"""A round begins when there is this much new for what was compacted before: so it writes, for each byte that was
appended, at most three."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """How a topic is compacted."""

    by: CompactBy = "key"
    before: int | None = None
    """Tombstones older than this may go (milliseconds since 1970); None: none may."""
    delay: int = 0
    """How long tombstones stay, in milliseconds."""
    held: Mapping[int, int] | None = None
    """The first offset of each partition that somebody still needs; nothing from there on is touched."""
    compression: Compression = "none"
    size: int = SIZE


@dataclass(slots=True)
class Round:
    """What one round of compaction has to do and has done."""

    newest: Newest
    upto: int
    taken: set[tuple[int, int]] = field(default_factory=set)
    """The pages whose records were taken in, as they were then: (first, v)."""
    records: int = 0
    tombstones: int | None = None
    """The earliest timestamp of a tombstone that is left and may go some day."""
    unread: set[str] = field(default_factory=set)
    """The ids of chunks that could not be read: they stay as they are, also if they can be read by now."""
    stays: dict[int, int] = field(default_factory=dict)
    """The offsets from which on tombstones stay."""
    lost: dict[int, int] = field(default_factory=dict)
    """The offset of each partition's first chunk that could not be read, whatever has become of it since."""
    spared: dict[str, Spared] = field(default_factory=dict)
    """What was left as it is."""

    def took(self, page: Page) -> bool:
        """Whether all records of a page were taken in."""
        return (page.first, page.v) in self.taken or not in_force("compact.taken")

    def passed(self, entry: Entry, at: Mapping[int, int]) -> None:
        """A chunk that begins at these offsets is left as it is."""
        for q in entry.counts:
            self.lost[q] = min(self.lost.get(q, at[q]), at[q])
            if in_force("compact.stays"):
                self.stays[q] = min(self.stays.get(q, at[q]), at[q])

    def may_delete(self, q: int, pieces: Sequence[Piece]) -> bool:
        """Whether all that is older than these has been gone through."""
        return q not in self.stays or pieces[-1].first + pieces[-1].run.count <= self.stays[q]

    def left(self, rows: Rows) -> None:
        """These records stay."""
        if (marks := rows.tombstones()) is None:
            return
        if (earliest := pc.min(rows.batch.column(0).filter(marks)).value) is not None:
            self.tombstones = earliest if self.tombstones is None else min(self.tombstones, earliest)


def upkeep_key(topic_id: str) -> Key:
    """Where a topic's upkeep notes how far it has come."""
    return Key(f"$Upkeep-{topic_id}")


class Compacted(NamedTuple):
    """How many records are gone, and which chunks were left as they are, since they cannot be read."""

    records: int
    spared: tuple[Spared, ...] = ()


def compact(log: Log, how: Compacting, told: Told = unheard) -> Steps[Compacted]:
    """Compact whatever is worth it.  While there is damage that nobody has decided to do without, nothing is noted: the
    next upkeep looks again, and tells again."""
    removed, left = 0, dict[str, Spared]()
    while True:
        mark = yield from guard.read(upkeep_key(log.id))
        begun = yield from _begin(log, _unless_grown(how, (yield from log.head())), mark, told)
        if begun is None:
            break
        finished = yield from _rewrite(log, how, begun, told)
        removed, left = removed + begun.records, left | begun.spared
        if not finished or (yield from undecided(log, tuple(begun.spared.values()))) is not None:
            break
        yield from _note(log, begun, mark)
        if _restored(begun, mark) or (not begun.records and mark is not None and begun.upto == mark["compacted"]):
            break
    return Compacted(removed, tuple(left.values()))


def _unless_grown(how: Compacting, head: Head) -> Compacting:
    """Tombstones stay while what they delete may be in another partition."""
    elsewhere = any(head.first < grown.page for grown in head.grown) and in_force("compact.grown")
    return dataclasses.replace(how, before=None) if elsewhere else how


def _begin(log: Log, how: Compacting, mark: Item | None, told: Told) -> Steps[Round | None]:
    """The next round, if one is worth it: what is new, as much as fits into memory."""
    done = mark["compacted"] if mark else -1
    clean, dirty = yield from _sizes(log, how, done)
    if not _due(how, mark) and (not dirty or dirty < DIRTY * clean):
        return None
    begun, number = Round(Newest(how.by), done, stays=_left(mark)), (yield from log.head()).first
    while (page := (yield from _page(log, how, number))) is not None:
        number = page.last + 1
        told(0)
        if page.last > done:
            if not (yield from _taken_in(log, page, begun, how.size)):
                return None
            begun.upto = page.last
            begun.taken.add((page.first, page.v))
            if begun.newest.size > MEMORY:
                break
    begun.newest.settle()
    return begun


def _left(mark: Item | None) -> dict[int, int]:
    """The offsets of what could not be read before."""
    left = mark.get("left", {}) if mark is not None and in_force("compact.left") else {}
    return {int(q): at for q, at in left.items()}


def _due(how: Compacting, mark: Item | None) -> bool:
    """Whether there are tombstones that should have gone long ago."""
    left = mark["tombstones"] if mark else None
    return left is not None and how.before is not None and left < how.before - how.delay


def _sizes(log: Log, how: Compacting, done: int) -> Steps[tuple[int, int]]:
    """The bytes that were compacted before, and those that are new."""
    clean = dirty = 0
    number = (yield from log.head()).first
    while (page := (yield from _page(log, how, number))) is not None:
        size = yield from page_bytes(log, page)
        clean, dirty = (clean + size, dirty) if page.last <= done else (clean, dirty + size)
        number = page.last + 1
    return clean, dirty


def _page(log: Log, how: Compacting, number: int) -> Steps[Page | None]:
    """The closed page that begins with this number; None at the end, if it was merged or removed meanwhile, or if
    somebody still needs something of it."""
    item = yield from guard.read(heads.page_key(log.id, number))
    page = Page.of(item) if item is not None else None
    return None if page is None or Keep(held=how.held).holds(page) else page


def _taken_in(log: Log, page: Page, begun: Round, size: int) -> Steps[bool]:
    """Take in the records of a page, but not what cannot be read; False if another upkeep replaced it meanwhile."""
    chunks, at, unread = (yield from _opened(log, page, begun)), heads.plus(page.base, {}), len(begun.unread)
    for group in _groups(chunks or (), size):
        for some, found in (yield from read_around(log, group, at, _keys, begun.unread, begun.passed)):
            for q, each in (found or {}).items():
                for rows in each:
                    begun.newest.add(q, rows)
            at = heads.plus(at, heads.counts_of(some))
    if chunks is None:
        _untouched(begun, page)
    clean = chunks is not None and len(begun.unread) == unread
    return clean or (yield from _as_read(log, [page]))


def _keys(pieces: Mapping[int, Sequence[Piece]]) -> dict[int, list[Rows]]:
    """What is taken in of some records."""
    return {q: rows_of(some, "key", "unset") for q, some in pieces.items()}


def _as_read(log: Log, pages: Sequence[Page]) -> Steps[bool]:
    """Whether pages are still what they were: then what could not be read is damaged, and not replaced."""
    for page in pages:
        item = yield from guard.read(heads.page_key(log.id, page.first))
        if item is None or item["v"] != page.v:
            return False
    return True


def _opened(log: Log, page: Page, begun: Round) -> Steps[list[Entry] | None]:
    """The chunks of a page; None if it has a manifest that cannot be read, or could not when it was taken in: such a
    page stays as it is, since no list may come into another."""
    lists = {entry.id for entry in page.entries if entry.kind & MANIFEST}
    if begun.unread & lists:
        return None
    try:
        return (yield from _chunks(log, page))
    except (Damaged, ObjectMissing):
        begun.unread |= lists
        return None


def _chunks(log: Log, page: Page) -> Steps[list[Entry]]:
    """The chunks of a page, also those that a manifest lists; the first of these is found by the manifest's id, too."""
    out: list[Entry] = []
    for entry in page.entries:
        chunks = yield from expand(log, entry)
        if entry.kind & MANIFEST:
            ids = [entry.id] + [""] * (len(chunks) - 1)
            chunks = tuple(
                structs.replace(chunk, made_of=((id, tuple(chunk.counts.items())),))
                for id, chunk in zip(ids, chunks, strict=True)
            )
        out += chunks
    return out


def _groups(entries: Sequence[Entry], size: int) -> Iterator[list[Entry]]:
    """Neighbouring chunks that are gone through, and perhaps written anew, together."""
    some: list[Entry] = []
    total = 0
    for entry in entries:
        total += entry.size
        if some and total > size:
            yield some
            some, total = [], entry.size
        some.append(entry)
    if some:
        yield some


# --- writing anew -----------------------------------------------------------------------------------------------------
def _rewrite(log: Log, how: Compacting, begun: Round, told: Told) -> Steps[bool]:
    """Every page of a round, oldest first; False if some could not be replaced, which ends the round."""
    head = yield from log.head()
    how, number = _unless_grown(how, head), head.first
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
        page = yield from _page(log, how, number)
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
        if (opened := (yield from _opened(log, page, begun))) is None:
            return _untouched(begun, page)
        chunks += opened
    new = Anew()
    for group in _groups(chunks, how.size):
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


def _untouched(begun: Round, page: Page) -> Anew:
    """A page whose chunks are not known: it stays as it is."""
    new, at = Anew(), heads.plus(page.base, {})
    for entry in page.entries:
        begun.passed(entry, at)
        new.unread.append((entry, at))
        at = heads.plus(at, entry.counts)
    return new


def _spare(log: Log, begun: Round, pages: Sequence[Page], new: Anew) -> Steps[bool]:
    """What could not be read is left as it is; False if it was replaced meanwhile, and so is no damage."""
    if not (yield from _as_read(log, pages)):
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


def _restored(begun: Round, mark: Item | None) -> bool:
    """Whether something that could not be read before can be now, or is gone: what is compacted knows nothing of it."""
    return any(q not in begun.lost or begun.lost[q] > at for q, at in _left(mark).items())


def _note(log: Log, begun: Round, mark: Item | None) -> Steps[None]:
    """How far compaction has come: of a key whose tombstone is on a page up to there, and not behind what is left,
    nothing older is there."""
    key = upkeep_key(log.id)
    new = {"compacted": begun.upto, "tombstones": begun.tombstones, "left": heads.by_text(begun.lost)}
    if _restored(begun, mark):
        new |= {"compacted": -1, "left": {}}
    if mark is None:
        yield from guard.attempt(Put(key, new, (Absent(),)))
    else:
        changes = tuple(Set(name, value) for name, value in new.items())
        yield from guard.attempt(Update(key, changes, (Equals("compacted", mark["compacted"]),)))
