"""Merge plan: decides which neighbouring chunks are worth being made into one.  Pure.

Merging never writes a large chunk again; large is half of the wanted size.  It packs smaller neighbours if together
they become large, or at least g = `SIZE_RATIO_OF_LEVELS` times as large as the largest of them.  So each time merging
writes a record again, the record lies in a chunk g times as large as before, until that is large: at most 1 + log(size
/ 2 / its first chunk) to the base g times.  Between two large chunks, and at the end, some g small chunks of each level
stay unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.coordination.rules import in_force
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.format.head import ChunkEntry, Page

SIZE_RATIO_OF_LEVELS = 8
MERGED_OBJECT_BYTES = 64 * 1024 * 1024
"""Bytes of an object that merging makes, unless the topic says otherwise."""
MAX_PAGES_PER_MERGE = 98
"""Pages in one merge: with the head's check, a transaction has 100 actions, and one is left for a lease."""
MAX_ENTRY_BYTES_PER_MERGE = 1024 * 1024
"""Bytes of entries on the pages of one merge: a transaction has 4 MB."""
MAX_REMEMBERED_ID_BYTES = 64 * 1024
"""Bytes of ids that a merged page keeps: every seek reads them."""
MAX_OBJECTS_PER_MERGE = 4
"""About how many objects one merge makes at most."""

Pack = tuple[ChunkEntry, ...]
"""Neighbouring entries that become one; a single entry stays as it is."""


def small(entry: ChunkEntry, size: int) -> bool:
    """Whether a chunk is to be packed with its neighbours."""
    return not entry.kind & MANIFEST and (entry.size < size // 2 or not in_force("merge.large"))


def packs(entries: Sequence[ChunkEntry], size: int = MERGED_OBJECT_BYTES, *, worthwhile: bool = True) -> list[Pack]:
    """Groups of neighbouring entries that become one entry each; `worthwhile`: only where that is worth the writing."""
    out: list[Pack] = []
    some: list[ChunkEntry] = []
    for entry in entries:
        if small(entry, size):
            some.append(entry)
            continue
        out += [*_cut(some, size, worthwhile), (entry,)]
        some = []
    return out + _cut(some, size, worthwhile)


def _cut(some: Sequence[ChunkEntry], size: int, worthwhile: bool) -> list[Pack]:
    """Small neighbours in groups of at most the wanted size."""
    sizes = [entry.size for entry in some]
    if len(some) < 2 or (worthwhile and not _worth(sizes, size)):
        return [(entry,) for entry in some]
    out: list[Pack] = []
    pack: list[ChunkEntry] = []
    total = 0
    for entry, bytes in zip(some, sizes, strict=True):
        if pack and total + bytes > size:
            out.append(tuple(pack))
            pack, total = [], 0
        pack.append(entry)
        total += bytes
    return [*out, tuple(pack)]


def _worth(sizes: Sequence[int], size: int) -> bool:
    total = sum(sizes)
    return total >= size // 2 or total >= SIZE_RATIO_OF_LEVELS * max(sizes) or not in_force("merge.growth")


def kept_ids(entry: ChunkEntry, fence: int) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """What the entry of a merged chunk remembers of this one: the ids and counts it stands for, "" for those behind the
    fence.

    No producer can append under such an id any more; a producer that still asks for its outcome gets the answer that it
    is gone."""
    made_of = entry.made_of or ((entry.id, tuple(entry.counts.items())),)
    if entry.gen >= fence:
        return made_of
    return (("", tuple(entry.counts.items())),)


def remembered(entries: Sequence[ChunkEntry], fence: int) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """What merged entries remember of these neighbours; neighbours whose ids are forgotten become one."""
    out: list[tuple[str, tuple[tuple[int, int], ...]]] = []
    for entry in entries:
        for id, counts in kept_ids(entry, fence):
            if out and id == out[-1][0] == "":
                out[-1] = ("", tuple(sorted(_sum(dict(out[-1][1]), dict(counts)).items())))
            else:
                out.append((id, counts))
    return tuple(out)


def id_bytes(page: Page, fence: int) -> int:
    """About how many bytes of ids a merged page remembers of this entry."""
    return sum(30 + 7 * len(counts) for entry in page.entries for id, counts in kept_ids(entry, fence) if id)


def _sum(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    return {q: a.get(q, 0) + b.get(q, 0) for q in a.keys() | b.keys()}


class MergeWindow:
    """Collects neighbouring pages that may be merged together, during a walk from the oldest on."""

    def __init__(self, size: int = MERGED_OBJECT_BYTES, fence: int = 0, span: int | None = None) -> None:
        self._size, self._fence, self._span = size, fence, span
        self._pages: list[Page] = []
        self._bytes = self._items = self._ids = 0

    def add(self, page: Page) -> Iterator[list[Page]]:
        """Take the next page; returns the groups before it that are to be merged."""
        settled = not any(small(entry, self._size) for entry in page.entries)
        bytes = sum(entry.size for entry in page.entries if small(entry, self._size))
        items = sum(map(len, page.packed))
        ids = id_bytes(page, self._fence)
        full = (
            len(self._pages) >= MAX_PAGES_PER_MERGE
            or self._bytes + bytes > MAX_OBJECTS_PER_MERGE * self._size
            or self._items + items > MAX_ENTRY_BYTES_PER_MERGE
            or self._ids + ids > MAX_REMEMBERED_ID_BYTES
            or self._too_long(page)
        )
        if settled or full or (self._pages and self._pages[-1].last + 1 != page.first):
            yield from self.close()
        if not settled:
            self._pages.append(page)
            self._bytes, self._items, self._ids = self._bytes + bytes, self._items + items, self._ids + ids

    def _too_long(self, page: Page) -> bool:
        """Whether, with this page, the pages' times would lie further apart than is allowed."""
        if self._span is None or not self._pages:
            return False
        runs = [run for p in (*self._pages, page) for entry in p.entries for run in entry.runs if run.length]
        return max(r.latest for r in runs) - min(r.latest - r.span for r in runs) > self._span if runs else False

    def close(self) -> Iterator[list[Page]]:
        """End the group, because the next page does not join it; returns the group if it is to be merged."""
        pages, self._pages = self._pages, []
        self._bytes = self._items = self._ids = 0
        for start in range(len(pages)):
            group = pages[start:]
            if any(len(pack) > 1 for pack in packs([e for page in group for e in page.entries], self._size)):
                yield group
                return
