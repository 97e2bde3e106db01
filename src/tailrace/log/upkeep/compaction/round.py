"""Rounds: what one round of compaction has to do, how far it has got, and the pages it works through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc
from msgspec import structs

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, CompactBy, Compression
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.manifest import expand
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.compaction.newest_by_key import NewestByKey, Rows
from tailrace.log.upkeep.compaction.unreadable import SparedChunk
from tailrace.log.upkeep.merge_plan import MERGED_OBJECT_BYTES
from tailrace.log.upkeep.repack import RunToPack
from tailrace.log.upkeep.retention import RetentionRule
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How a topic is compacted."""

    by: CompactBy = "key"
    before: int | None = None
    """Tombstones older than this may go (milliseconds since 1970); None: none may."""
    delay: int = 0
    """How long tombstones stay, in milliseconds."""
    held: Mapping[int, int] | None = None
    """The first offset of each partition that a holder still needs; compaction touches nothing from there on."""
    compression: Compression = "none"
    size: int = MERGED_OBJECT_BYTES


@dataclass(slots=True)
class CompactionRound:
    """The task of one round of compaction, and its progress."""

    newest: NewestByKey
    upto: int
    taken: set[tuple[int, int]] = field(default_factory=set)
    """The pages whose records were collected, as they were then: (first, revision)."""
    records: int = 0
    tombstones: int | None = None
    """The earliest timestamp of a tombstone that stays and will go some day."""
    unread: set[str] = field(default_factory=set)
    """The ids of chunks that could not be read: they stay as they are, even if they have become readable."""
    stays: dict[int, int] = field(default_factory=dict)
    """The offsets from which tombstones stay, by partition."""
    lost: dict[int, int] = field(default_factory=dict)
    """The offset of each partition's first chunk that could not be read, whatever has happened to it since then."""
    spared: dict[str, SparedChunk] = field(default_factory=dict)
    """The chunks that were left as they are, by id."""

    def took(self, page: Page) -> bool:
        """Whether all keys of a page were collected."""
        return (page.first, page.revision) in self.taken or not in_force("compact.taken")

    def passed(self, entry: ChunkEntry, at: Mapping[int, int]) -> None:
        """Note that a chunk, which begins at these offsets, is left as it is."""
        for q in entry.counts:
            self.lost[q] = min(self.lost.get(q, at[q]), at[q])
            if in_force("compact.stays"):
                self.stays[q] = min(self.stays.get(q, at[q]), at[q])

    def passed_page(self, page: Page) -> list[tuple[ChunkEntry, Mapping[int, int]]]:
        """Note that a page whose chunks are not known is left as it is; returns its entries and their first offsets."""
        out, at = list[tuple[ChunkEntry, Mapping[int, int]]](), heads.plus(page.base, {})
        for entry in page.entries:
            self.passed(entry, at)
            out.append((entry, at))
            at = heads.plus(at, entry.counts)
        return out

    def may_delete(self, q: int, pieces: Sequence[RunToPack]) -> bool:
        """Whether all records older than these were collected."""
        return q not in self.stays or pieces[-1].first + pieces[-1].run.count <= self.stays[q]

    def left(self, rows: Rows) -> None:
        """Note records that stay."""
        if (marks := rows.tombstones()) is None:
            return
        if (earliest := pc.min(rows.batch.column(0).filter(marks)).value) is not None:
            self.tombstones = earliest if self.tombstones is None else min(self.tombstones, earliest)


def upkeep_key(topic_id: str) -> Key:
    """The key of the item in which a topic's upkeep notes its progress."""
    return Key(f"$Upkeep-{topic_id}")


def left_before(mark: Item | None) -> dict[int, int]:
    """The offsets of the chunks that earlier rounds could not read."""
    left = mark.get("left", {}) if mark is not None and in_force("compact.left") else {}
    return {int(q): at for q, at in left.items()}


def restored(begun: CompactionRound, mark: Item | None) -> bool:
    """Whether a chunk that an earlier round could not read is readable now, or gone: the compacted pages were decided
    without it."""
    return any(q not in begun.lost or begun.lost[q] > at for q, at in left_before(mark).items())


def note(log: TopicLog, begun: CompactionRound, mark: Item | None) -> Steps[None]:
    """Store how far the compaction of a topic is.  A tombstone on a page up to there, and not behind an unreadable
    chunk, has no older record of its key left."""
    key = upkeep_key(log.id)
    new = {"compacted": begun.upto, "tombstones": begun.tombstones, "left": heads.by_text(begun.lost)}
    if restored(begun, mark):
        new |= {"compacted": -1, "left": {}}
    if mark is None:
        yield from guard.attempt(Put(key, new, (Absent(),)))
    else:
        changes = tuple(Set(name, value) for name, value in new.items())
        yield from guard.attempt(Update(key, changes, (Equals("compacted", mark["compacted"]),)))


def closed_page(log: TopicLog, how: CompactionSettings, number: int) -> Steps[Page | None]:
    """The next page for the round: the closed one that begins with this number; None at the end, if the page was merged
    or removed meanwhile, or if a holder still needs part of it."""
    item = yield from guard.read(heads.page_key(log.id, number))
    page = Page.of(item) if item is not None else None
    return None if page is None or RetentionRule(held=how.held).holds(page) else page


def opened(log: TopicLog, page: Page, begun: CompactionRound) -> Steps[list[ChunkEntry] | None]:
    """The chunks of a page that the round compacts; None if it has a manifest that cannot be read now, or could not
    when the page's keys were collected.  Such a page stays as it is: a manifest cannot list another one."""
    lists = {entry.id for entry in page.entries if entry.kind & MANIFEST}
    if begun.unread & lists:
        return None
    try:
        return (yield from _chunks(log, page))
    except (Damaged, ObjectMissing):
        begun.unread |= lists
        return None


def _chunks(log: TopicLog, page: Page) -> Steps[list[ChunkEntry]]:
    """The chunks of a page, also those that a manifest lists; the first of these is found by the manifest's id, too."""
    out: list[ChunkEntry] = []
    for entry in page.entries:
        chunks = yield from expand(log.id, entry)
        if entry.kind & MANIFEST:
            ids = [entry.id] + [""] * (len(chunks) - 1)
            chunks = tuple(
                structs.replace(chunk, made_of=((id, tuple(chunk.counts.items())),))
                for id, chunk in zip(ids, chunks, strict=True)
            )
        out += chunks
    return out


def groups(entries: Sequence[ChunkEntry], size: int) -> Iterator[list[ChunkEntry]]:
    """Groups of neighbouring chunks of up to `size` bytes, which the round reads, and perhaps rewrites, together."""
    some: list[ChunkEntry] = []
    total = 0
    for entry in entries:
        total += entry.size
        if some and total > size:
            yield some
            some, total = [], entry.size
        some.append(entry)
    if some:
        yield some


def as_read(log: TopicLog, pages: Sequence[Page]) -> Steps[bool]:
    """Whether the pages of the round are unchanged since it read them: then a chunk that could not be read is damaged,
    and was not replaced."""
    for page in pages:
        item = yield from guard.read(heads.page_key(log.id, page.first))
        if item is None or Page.of(item).revision != page.revision:
            return False
    return True


def unless_grown(how: CompactionSettings, head: Head) -> CompactionSettings:
    """The settings for this round: tombstones stay while the records they delete may be in another partition."""
    elsewhere = any(head.first < grown.page for grown in head.grown) and in_force("compact.grown")
    return dataclasses.replace(how, before=None) if elsewhere else how
