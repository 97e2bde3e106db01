"""Copies of a home: from any kind of home to any other, while processes write to the source.

The copy reads positions first, then the heads, then the pages and chunks that the heads refer to, whose bytes never
change.  So no position in the copy is ahead of its log, and every record that a head counts is there.  It reads the
items that guard appends (named producers, pipelines' readers) before and after the heads, until both reads are equal:
then they agree with the heads.  A home on disk is read as of one moment.

No process can open the target before it is complete and a scrub has read it.  A copy that was interrupted begins again,
and keeps the objects that it finds.  Members and leases are left out: their processes do not use the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.admin.guards import GUARDS
from tailrace.admin.report import Report
from tailrace.admin.scrub import scrub
from tailrace.admin.target import CopyTarget, claim, scan
from tailrace.coordination import guard
from tailrace.coordination.lease import NOBODY
from tailrace.errors import Damaged, ObjectMissing, Unavailable, UnknownTopic
from tailrace.events.tip import TIP
from tailrace.feed.state import KEY as INDEXING
from tailrace.log.catalog import bucket_key
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.manifest import expand
from tailrace.log.integrity import missing_pages as missing
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Store
from tailrace.storage.tables import LAST, Item, Key
from tailrace.streams.table_homes import TABLES, described

LEFT_OUT = (
    "$Home",
    "$Member-",
    "$Name-",
    "$UnitMember-",
    "$UnitName-",
    "$Lease-",
    "$Deleted",
    "$Topics",
    "$Topic-",
    "$Log-",
    "$Chunk-",
    "$Upkeep-",
)
MAX_COPY_ATTEMPTS = 20
COPY_THREADS = 4


@dataclass(slots=True)
class Copied:
    """The result of a copy: how many topics, streams of events, model tables, objects and bytes it has copied, how many
    objects it found from an interrupted copy (`resumed`), and the report of the target's scrub."""

    topics: int = 0
    streams: int = 0
    tables: int = 0
    objects: int = 0
    bytes: int = 0
    resumed: int = 0
    report: Report = field(default_factory=Report)


class _SourceChanged(Exception):
    """Upkeep or a deletion has changed the source during the copy, which must read its items again."""


def copy(
    source: Store, target: Store, source_id: str, url: str, told: Callable[[int], object] = lambda _: None
) -> Copied:
    """Copy a home to a target, which is a home of its own afterwards; `url` names the target in messages.

    `Unavailable` if the source changes during every attempt, `Fenced` if another copy to the target begins."""
    claimed = claim(target, source_id, url)
    there = {one.name: one.size for one in target.objects.list("topics/")}
    missing: set[str] = set()
    for attempt in range(MAX_COPY_ATTEMPTS):
        claimed.wipe(("$Chunk-",))
        copied = Copied(resumed=len(there) if attempt == 0 else 0)
        try:
            with _still(source) as still:
                _Copy(still, claimed, there, missing, copied, told).run()
            break
        except _SourceChanged:
            continue
    else:
        raise Unavailable(f"the source has changed {MAX_COPY_ATTEMPTS} times while it was copied; run it again later")
    copied.report = scrub(target)
    if _mend(source, claimed, copied.report):
        copied.report = scrub(target)
    claimed.finish()
    return copied


@contextmanager
def _still(source: Store) -> Iterator[Store]:
    """The source as of one moment if its table has snapshots, else the source itself."""
    snapshot: Any = getattr(source.table, "snapshot", None)
    if snapshot is None:
        yield source
        return
    with snapshot() as table:
        yield replace(source, table=table)


def _mend(source: Store, target: CopyTarget, report: Report) -> bool:
    """Copy the target's damaged objects again, which a power cut may have left half-written; returns whether there were
    any."""
    mended = False
    for damage in report.damages:
        if damage.where.startswith("topics/"):
            try:
                right = source.objects.get(damage.where)
            except ObjectMissing:
                continue
            target.replace_object(damage.where, right)
            mended = True
    return mended


