"""Writing topics: tasks put chunks, and one transaction appends them all together with the offsets.

    $Sink-<pipeline>.<writer>, 0    seq, epoch, offsets (JSON), claimed, id, page

`claimed`: the epoch has begun, and the offsets are still those of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Guarantee, Staged, Who, Writer
from tailrace.adaptors.rows import namespace_of
from tailrace.adaptors.tailrace_topic.homes import open_once
from tailrace.adaptors.tailrace_topic.reading import topic_of
from tailrace.adaptors.tailrace_topic.records import records_from, topic_name
from tailrace.adaptors.tailrace_topic.settings import TopicSink
from tailrace.adaptors.turn import is_repeat
from tailrace.coordination import guard
from tailrace.errors import Fenced, ObjectMissing, Unavailable
from tailrace.home import Home
from tailrace.log.append import Placed, commit_guarded, place
from tailrace.log.buffer import Buffer
from tailrace.log.catalog import check_name
from tailrace.log.chunk import Chunk
from tailrace.log.parcel import CHUNK_BYTES, Parcel, pack_up, unpack_parcels
from tailrace.log.record import Op, attributes
from tailrace.log.topic import Topic
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Change, Equals, Item, Key, Put, Set, Update


def sink_key(pipeline: str, writer: str) -> Key:
    """Where a writer's offsets are kept, in the home it writes to."""
    return Key(f"$Sink-{pipeline}.{writer}")


@dataclass(slots=True)
class Offsets:
    """The guard of one batch: nobody has finished another since `seen`."""

    who: Who
    offsets: str
    seen: Item

    @property
    def key(self) -> Key:
        """Where it is."""
        return sink_key(self.who.pipeline, self.who.writer)

    def action(self, id: str, page: int) -> Update:
        """This batch, and its offsets."""
        kept = (
            Set("epoch", self.who.epoch), Set("offsets", self.offsets), Set("claimed", False), Set("id", id),
            Set("page", page),
        )  # fmt: skip
        changes: tuple[Change, ...] = (Add("seq", 1), *kept)
        return Update(self.key, changes, (Equals("seq", self.seen["seq"]),))

    def read(self) -> Steps[Item]:
        """The item as stored."""
        item = yield from guard.read(self.key)
        assert item is not None, "a sink's item is never removed"
        return item

    def moved(self, item: Item) -> bool:
        """Somebody has."""
        return bool(item["seq"] != self.seen["seq"])


class Standing(Offsets):
    """The guard of a command, with which the offsets stay what they are."""

    def action(self, id: str, page: int) -> Update:
        """The same turn, and no more."""
        changes = (Add("seq", 1), Set("id", id), Set("page", page))
        return Update(self.key, changes, (Equals("seq", self.seen["seq"]),))


