"""Spreading: stored chunks, of which only the entries are at hand, for a topic that has grown since.

Who has put them tells with each for how many partitions it was made, and which records were sent to theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.log.append import Log
from tailrace.log.chunk import Chunk, Compression, decode, encode
from tailrace.log.head import Entry
from tailrace.log.runs import read_runs, where_is
from tailrace.storage.calls import Steps


class Made(NamedTuple):
    """For how many partitions a chunk was made (0: that does not matter), and which of its records stay where they
    are: (partition, place, count)."""

    partitions: int = 0
    pinned: tuple[tuple[int, int, int], ...] = ()
    compression: Compression = "none"

    @classmethod
    def of(cls, chunk: Chunk) -> Made:
        """What is to be told of a chunk."""
        return cls(chunk.partitions, chunk.pinned, chunk.compression)


def is_stale(log: Log, made: Made) -> bool:
    """Whether a topic has grown since a chunk was made."""
    return 0 < made.partitions < log.newest.partitions


def taken_back(log: Log, entry: Entry, made: Made, data: bytes | None = None) -> Steps[Chunk]:
    """A stored chunk as one that is still to be placed, which spreads it over the partitions there are by now.

    `ObjectMissing` if cleaning has removed it."""
    if data is None:
        pieces = yield from read_runs(log, entry, entry.runs)
    else:
        pieces = [memoryview(data)[run.position : run.position + run.length] for run in entry.runs]
    where = where_is(log.id, entry)
    runs = zip(entry.runs, pieces, strict=True)
    batches = {run.partition: decode(entry.kind, run, piece, where) for run, piece in runs}
    return encode(batches, made.compression, made.partitions, made.pinned)
