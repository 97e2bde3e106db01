"""Placement: stores a chunk's bytes under a name never used before; nothing refers to them yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Conflict, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import ChunkEntry, Head
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.repartition import refit
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action


@dataclass(slots=True)
class Attempt:
    """The state of the attempts to append some stored chunks.  A thread that takes over from an interrupted one
    continues from here."""

    head: Head | None = None
    """The head that this append decides by; `log.seen` may meanwhile be one that another thread has read."""
    sent: int | None = None
    """The page that the attempt under way was sent to."""
    doubts: set[int] = field(default_factory=set)
    """The pages that attempts without an answer were sent to."""
    former: tuple[tuple[Placed, frozenset[int]], ...] = ()
    """The chunks under the names that they lost to a fence, each with the pages that were in doubt then."""
    became: Placed | None = None
    """The chunks under the names that they got since."""


@dataclass(slots=True)
class Placed:
    """Chunks of one topic whose bytes are stored, and to which the log does not refer yet.

    `data` has the bytes of the chunks that are written together with the reference, by id; `again` stores the chunks
    once more, under new names."""

    log: TopicLog
    entries: tuple[ChunkEntry, ...]
    again: Callable[[], Steps[Placed]]
    data: Mapping[str, bytes] = field(default_factory=dict)
    expected: Mapping[int, int] | None = None
    partitions: int = 0
    """How many partitions the topic had when the producer assigned the records to them; 0: it does not matter."""
    attempt: Attempt = field(default_factory=Attempt)

    @property
    def latest(self) -> Placed:
        """The chunks under their newest names."""
        return self if self.attempt.became is None else self.attempt.became.latest

    @property
    def id(self) -> str:
        """The id of the first chunk, which stands for all: they are appended together."""
        return self.entries[0].id

    @property
    def gen(self) -> int:
        """The oldest gen among the names under which the chunks are stored."""
        return min(e.gen for e in self.entries)

    @property
    def counts(self) -> dict[int, int]:
        """How many records of each partition the chunks have."""
        return heads.counts_of(self.entries)

    def actions(self, page: int) -> list[Action]:
        """The writes that make the log refer to these chunks, the head's first."""
        head = heads.append(self.log.id, page, self.entries, self.expected)
        return [head, *(heads.chunk_item(self.log.id, e, self.data[e.id]) for e in self.entries if e.id in self.data)]


def place(log: TopicLog, chunk: Chunk, expected: Mapping[int, int] | None = None) -> Steps[Placed]:
    """Store a chunk's bytes.  A put without an answer is left to cleaning; the next put uses another name."""
    assert not chunk.partitions or chunk.partitioner == log.partitioner, f"keys were placed by {chunk.partitioner}"
    if log.seen is None:
        yield from log.head()
    if 0 < chunk.partitions < log.newest.partitions and in_force("grow.partitions"):
        chunk = refit(log.name, chunk, log.newest, expected)
    return (yield from guard.persist(lambda: _place(log, chunk, expected), (*guard.NOT_DONE, TimedOut, Conflict)))


def _place(log: TopicLog, chunk: Chunk, expected: Mapping[int, int] | None) -> Steps[Placed]:
    id, gen = log.new_id(), log.newest.gen
    again = lambda: place(log, chunk, expected)  # noqa: E731
    if chunk.size > log.inline_bytes:
        entry = ChunkEntry(id, False, gen, chunk.kind, chunk.runs)
        yield from calls.put_object(heads.object_name(log.id, gen, id), chunk.parts)
        return Placed(log, (entry,), again, expected=expected, partitions=chunk.partitions)
    data, runs = chunk.inline()
    entry = ChunkEntry(id, True, gen, chunk.kind, runs)
    if log.joins_inline:
        return Placed(log, (entry,), again, {id: data}, expected, chunk.partitions)
    yield from calls.write(heads.chunk_item(log.id, entry, data))
    return Placed(log, (entry,), again, expected=expected, partitions=chunk.partitions)
