"""Scrub of items: consumer groups, guards, positions of pipelines, and the streams of the event store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tailrace.admin.guards import GUARDS, PRODUCER, scrub_guard, scrub_holders
from tailrace.admin.report import Report
from tailrace.coordination import guard
from tailrace.coordination.lease import NOBODY
from tailrace.errors import Damaged, UnknownTopic
from tailrace.events.archive import ARCHIVE
from tailrace.events.scrub import StreamCheck, scrub_stream
from tailrace.log.format import head as heads
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.integrity.damage import Damage
from tailrace.log.integrity.scrub import ScrubResult
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import LAST, Item, Key


class StoredChunks(Protocol):
    """Collects a topic's stored chunks, which are then compared with those that the log refers to."""

    name: str

    def put(self, gen: int, id: str, size: int) -> None:
        """Add a chunk that a listing of the home's objects or items shows."""


class ItemScrubber:
    """Checks the items of a home against its topics, and adds what it finds to the report."""

    def __init__(self, store: Store, report: Report, shelves: Mapping[str, StoredChunks]) -> None:
        self._store, self._report, self._shelves = store, report, shelves

    def groups(self, topics: set[str] | None) -> None:
        """Check the positions and owners of consumer groups."""
        try:
            listed = self._store.run(groups.groups())
            for name, topic, id in listed:
                if topics is None or topic in topics:
                    self._report.groups += 1
                    self._found(self._group(Group(name, TopicLog(topic, id), LAST)))
        except Damaged as error:
            self._report.damage("item", error)

    def holders(self) -> None:
        """Check the positions that the writers of pipelines have acknowledged."""
        for id, shelf in self._shelves.items():
            self._found(scrub_holders(TopicLog(shelf.name, id), self._report.notes))

    def _group(self, group: Group) -> Steps[list[Damage]]:
        # positions before the head: its ends only rise, so a position beyond them is real damage
        held = yield from groups.shards(group)
        made = yield from guard.read(group.key)
        lives = yield from groups.members(group)
        try:
            head = yield from group.log.head()
        except UnknownTopic:
            return []
        out = []
        for q, item in held.items():
            where, end = f"item {group.hash_key}/{q}", head.next.get(q, 0)
            text = f"group {group.name!r} is at {item['position']} of partition {q}, which ends at {end}"
            if item["owner"] != NOBODY and item["owner"] not in lives:
                self._report.notes.append(
                    f"partition {q} of {group.log.name!r} is leased to a member of group {group.name!r} that is gone; "
                    "the next one to look takes it over"
                )
            if item["position"] > end and _placed_there(item, made):
                self._report.notes.append(
                    f"{group.log.name!r}: {text}; an operator has put it there, and it waits for that"
                )
            elif not 0 <= item["position"] <= end:
                out.append(Damage("position", text, group.log.name, where))
        return out

    def everything(self) -> None:
        """Check the whole table in one pass: inline chunks, guards of appends, and streams of events."""
        suspicion, suspects = StreamCheck(), set[str]()
        names = {id: shelf.name for id, shelf in self._shelves.items()}
        for item in self._scan():
            p: str = item["p"]
            if p.startswith("$Chunk-"):
                if (shelf := self._shelves.get(p.removeprefix("$Chunk-"))) is not None:
                    shelf.put(item["i"] >> heads.ID_BITS, item["id"], len(heads.chunk_data(item)))
            elif p.startswith(GUARDS):
                self._report.producers += p.startswith(PRODUCER)
                self._found(scrub_guard(Key(p, item["i"]), names, self._report.notes))
            elif not p.startswith("$") and (stream := suspicion.take(item)) is not None:
                suspects.add(stream)
        if (last := suspicion.end()) is not None:
            suspects.add(last)
        self._report.streams = suspicion.streams
        archived = self._store.run(guard.read(ARCHIVE)) is not None
        for stream in sorted(suspects):
            if (error := self._store.run(scrub_stream(stream, archived))) is not None:
                self._report.damage("event", error)

    def _scan(self) -> Iterator[Item]:
        after: Key | None = None
        try:
            while found := self._store.run(guard.some(after)):
                yield from found
                after = Key(found[-1]["p"], found[-1]["i"])
        except Damaged as error:
            behind = f"behind {after.p!r}/{after.i} " if after else ""
            self._report.damage("item", error)
            self._report.notes.append(f"items {behind}could not be looked at: the table cannot be read to its end")

    def _found(self, steps: Steps[list[Damage]]) -> None:
        try:
            self._report.add(ScrubResult(self._store.run(steps)))
        except Damaged as error:
            self._report.damage("item", error)


def _placed_there(shard: Item, group: Item | None) -> bool:
    """Whether an operator may have set this position: a group may be reset to an offset beyond the end."""
    return "reset" in shard or group is None or group["start"].get(str(shard["i"])) == shard["position"]
