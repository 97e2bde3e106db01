"""Runs: the bytes of one partition's records in a chunk, and the offsets that are lost when they cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tailrace.coordination import guard
from tailrace.errors import Damaged, Lost, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import PartitionRun
from tailrace.log.format.head import ChunkEntry
from tailrace.storage import calls
from tailrace.storage.calls import Steps


def named(error: Damaged, topic: str, lost: Sequence[Lost]) -> Damaged:
    """The error, with the offsets of the records that are lost by it."""
    text = f"{error}; lost: {placed(topic, lost)}; {passing(topic)}"
    return Damaged(text, where=error.where, position=error.position, topic=topic, lost=lost)


def passing(topic: str) -> str:
    """The advice on how readers, pipelines among them, can continue when no backup has the lost records."""
    return f"to go on without: `tailrace scrub {topic} --quarantine --why …`"


def lost_with(runs: Iterable[PartitionRun], at: Mapping[int, int]) -> list[Lost]:
    """The offsets that these runs cover, given the first offset of each partition."""
    return [Lost(r.partition, at[r.partition], at[r.partition] + r.count) for r in runs]


def placed(name: str, lost: Iterable[Lost]) -> str:
    """Offsets of a topic, in words for people."""
    return f"{', '.join(map(str, lost))} of {name!r}"


def where_is(topic_id: str, entry: ChunkEntry) -> str:
    """Where a chunk is stored, in words for people."""
    if entry.inline:
        key = heads.chunk_key(topic_id, entry.gen, entry.id)
        return f"item {key.p}/{key.i}"
    return heads.object_name(topic_id, entry.gen, entry.id)


def read_runs(topic_id: str, entry: ChunkEntry, runs: Iterable[PartitionRun]) -> Steps[list[memoryview]]:
    """The bytes of some runs of a chunk; `ObjectMissing` if it is gone."""
    ranges = tuple((r.position, r.length) for r in runs)
    if not entry.inline:
        name = heads.object_name(topic_id, entry.gen, entry.id)
        return (yield from guard.persist(lambda: calls.get_object(name, ranges)))
    item = yield from guard.read(heads.chunk_key(topic_id, entry.gen, entry.id))
    if item is None or item["id"] != entry.id:
        raise ObjectMissing(where_is(topic_id, entry))
    data = memoryview(heads.chunk_data(item))
    return [data[position : position + length] for position, length in ranges]
