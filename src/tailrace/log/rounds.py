"""Rounds: what one round of compaction has to do, how far it has come, and the pages it goes through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc
from msgspec import structs

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged, ObjectMissing
from tailrace.log import head as heads
from tailrace.log.append import Log
from tailrace.log.chunk import MANIFEST, CompactBy, Compression
from tailrace.log.head import Entry, Head, Page
from tailrace.log.manifest import expand
from tailrace.log.newest import Newest, Rows
from tailrace.log.packing import Piece
from tailrace.log.retention import Keep
from tailrace.log.sparing import Spared
from tailrace.log.tiers import SIZE
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update


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

    def passed_page(self, page: Page) -> list[tuple[Entry, Mapping[int, int]]]:
        """A page whose chunks are not known stays as it is: its entries, and where they begin."""
        out, at = list[tuple[Entry, Mapping[int, int]]](), heads.plus(page.base, {})
        for entry in page.entries:
            self.passed(entry, at)
            out.append((entry, at))
            at = heads.plus(at, entry.counts)
        return out

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


def left_before(mark: Item | None) -> dict[int, int]:
    """The offsets of what could not be read before."""
    left = mark.get("left", {}) if mark is not None and in_force("compact.left") else {}
    return {int(q): at for q, at in left.items()}


def restored(begun: Round, mark: Item | None) -> bool:
    """Whether something that could not be read before can be now, or is gone: what is compacted knows nothing of it."""
    return any(q not in begun.lost or begun.lost[q] > at for q, at in left_before(mark).items())


def note(log: Log, begun: Round, mark: Item | None) -> Steps[None]:
    """How far compaction has come: of a key whose tombstone is on a page up to there, and not behind what is left,
    nothing older is there."""
    key = upkeep_key(log.id)
    new = {"compacted": begun.upto, "tombstones": begun.tombstones, "left": heads.by_text(begun.lost)}
    if restored(begun, mark):
        new |= {"compacted": -1, "left": {}}
    if mark is None:
        yield from guard.attempt(Put(key, new, (Absent(),)))
    else:
        changes = tuple(Set(name, value) for name, value in new.items())
        yield from guard.attempt(Update(key, changes, (Equals("compacted", mark["compacted"]),)))


def closed_page(log: Log, how: Compacting, number: int) -> Steps[Page | None]:
    """The closed page that begins with this number; None at the end, if it was merged or removed meanwhile, or if
    somebody still needs something of it."""
    item = yield from guard.read(heads.page_key(log.id, number))
    page = Page.of(item) if item is not None else None
    return None if page is None or Keep(held=how.held).holds(page) else page


def opened(log: Log, page: Page, begun: Round) -> Steps[list[Entry] | None]:
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


def groups(entries: Sequence[Entry], size: int) -> Iterator[list[Entry]]:
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


def as_read(log: Log, pages: Sequence[Page]) -> Steps[bool]:
    """Whether pages are still what they were: then what could not be read is damaged, and not replaced."""
    for page in pages:
        item = yield from guard.read(heads.page_key(log.id, page.first))
        if item is None or item["v"] != page.v:
            return False
    return True


def unless_grown(how: Compacting, head: Head) -> Compacting:
    """Tombstones stay while what they delete may be in another partition."""
    elsewhere = any(head.first < grown.page for grown in head.grown) and in_force("compact.grown")
    return dataclasses.replace(how, before=None) if elsewhere else how
