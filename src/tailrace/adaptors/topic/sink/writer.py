"""Writing topics: tasks store chunks, and one transaction appends all of them and stores the offsets.

A batch of more topics than one transaction can change is decided for by one transaction, and appended by several: see
manifest.

    $Sink-<pipeline>.<writer>, 0            the offsets: see guards
    $Written-<pipeline>.<writer>, bucket    names{topic: id}: the topics that the writer has written to
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import DROP, TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.rows.records import records_from
from tailrace.adaptors.rows.rows import namespace_of
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.adaptors.topic.homes import HomeEnd, check_makable
from tailrace.adaptors.topic.names import check_topic, topic_for, topic_of
from tailrace.adaptors.topic.settings import TopicSink
from tailrace.adaptors.topic.sink.guards import BatchGuard, SinkGuard, sink_key, store_alone
from tailrace.adaptors.topic.sink.manifest import Manifests, Topics, groups
from tailrace.coordination import guard
from tailrace.errors import Fenced, NotReady, ObjectMissing, Rejected, Unavailable
from tailrace.home import is_there
from tailrace.log.catalog import bucket_key, ids
from tailrace.log.format.chunk import Chunk
from tailrace.log.record import Op, Partitioner, attributes
from tailrace.log.topic import Topic
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.guarded_append import commit_guarded
from tailrace.log.write.input import largest_record
from tailrace.log.write.placement import Placed, place
from tailrace.log.write.staged_chunk import CHUNK_BYTES, StagedChunks, place_staged, stage_chunks
from tailrace.storage.calls import Steps
from tailrace.storage.tables import (
    Absent,
    Action,
    Add,
    Delete,
    Equals,
    Exists,
    Item,
    Key,
    Put,
    Set,
    Update,
)


def written_list(who: Who) -> str:
    """The name of the list of topics that a writer has written to."""
    return f"$Written-{who.pipeline}.{who.writer}"


class TopicWriter(HomeEnd, Writer):
    """Appends messages to topics, each exactly once."""

    guarantee: ClassVar[Guarantee] = "exactly once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE, DROP})

    def __init__(self, settings: TopicSink) -> None:
        super().__init__(settings.home)
        self._settings = settings
        self._topics: dict[str, Topic] = {}
        self._of: dict[str, Topic] = {}
        self._written: set[str] = set()

    def check(self) -> None:
        """Open the home and check the topic's name; if there is no home, check that one can be made.  Creates neither a
        home nor a topic before there is something to write."""
        if not is_there(self._settings.home):
            check_makable(self._settings.home)
            return
        if self._settings.topic is not None:
            check_topic(self._home, self._settings.topic)
            if self._settings.topic in self._home.topics():
                self._topic("")
        self._home.topics()

    def _topic(self, namespace: str) -> Topic:
        """The topic of a namespace, or the one topic for all namespaces.  Creates it if it does not exist."""
        if (shared := self._settings.topic) is not None:
            namespace = ""
        if namespace not in self._of:
            made = self._settings.partitions
            topic = topic_of(self._home, shared, made) if shared else topic_for(self._home, namespace, made)
            self._of[namespace] = self._topics[topic.name] = topic
        return self._of[namespace]

    def _named(self, name: str) -> Topic:
        """A topic for which a task has stored chunks."""
        if name not in self._topics:
            self._topics[name] = self._home.topic(name)
        return self._topics[name]

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Append the rest of a batch that was decided for, and return the offsets of the last batch."""
        self._manifests(pipeline, writer).roll_forward()
        item = self._home.store.run(guard.read(sink_key(pipeline, writer)))
        return None if item is None else _fence(item).restored()

    def _manifests(self, pipeline: str, writer: str) -> Manifests:
        return Manifests(self._home, sink_key(pipeline, writer))

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """Return what `restore` returns, and fence earlier runs: they can finish nothing any more.

        If the rest of a batch that was decided for is gone, only `lost` and `finish` raise it: an operator may have set
        a mark since, from which it is delivered again."""
        key = sink_key(who.pipeline, who.writer)

        def plan(item: Item | None) -> tuple[Update, ...] | None:
            assert item is not None
            if _fence(item).claim(who) is None:
                return None
            changes = (Add("seq", 1), Set("epoch", who.epoch), Set("claimed", True), Set("id", ""))
            return (Update(key, changes, (Equals("seq", item["seq"]),)),)

        store = self._home.store
        store.run(_opened(key))
        store.run(guard.settle(key, plan))
        manifests = self._manifests(who.pipeline, who.writer)
        manifests.tidy()
        with suppress(NotReady):
            manifests.roll_forward()
        return _fence(store.run(_opened(key))).restored()

    def lost(self, who: Who) -> list[str]:
        """The topics that this writer has written to and that were deleted since, even if they were created again.
        Raises `NotReady` if the rest of a batch that was decided for is gone."""
        self._manifests(who.pipeline, who.writer).roll_forward()
        there = self._home.store.run(ids("$Topics"))
        written = self._home.store.run(ids(written_list(who)))
        return [f"the topic {name!r}" for name, id in sorted(written.items()) if there.get(name) != id]

    def forget(self, who: Who) -> None:
        """Forget which topics this writer has written to, and a batch that was decided for if its rest is gone."""
        self._written.clear()
        manifests = self._manifests(who.pipeline, who.writer)
        try:
            manifests.roll_forward()
        except NotReady:
            item = self._home.store.run(_opened(manifests.sink))
            _fence(item).admit(who)
            self._home.store.run(guard.attempt(SinkGuard(manifests.sink, item).turn(Set("rolling", {}))))
        for item in self._home.store.run(guard.read_all(written_list(who))):
            self._home.store.run(guard.attempt(Delete(Key(item["p"], item["i"]))))

    def _note(self, topics: Iterable[Topic], who: Who) -> None:
        """Add topics to the list of written topics, before the first append.  They exist, so `lost` never reports a
        topic that never was."""
        for topic in topics:
            if topic.id not in self._written:
                self._home.store.run(_listed(written_list(who), topic))
                self._written.add(topic.id)

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Store the rows as chunks, which nothing refers to yet."""
        waiting: dict[str, list[pa.RecordBatch]] = {}
        sizes: dict[str, int] = {}
        parcels: dict[str, list[StagedChunks]] = {}
        counts: dict[str, int] = {}
        for batch in rows:
            namespace = namespace_of(batch)
            topic = self._topic(namespace)
            name = topic.name
            counts[namespace] = counts.get(namespace, 0) + batch.num_rows
            if not batch.num_rows:  # `_topic` has created the topic
                continue
            records = records_from(batch, shared=self._settings.topic is not None)
            _check_size(namespace, topic, records)
            waiting.setdefault(name, []).append(records)
            sizes[name] = sizes.get(name, 0) + records.nbytes
            if sizes[name] >= CHUNK_BYTES:
                parcels.setdefault(name, []).append(self._put(name, waiting.pop(name)))
                sizes[name] = 0
        for name, some in waiting.items():
            parcels.setdefault(name, []).append(self._put(name, some))
        return Staged(sum(counts.values()), parcels, counts)

    def _put(self, name: str, records: list[pa.RecordBatch]) -> StagedChunks:
        topic = self._named(name)
        return stage_chunks(topic.store, topic.log, topic.described, records)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Append all staged chunks and store the offsets, in one transaction or, for many topics, by a manifest.  For a
        batch that is finished already it does nothing.  Raises `Fenced` if another run has written the sink's item."""
        store, manifests = self._home.store, self._manifests(who.pipeline, who.writer)
        manifests.roll_forward()
        key = sink_key(who.pipeline, who.writer)
        item = store.run(_opened(key))
        if _fence(item).is_repeat(who, offsets):
            return
        topics = self._gathered(staged)
        self._note(map(self._named, topics), who)
        decider, some = BatchGuard(key, item, who.epoch, msgspec.json.encode(offsets).decode()), groups(topics)
        if len(some) > 1:
            decider.rolling = manifests.keep(some)
        try:
            placed = self._placed(topics) if len(some) == 1 else []
            won = store.run(commit_guarded(placed, decider))[0] if placed else store.run(_noted(decider))
        except ObjectMissing as error:
            raise Unavailable(f"cleaning has removed staged chunks, {error.name}; the batch is made again") from error
        if not won:
            raise _overtaken(who)
        if decider.rolling:
            manifests.roll_forward()

    def _gathered(self, staged: Sequence[Staged]) -> dict[str, tuple[str, list[StagedChunks]]]:
        """The staged chunks of each topic, from all tasks."""
        names = sorted({name for share in staged for name in share.detail or ()})
        return {
            name: (self._named(name).id, [p for share in staged for p in (share.detail or {}).get(name, ())])
            for name in names
        }

    def _placed(self, topics: Topics) -> list[Placed]:
        out = []
        for name, (_, parcels) in topics.items():
            log = self._named(name).log
            self._home.store.run(log.head())
            placed = self._home.store.run(place_staged(log, parcels))
            out += [placed] if placed is not None else []
        return out

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Append one record with the op of a command to every partition, after all records that it has."""
        self._manifests(who.pipeline, who.writer).roll_forward()
        topic, told = self._topic(namespace), set[int]()
        while more := topic.ends().keys() - told:  # the topic may get more partitions meanwhile
            key = sink_key(who.pipeline, who.writer)
            item = topic.store.run(_opened(key))
            _fence(item).admit(who)
            placed = topic.store.run(
                place(topic.log, _commands(sorted(more), namespace, command.name, topic.log.partitioner))
            )
            if not topic.store.run(commit_guarded([placed], SinkGuard(key, item)))[0]:
                raise _overtaken(who)
            told |= more


def _check_size(namespace: str, topic: Topic, records: pa.RecordBatch) -> None:
    """Raise `Rejected` for a record that no producer could send, because readers of the topic rely on the limit."""
    largest, most = largest_record(records), topic.settings.max_record_bytes
    if largest > most:
        raise Rejected(
            f"{namespace}: a record has {largest:,} bytes, over the {most:,} that the topic {topic.name!r} takes; "
            f"`tailrace topic set {topic.name} max_record_bytes=…` allows more",
            namespace=namespace,
        )


def _commands(partitions: Sequence[int], namespace: str, name: str, partitioner: Partitioner) -> Chunk:
    buffer = Buffer(max(partitions) + 1, len(namespace.encode()) + len(name), partitioner=partitioner)
    now, marks = time.time_ns() // 1_000_000, attributes(op=Op.COMMAND)
    for q in partitions:
        buffer.add(namespace.encode(), name.encode(), now, attributes=marks, partition=q)
    return buffer.encode("none")


def _fence(item: Item) -> Fence:
    """The fence that a writer's item has."""
    offsets = msgspec.json.decode(item["offsets"])
    never = not offsets and (item["claimed"] or not item["epoch"])
    return Fence(item["epoch"], None if never else offsets, item["claimed"])


