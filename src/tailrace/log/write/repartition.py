"""Repartitioning: moves records that were assigned to partitions before their topic grew to those they belong to now.

A record with a key goes where its key belongs with the new number of partitions; a record that was sent to a partition,
or has no key, stays.  Records of one key stay in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from tailrace.errors import Expected
from tailrace.log.format.chunk import Chunk, encode
from tailrace.log.format.head import Head
from tailrace.log.record import Partitioner, partition_of

Pinned = Iterable[tuple[int, int, int]]
"""(partition, place, count) of records that stay where they were sent."""
Batches = Mapping[int, Sequence[pa.RecordBatch]]


def destinations(
    batches: Batches, pinned: Pinned, partitions: int, partitioner: Partitioner = "sha256"
) -> dict[int, list[tuple[int, int]]]:
    """For each record of each partition, in order: its new partition, and its place among the records there."""
    held: dict[int, set[int]] = {}
    for q, place, count in pinned:
        held.setdefault(q, set()).update(range(place, place + count))
    counts: dict[int, int] = {}
    out: dict[int, list[tuple[int, int]]] = {}
    for q in sorted(batches):
        keys = [key for batch in batches[q] for key in batch.column(2).to_pylist()]
        out[q] = []
        for row, key in enumerate(keys):
            to = q if key is None or row in held.get(q, ()) else partition_of(key, partitions, partitioner)
            out[q].append((to, counts.get(to, 0)))
            counts[to] = counts.get(to, 0) + 1
    return out


def regroup(chunk: Chunk, partitions: int) -> Chunk:
    """Rebuilds a chunk that was made for another number of partitions."""
    batches = chunk.batches()
    to = destinations(batches, chunk.pinned, partitions, chunk.partitioner)
    if all(new == q for q, places in to.items() for new, _ in places):
        return replace(chunk, partitions=partitions)
    out: dict[int, list[pa.RecordBatch]] = {}
    for q in sorted(batches):
        row = 0
        for batch in batches[q]:
            rows: dict[int, list[int]] = {}
            for n, (new, _) in enumerate(to[q][row : row + batch.num_rows]):
                rows.setdefault(new, []).append(n)
            for new, wanted in rows.items():
                out.setdefault(new, []).append(batch.take(pa.array(wanted)))
            row += batch.num_rows
    pinned = [(*to[q][row], 1) for q, place, count in chunk.pinned for row in range(place, place + count)]
    return encode(out, chunk.compression, partitions, pinned, chunk.partitioner)


def refit(name: str, chunk: Chunk, head: Head, expected: Mapping[int, int] | None) -> Chunk:
    """Spread a chunk over the partitions that its topic has now.  Records with expected offsets must not move."""
    fresh = regroup(chunk, head.partitions)
    if expected and fresh.runs != chunk.runs:
        raise Expected(
            f"topic {name!r} has grown to {head.partitions} partitions, and some of these records now belong to others "
            "than the ones whose offsets are expected; look at its ends, and append again",
            actual={q: head.next[q] for q in expected},
        )
    return fresh
