"""Copying a home: disk to S3 and back, any to any, while it is written to.

The rule.  Positions are read first, then the heads, then what the heads refer to; bytes are immutable, so they are
the same whenever they are read.  So no position in the copy is ahead of its log, and every record that a head counts is
there.  What guards appends (named producers, pipelines' readers) is read before and after the heads, until it is the
same both times: it agrees with them exactly.  A home on disk is read as of one moment, as a whole.

The target cannot be opened before all of it is there and a scrub has read it.  A copy that was cut off is begun again:
the objects that are there already stay.  Processes do not live in the copy: members and leases are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.lease import NOBODY
from tailrace.errors import Damaged, ObjectMissing, Unavailable, UnknownTopic
from tailrace.events.tip import TIP
from tailrace.log import head as heads
from tailrace.log import missing
from tailrace.log.append import Log
from tailrace.log.catalog import bucket_key
from tailrace.log.chunk import MANIFEST
from tailrace.log.head import Entry, Head, Page
from tailrace.log.manifest import expand
from tailrace.storage.calls import Store
from tailrace.storage.tables import LAST, Item, Key
from tailrace.whole.guards import GUARDS
from tailrace.whole.report import Report
from tailrace.whole.scrub import scrub
from tailrace.whole.target import Target, claim, scan

LEFT_OUT = ("$Home", "$Member-", "$Name-", "$Lease-", "$Deleted", "$Topics", "$Topic-", "$Log-", "$Chunk-", "$Upkeep-")
ATTEMPTS = 20
WORKERS = 4


@dataclass(slots=True)
class Copied:
    """What a copy has done: topics and streams, objects, how many of these were there from a copy cut off before, and
    the scrub of the target."""

    topics: int = 0
    streams: int = 0
    objects: int = 0
    bytes: int = 0
    resumed: int = 0
    report: Report = field(default_factory=Report)


class _Changed(Exception):
    """The source has changed under the copy: read its items anew."""


def copy(
    source: Store, target: Store, source_id: str, url: str, told: Callable[[int], object] = lambda _: None
) -> Copied:
    """Copy a home to a target, which is then a home of its own; `url` names the target in messages."""
    claimed = claim(target, source_id, url)
    there = {one.name: one.size for one in target.objects.list("topics/")}
    missing: set[str] = set()
    for attempt in range(ATTEMPTS):
        claimed.wipe(("$Chunk-",))
        copied = Copied(resumed=len(there) if attempt == 0 else 0)
        try:
            with _still(source) as still:
                _Copy(still, claimed, there, missing, copied, told).run()
            break
        except _Changed:
            continue
    else:
        raise Unavailable(f"the source has changed {ATTEMPTS} times while it was copied; run it again later")
    copied.report = scrub(target)
    if _mend(source, claimed, copied.report):
        copied.report = scrub(target)
    claimed.finish()
    return copied


@contextmanager
def _still(source: Store) -> Iterator[Store]:
    """The source as of one moment, where its table can."""
    snapshot: Any = getattr(source.table, "snapshot", None)
    if snapshot is None:
        yield source
        return
    with snapshot() as table:
        yield replace(source, table=table)


def _mend(source: Store, target: Target, report: Report) -> bool:
    """Copy again what a power cut may have left half-written in the target; whether there was any."""
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
        target: Target,
        there: dict[str, int],
        missing: set[str],
        copied: Copied,
        told: Callable[[int], object],
    ) -> None:
        self.source, self.target, self.there, self.missing = source, target, there, missing
        self.copied, self.told = copied, told
        self.sizes: dict[str, int] = {}

    def run(self) -> None:
        """Positions, heads, pages and bytes, in this order; and the topics' names last."""
        topics, guards = self._items()
        described = {item["id"]: item for item in topics}
        found, guards = self._heads(described, guards)
        with ThreadPoolExecutor(WORKERS, "tailrace-copy") as pool:
            for id, head in found.items():
                self._topic(Log(described[id]["p"].removeprefix("$Topic-"), id), head, pool)
        self.target.put_all(guards.values())
        names: dict[Key, dict[str, str]] = {}
        for id, item in described.items():
            if id in found:  # it may have grown since it was described
                item = {**item, "partitions": found[id].partitions}
            elif self.source.run(guard.truth(Key(item["p"], item["i"]))) != item:
                continue  # deleted since; else its head is lost, and the scrub of the target says so
            name = item["p"].removeprefix("$Topic-")
            names.setdefault(bucket_key("$Topics", name), {})[name] = id
            self.target.put(item)
        self.target.put_all({"p": key.p, "i": key.i, "names": some} for key, some in names.items())
        self.target.flush()

    # -- items
    def _items(self) -> tuple[list[Item], dict[Key, Item]]:
        """Everything that stands by itself; gives the topics' descriptions, and the guards."""
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
            elif p.startswith(GUARDS):
                guards[Key(p, item["i"])] = item
            elif not p.startswith(LEFT_OUT):
                self.target.put({**item, "owner": NOBODY} if p.startswith("$Group-") and "owner" in item else item)
        return topics, guards

    def _stream(self, stream: str) -> None:
        """The Tip first, then the calves below it, which never change."""
        tip = self.source.run(guard.truth(Key(stream, TIP)))
        below = LAST if tip is None else tip["n"] - len(tip["e"])
        for calf in self.source.run(guard.read_all(stream, 0, TIP - 1)):
            if calf["i"] < below:
                self.target.put(calf)
        if tip is not None:
            self.target.put(tip)
        self.copied.streams += 1

    def _heads(self, topics: dict[str, Item], guards: dict[Key, Item]) -> tuple[dict[str, Head], dict[Key, Item]]:
        """Every topic's head, and the guards as they were meanwhile; a topic deleted by now is left out."""
        for _ in range(ATTEMPTS):
            found: dict[str, Head] = {}
            for id in topics:
                try:
                    found[id] = self.source.run(Log(id, id).head())
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
    def _topic(self, log: Log, head: Head, pool: ThreadPoolExecutor) -> None:
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
                    raise _Changed
                if page.first != number:
                    self._must_be_lost(log, number)
                self._entries(log, page.entries, pool)
                self.target.put(item)
                number = page.last + 1
        self._entries(log, head.own.entries, pool)
        self.target.put(head.item)
        self.copied.topics += 1

    def _must_be_lost(self, log: Log, number: int) -> None:
        """A page that does not show was merged since its head was read; or is lost, as the scrub of the target says."""
        if self.source.run(missing.gap_at(log, number)) is None:
            raise _Changed

    def _entries(self, log: Log, entries: tuple[Entry, ...], pool: ThreadPoolExecutor) -> None:
        every = [part for entry in entries for part in self._parts(log, entry)]
        for entry in every:
            if entry.inline:
                self._item(log, entry)
        for size in pool.map(lambda entry: self._object(log, entry), [e for e in every if not e.inline]):
            self.copied.objects += 1
            self.copied.bytes += size
            self.told(size)

    def _parts(self, log: Log, entry: Entry) -> tuple[Entry, ...]:
        if not entry.kind & MANIFEST:
            return (entry,)
        try:
            return (entry, *self.source.run(expand(log, entry)))
        except ObjectMissing as error:
            raise _Changed from error
        except Damaged:
            return (entry,)  # the scrub of the target says so

    def _item(self, log: Log, entry: Entry) -> None:
        key = heads.chunk_key(log.id, entry.gen, entry.id)
        item = self.source.run(guard.read(key))
        if item is not None:
            self.target.put(item)
        else:
            self._gone(f"{key.p}/{key.i}")

    def _object(self, log: Log, entry: Entry) -> int:
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
        """Bytes that were there are not: merged and cleaned since; or lost, if it is so the next time too, which the
        scrub of the target tells."""
        if name not in self.missing:
            self.missing.add(name)
            raise _Changed