class TopicWriter(Writer):
    """Appends messages to topics, once."""

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __init__(self, settings: TopicSink) -> None:
        self._settings = settings
        self._topics: dict[str, Topic] = {}

    @property
    def _home(self) -> Home:
        return open_once(self._settings.home)

    def check(self) -> None:
        """Open the home; make the topic, if there is one for all."""
        if self._settings.topic is not None:
            self._topic(check_name("topic", self._settings.topic))
        self._home.topics()

    def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            self._topics[name] = topic_of(self._home, name, self._settings.partitions)
        return self._topics[name]

    def _name(self, namespace: str) -> str:
        return self._settings.topic or topic_name(namespace)

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """The offsets of the last batch."""
        item = self._home.store.run(guard.read(sink_key(pipeline, writer)))
        if item is None or not item["epoch"]:
            return None
        return {"epoch": item["epoch"], "offsets": msgspec.json.decode(item["offsets"])}

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """The same, and no earlier run can finish anything from now on."""
        key = sink_key(who.pipeline, who.writer)

        def plan(item: Item | None) -> tuple[Update, ...] | None:
            assert item is not None
            is_repeat((item["epoch"], {}), who, {})
            if item["epoch"] == who.epoch:
                return None
            changes = (Add("seq", 1), Set("epoch", who.epoch), Set("claimed", True), Set("id", ""))
            return (Update(key, changes, (Equals("seq", item["seq"]),)),)

        store = self._home.store
        store.run(_opened(key))
        store.run(guard.settle(key, plan))
        kept = self.restore(who.pipeline, who.writer)
        return kept if kept is not None and kept["offsets"] else None

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Put chunks, which nobody refers to yet."""
        waiting: dict[str, list[pa.RecordBatch]] = {}
        sizes: dict[str, int] = {}
        parcels: dict[str, list[Parcel]] = {}
        counts: dict[str, int] = {}
        for batch in rows:
            namespace = namespace_of(batch)
            name = self._name(namespace)
            counts[namespace] = counts.get(namespace, 0) + batch.num_rows
            records = records_from(batch, shared=self._settings.topic is not None)
            waiting.setdefault(name, []).append(records)
            sizes[name] = sizes.get(name, 0) + records.nbytes
            if sizes[name] >= CHUNK_BYTES:
                parcels.setdefault(name, []).append(self._put(name, waiting.pop(name)))
                sizes[name] = 0
        for name, some in waiting.items():
            parcels.setdefault(name, []).append(self._put(name, some))
        return Staged(sum(counts.values()), parcels, counts)

    def _put(self, name: str, records: list[pa.RecordBatch]) -> Parcel:
        topic = self._topic(name)
        return pack_up(topic.store, topic.log, topic.described, records)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Append everything and keep the offsets, in one transaction."""
        store = self._home.store
        item = store.run(_opened(sink_key(who.pipeline, who.writer)))
        before = {} if item["claimed"] else msgspec.json.decode(item["offsets"])
        if is_repeat((item["epoch"], before), who, offsets):
            return
        decider = Offsets(who, msgspec.json.encode(offsets).decode(), item)
        try:
            placed = self._placed(staged)
            won = store.run(commit_guarded(placed, decider))[0] if placed else store.run(_noted(decider))
        except ObjectMissing as error:
            raise Unavailable(f"cleaning has removed staged chunks, {error.name}; the batch is made again") from error
        if not won:
            raise _overtaken(who)

    def _placed(self, staged: Sequence[Staged]) -> list[Placed]:
        names = sorted({name for share in staged for name in share.detail or ()})
        out = []
        for name in names:
            log = self._topic(name).log
            self._home.store.run(log.head())
            placed = unpack_parcels(log, [p for share in staged for p in (share.detail or {}).get(name, ())])
            out += [placed] if placed is not None else []
        return out

    def command(self, namespace: str, name: str, who: Who) -> None:
        """One record with the op of a command, in every partition, after all that is there."""
        topic, told = self._topic(self._name(namespace)), set[int]()
        while more := topic.ends().keys() - told:  # the topic may grow meanwhile
            item = topic.store.run(_opened(sink_key(who.pipeline, who.writer)))
            is_repeat((item["epoch"], {}), who, {})
            placed = topic.store.run(place(topic.log, _commands(sorted(more), namespace, name)))
            if not topic.store.run(commit_guarded([placed], Standing(who, item["offsets"], item)))[0]:
                raise _overtaken(who)
            told |= more


def _commands(partitions: Sequence[int], namespace: str, name: str) -> Chunk:
    buffer = Buffer(max(partitions) + 1, len(namespace.encode()) + len(name))
    now, marks = time.time_ns() // 1_000_000, attributes(op=Op.COMMAND)
    for q in partitions:
        buffer.add(namespace.encode(), name.encode(), now, attributes=marks, partition=q)
    return buffer.encode("none")


def _overtaken(who: Who) -> Fenced:
    return Fenced(f"another run of the writer {who.writer!r} has finished a batch; this one must stop")


def _opened(key: Key) -> Steps[Item]:
    """A writer's item, made if this is its first batch."""
    while (item := (yield from guard.read(key))) is None:
        fresh = {"seq": 0, "epoch": 0, "offsets": "{}", "claimed": False, "id": "", "page": 0}
        yield from guard.attempt(Put(key, fresh, (Absent(),)))
    return item


def _noted(decider: Offsets) -> Steps[bool]:
    """Keep offsets with which nothing is appended."""
    mine = decider.action("", 0)
    item = yield from guard.settle(decider.key, lambda item: None if item is None or decider.moved(item) else (mine,))
    return item is not None and (item["epoch"], item["offsets"]) == (decider.who.epoch, decider.offsets)