def _overtaken(who: Who) -> Fenced:
    return Fenced(f"another run of the writer {who.writer!r} has finished a batch; this one must stop")


def _opened(key: Key) -> Steps[Item]:
    """Return a writer's item, created if this is its first run."""
    while (item := (yield from guard.read(key))) is None:
        fresh = {"seq": 0, "epoch": 0, "offsets": "{}", "claimed": False, "id": "", "page": 0}
        yield from guard.attempt(Put(key, fresh, (Absent(),)))
    return item


def _listed(listing: str, topic: Topic) -> Steps[None]:
    """Put a topic on a list."""
    key = bucket_key(listing, topic.name)
    fresh = Put(key, {"names": {topic.name: topic.id}}, (Absent(),))
    added = Update(key, (Set(("names", topic.name), topic.id),), (Exists("names"),))

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            return (fresh,)
        return None if item["names"].get(topic.name) == topic.id else (added,)

    yield from guard.settle(key, plan)


def _noted(decider: BatchGuard) -> Steps[bool]:
    """Store the offsets of a batch with nothing appended; return whether this run has stored them."""
    item = yield from store_alone(decider)
    kept = (item["epoch"], item["offsets"]) if item is not None else None
    mine_too = not decider.rolling or (item or {}).get("rolling", {}).get("base") == decider.rolling["base"]
    return kept == (decider.epoch, decider.offsets) and mine_too
