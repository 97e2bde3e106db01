"""Commit: the driver makes everything that the tasks of a job have stored part of its topics, by one write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from tailrace.errors import BadInput, Conflict, ObjectMissing, TooLarge, Unavailable
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk, decode, encode
from tailrace.log.settings import TopicSettings
from tailrace.log.topic import Topic
from tailrace.log.write import joint_append
from tailrace.log.write.append import commit
from tailrace.log.write.numbered_append import append_once
from tailrace.log.write.placement import Placed
from tailrace.log.write.record_batch import unified
from tailrace.log.write.repartition_stored import ChunkOrigin
from tailrace.spark.sink.task import TaskOutput, TopicPart
from tailrace.storage.limits import MAX_ACTIONS

MAX_JOINED_CHUNKS = 32
"""Chunks that go into the same transaction as the heads that refer to them."""

Small: TypeAlias = tuple[bytes, bytes, ChunkOrigin]


def settle(home: Home, messages: Iterable[TaskOutput | None], name: str | None, seq: int) -> bool:
    """Append what the tasks have written, once under this name and number.  Returns whether it was appended now."""
    parts = _by_topic(messages)
    if not parts:
        return False
    try:
        return _append(home, parts, name, seq)
    except ObjectMissing as error:
        raise Unavailable(
            f"{error.name}, which this write to {', '.join(map(repr, sorted(parts)))} had stored, was cleaned away "
            "before it could be committed, since the write took longer than the time between two cleanings; nothing "
            "was written, run it again"
        ) from None


def _append(home: Home, parts: dict[str, list[TopicPart]], name: str | None, seq: int) -> bool:
    placed = _placed(home, parts)
    if name is None:
        home.store.run(commit(placed))
        return True
    before = home.store.run(append_once(name, seq, placed))
    if name.startswith("write.") and before is not None and before["topics"] != sorted(p.log.id for p in placed):
        raise BadInput(
            f"a write with the writeId {name[6:]!r} was made before, into other topics; a writeId stands for one write"
        )
    return before is None


def _by_topic(messages: Iterable[TaskOutput | None]) -> dict[str, list[TopicPart]]:
    """The parts of all tasks by topic, in the order of the tasks, which is the order of the rows."""
    parts: dict[str, list[TopicPart]] = {}
    for message in messages:
        for name, part in message.parts.items() if message is not None else ():
            parts.setdefault(name, []).append(part)
    return parts


def _placed(home: Home, parts: dict[str, list[TopicPart]]) -> list[Placed]:
    if len(parts) >= MAX_ACTIONS:
        raise TooLarge(f"one write can go to at most {MAX_ACTIONS - 1} topics, not {len(parts)}")
    topics = {name: _topic(home, name, some) for name, some in parts.items()}
    pieces = {name: _pieces(some, topics[name].settings) for name, some in parts.items()}
    joined = sum(isinstance(piece, Chunk) for some in pieces.values() for piece in some)
    inline = joined <= MAX_JOINED_CHUNKS and len(parts) + joined < MAX_ACTIONS
    origins = {
        name: {id: origin for part in some for id, origin in part.origins.items()} for name, some in parts.items()
    }
    return [
        home.store.run(joint_append.gather(topics[n].log, some, inline=inline, origins=origins[n]))
        for n, some in pieces.items()
    ]


def _topic(home: Home, name: str, parts: Sequence[TopicPart]) -> Topic:
    topic = home.topic(name)
    if any(part.id != topic.id for part in parts):
        raise Conflict(f"topic {name!r} was deleted and made again while it was written; run the write again")
    home.store.run(topic.log.head())
    return topic


def _pieces(parts: Iterable[TopicPart], settings: TopicSettings) -> list[joint_append.EntryOrChunk]:
    """Stored chunks, and small ones that follow each other joined into one."""
    out: list[joint_append.EntryOrChunk] = []
    for small, some in groupby(parts, key=lambda part: part.small is not None):
        if small:
            out += _joined([(*part.small, part.origins[""]) for part in some if part.small is not None], settings)
        else:
            out += [heads.unpack(entry) for part in some for entry in part.entries]
    return out


def _joined(smalls: Iterable[Small], settings: TopicSettings) -> list[Chunk]:
    """Joins many chunks into one, or, if the topic has grown between two tasks, into one for each number of
    partitions."""
    out: list[Chunk] = []
    for partitions, some in groupby(smalls, key=lambda small: small[2].partitions):
        batches: dict[int, list[pa.RecordBatch]] = {}
        pinned: list[tuple[int, int, int]] = []
        for packed, data, origin in some:
            before = {q: sum(batch.num_rows for batch in of_q) for q, of_q in batches.items()}
            pinned += [(q, before.get(q, 0) + place, count) for q, place, count in origin.pinned]
            entry = heads.unpack(packed)
            for run in entry.runs:
                piece = memoryview(data)[run.position : run.position + run.length]
                batches.setdefault(run.partition, []).extend(decode(entry.kind, run, piece, "a task's message"))
        out.append(encode(unified(batches), settings.compression, partitions, pinned, settings.partitioner))
    return out