class _Copy:
    def __init__(
        self,
        source: Store,
        target: CopyTarget,
        there: dict[str, int],
        missing: set[str],
        copied: Copied,
        told: Callable[[int], object],
    ) -> None:
        self.source, self.target, self.there, self.missing = source, target, there, missing
        self.copied, self.told = copied, told
        self.sizes: dict[str, int] = {}

    def run(self) -> None:
        """Copy positions, heads, pages and bytes in this order, and the topics' names last."""
        topics, guards = self._items()
        described = {item["id"]: item for item in topics}
        found, guards = self._heads(described, guards)
        with ThreadPoolExecutor(COPY_THREADS, "tailrace-copy") as pool:
            for id, head in found.items():
                self._topic(TopicLog(described[id]["p"].removeprefix("$Topic-"), id), head, pool)
        self.target.put_all(guards.values())
        names: dict[Key, dict[str, str]] = {}
        for id, item in described.items():
            if id in found:  # it may have grown since it was described
                item = {**item, "partitions": found[id].partitions}
            elif self.source.run(guard.truth(Key(item["p"], item["i"]))) != item:
                continue  # deleted since; otherwise its head is lost, which the scrub of the target reports
            name = item["p"].removeprefix("$Topic-")
            names.setdefault(bucket_key("$Topics", name), {})[name] = id
            self.target.put(item)
        self.target.put_all({"p": key.p, "i": key.i, "names": some} for key, some in names.items())
        self.target.flush()

    # -- items
    def _items(self) -> tuple[list[Item], dict[Key, Item]]:
        """Copy every item that depends on no other; returns the topics' descriptions and the guards."""
        topics: list[Item] = []
        guards: dict[Key, Item] = {}
        stream = ""
        for item in scan(self.source):
            p: str = item["p"]
            if not p.startswith("$"):
                if p != stream:
                    self._stream(p)
                stream = p
            elif p.startswith("$Topic-"):
                topics.append(item)
            elif p == TABLES:
                self._model_table(item)
            elif p.startswith(GUARDS):
                guards[Key(p, item["i"])] = item
            elif p == INDEXING.p:
                self.target.put({name: value for name, value in item.items() if name != "store"})
            elif not p.startswith(LEFT_OUT):
                self.target.put({**item, "owner": NOBODY} if p.startswith("$Group-") and "owner" in item else item)
        return topics, guards

    def _model_table(self, item: Item) -> None:
        """Copy a model's table, from the same snapshot as the other items where the source has one."""
        name, (schema, view) = item["name"], described(item)
        source: Any = self.source.table
        items = source.sibling(name, schema)
        into = self.target.model_table(name, schema, view)
        after: Key | None = None
        while page := items.scan(after):
            into.put_all(page)
            after = schema.key_of(page[-1])
        into.flush()
        self.copied.tables += 1

    def _stream(self, stream: str) -> None:
        """Copy a stream: its Tip first, then the calves below it, which never change."""
        tip = self.source.run(guard.truth(Key(stream, TIP)))
        below = LAST if tip is None else tip["n"] - len(tip["e"])
        for calf in self.source.run(guard.read_all(stream, 0, TIP - 1)):
            if calf["i"] < below:
                self.target.put(calf)
        if tip is not None:
            self.target.put(tip)
        self.copied.streams += 1

    def _heads(self, topics: dict[str, Item], guards: dict[Key, Item]) -> tuple[dict[str, Head], dict[Key, Item]]:
        """Read every topic's head, until the guards are the same before and after; returns both without deleted topics.

        `Unavailable` if named producers or pipelines change the guards every time."""
        for _ in range(MAX_COPY_ATTEMPTS):
            found: dict[str, Head] = {}
            for id in topics:
                try:
                    found[id] = self.source.run(TopicLog(id, id).head())
                except UnknownTopic:
                    continue
            again = {Key(item["p"], item["i"]): item for item in scan(self.source) if item["p"].startswith(GUARDS)}
            if again == guards:
                return found, guards
            guards = again
        raise Unavailable(
            "named producers or pipelines have written all the time, and their numbers must agree with the log; stop "
            "them while the copy begins, or copy from a home on disk"
        )

    # -- topics
    def _topic(self, log: TopicLog, head: Head, pool: ThreadPoolExecutor) -> None:
        if self.there:
            self.sizes = {one.name: one.size for one in self.source.objects.list(f"topics/{log.id}/")}
        number = head.first
        while number < head.page:
            items, _ = self.source.run(guard.read_range(heads.head_key(log.id).p, number, head.page - 1))
            if not items:
                self._must_be_lost(log, number)
                break
            for item in items:
                page = Page.of(item)
                if page.last >= head.page:
                    raise _SourceChanged
                if page.first != number:
                    self._must_be_lost(log, number)
                self._entries(log, page.entries, pool)
                self.target.put(item)
                number = page.last + 1
        self._entries(log, head.own.entries, pool)
        self.target.put(head.item)
        self.copied.topics += 1

    def _must_be_lost(self, log: TopicLog, number: int) -> None:
        """Raise `_SourceChanged` if a missing page was merged since its head was read; return if it is lost, which the
        scrub of the target reports."""
        if self.source.run(missing.gap_at(log, number)) is None:
            raise _SourceChanged

    def _entries(self, log: TopicLog, entries: tuple[ChunkEntry, ...], pool: ThreadPoolExecutor) -> None:
        every = [part for entry in entries for part in self._parts(log, entry)]
        for entry in every:
            if entry.inline:
                self._item(log, entry)
        for size in pool.map(lambda entry: self._object(log, entry), [e for e in every if not e.inline]):
            self.copied.objects += 1
            self.copied.bytes += size
            self.told(size)

    def _parts(self, log: TopicLog, entry: ChunkEntry) -> tuple[ChunkEntry, ...]:
        if not entry.kind & MANIFEST:
            return (entry,)
        try:
            return (entry, *self.source.run(expand(log.id, entry)))
        except ObjectMissing as error:
            raise _SourceChanged from error
        except Damaged:
            return (entry,)  # the scrub of the target reports it

    def _item(self, log: TopicLog, entry: ChunkEntry) -> None:
        key = heads.chunk_key(log.id, entry.gen, entry.id)
        item = self.source.run(guard.read(key))
        if item is not None:
            self.target.put(item)
        else:
            self._gone(f"{key.p}/{key.i}")

    def _object(self, log: TopicLog, entry: ChunkEntry) -> int:
        name = heads.object_name(log.id, entry.gen, entry.id)
        try:
            size = self.sizes.get(name, -1)
            if size >= 0 and self.there.get(name) == size:
                return size
            data = self.source.objects.get(name)
        except ObjectMissing:
            self._gone(name)
            return 0
        self.target.put_object(name, data)
        self.there[name] = len(data)
        return len(data)

    def _gone(self, name: str) -> None:
        """Raise `_SourceChanged` the first time a chunk is missing: upkeep may have merged and cleaned it.  If the next
        attempt misses it, too, it is lost, which the scrub of the target reports."""
        if name not in self.missing:
            self.missing.add(name)
            raise _SourceChanged
