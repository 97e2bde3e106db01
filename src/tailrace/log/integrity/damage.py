"""Damage: what scrubbing finds, as values, and a walk over a topic's pages.

The walk reads as a reader does.  Before it calls something damage it reads it again, linearizably, since producers,
merging and retention are at work meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tailrace.coordination import guard
from tailrace.errors import Lost
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head, Page
from tailrace.log.integrity.missing_pages import Gap, between, pages_of
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST

Kind: TypeAlias = Literal[
    "bytes", "missing", "records", "manifest", "page", "head", "catalog", "position", "producer", "event", "item",
    "database", "journal",
]  # fmt: skip
"""bytes: not those written, or cut; missing: an object or item that is referred to; records: not as many as the table
says; manifest: a list of chunks; page, head, catalog, item: items of the table; position: a group is where the log has
never been; producer: what it has stored is not in the log; event: of a stream; database, journal: SQLite's files."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as it was written: its topic, its object, item or file, the byte where the damage begins,
    and the records that are lost with it."""

    kind: Kind
    text: str
    topic: str = ""
    where: str = ""
    byte: int | None = None
    lost: tuple[Lost, ...] = ()

    def __str__(self) -> str:
        at = f" at byte {self.byte:,}" if self.byte is not None else ""
        lost = f"; lost: {', '.join(map(str, self.lost))}" if self.lost else ""
        topic = f"topic {self.topic!r}: " if self.topic else ""
        return f"{topic}{self.where}{at}: {self.text}{lost}"


def check_head(log: TopicLog, head: Head) -> list[Damage]:
    """The damage of a head, which its own contradictions show."""
    key = heads.head_key(log.id)
    where = f"item {key.p}/{key.i}"
    wrong = [
        (head.fence > head.gen, f"gc {head.fence} is above gen {head.gen}"),
        (head.first > head.page, f"its first page {head.first} is above its page {head.page}"),
        *(
            (not 0 <= head.floor.get(q, -1) <= n, f"partition {q} ends at {n}, below its floor {head.floor.get(q)}")
            for q, n in head.next.items()
        ),
        *((n < 0, f"its entries have more records of partition {q} than the log") for q, n in head.own.base.items()),
    ]
    return [Damage("head", text, log.name, where) for true, text in wrong if true]


class PageWalk:
    """The pages of a topic from its first on, the open one last; pages that do not join go to `found`."""

    def __init__(self, log: TopicLog) -> None:
        self.log = log
        self.found: list[Damage] = []
        self.head: Head | None = None
        """The head as it was when the walk began."""
        self._number, self._before = 0, -1
        self._due: Mapping[int, int] | None = None
        self._ended = False

    def next(self) -> Steps[Page | None]:
        """The next page; None after the last one."""
        if self._ended:
            return None
        if self.head is None:
            self.head = yield from self.log.head()
            self.found += check_head(self.log, self.head)
            self._number = self.head.first
        page = yield from self._joined()
        self._before, self._number, self._due = page.first, page.last + 1, page.end
        return page

    def _joined(self) -> Steps[Page]:
        """The page that follows.  A page that does not join is read linearizably, and again if it changed."""
        page, _ = yield from self._plain()
        seen = None
        while page is None or not self._joins(page):
            now = yield from self._linearizable()
            page = now[0]
            if seen is not None and seen[1] == now[1]:
                return (yield from self._gap(page))
            seen = now
        return page

    def _joins(self, page: Page) -> bool:
        # a page that begins earlier was merged with pages that this walk has seen, and is checked as a whole
        return page.first < self._number or self._due is None or heads.joins(self._due, page.base)

    def _plain(self) -> Steps[tuple[Page | None, Head]]:
        head = yield from self.log.head()
        self._rise(head)
        if self._number >= head.page:
            self._ended = True
            return head.own, head
        p = heads.head_key(self.log.id).p
        items, _ = yield from guard.read_range(p, 0, self._number, descending=True, limit=1)
        page = Page.of(items[0]) if items else None
        return (page if page is not None and page.last >= self._number else None), head

    def _rise(self, head: Head) -> None:
        if head.first > self._number:
            self._number, self._due = head.first, None

    def _linearizable(self) -> Steps[tuple[Page | None, object]]:
        """The page and the head that it is judged by, from linearizable reads, which see what plain reads may not show
        yet."""
        head = self.log.saw((yield from guard.truth(heads.head_key(self.log.id))))
        self._rise(head)
        self._ended = self._number >= head.page
        if self._ended:
            return head.own, (head.page, head.first, dict(head.own.base))
        here = yield from guard.truth(heads.page_key(self.log.id, self._number))
        before = yield from guard.truth(heads.page_key(self.log.id, max(self._before, 0)))
        for item in here, before:
            if item is not None and "base" in item and (page := Page.of(item)).first <= self._number <= page.last:
                return page, (page.first, page.revision, head.first)
        plain, _ = yield from self._plain()
        return plain, (plain.first if plain else None, plain.revision if plain else None, head.first)

    def _gap(self, page: Page | None) -> Steps[Page]:
        """Note a page that is certainly lost, and continue behind the gap."""
        p, name = heads.head_key(self.log.id).p, self.log.name
        where = f"item {p}/{self._number}"
        if page is not None:
            due = self._due or {}
            text = f"it begins at {_shown(page.base)}, and the one before it ends at {_shown(due)}"
            self.found.append(Damage("page", text, name, where, lost=between(due, page.base)))
            return page
        head = yield from self.log.head()
        items, _ = yield from guard.read_range(p, self._number, LAST - 1, limit=1)
        after = Page.of(items[0]) if items else head.own
        self._ended = not items
        gap = Gap(self._number, after, between(self._due or head.floor, after.base))
        text = f"{pages_of(gap)} of the log's references is missing"
        self.found.append(Damage("page", text, name, where, lost=gap.lost))
        return after


def _shown(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{q}:{n}" for q, n in sorted(offsets.items()))


def distinct(damages: Sequence[Damage]) -> list[Damage]:
    """Each piece of damage once, in the order of the first occurrences."""
    return list(dict.fromkeys(damages))
