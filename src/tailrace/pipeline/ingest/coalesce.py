"""Coalescing: joins many small runs of records into a few large ones.

A reader fetches changes that came one by one as a run each, and the work for a run costs more than that for its one
row.  Runs of one namespace keep their order; runs of different namespaces may overtake each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from tailrace.adaptors.rows.overflow import LazyBatches
from tailrace.adaptors.rows.rows import namespace_of
from tailrace.log.read.fetched import Fetched

MAX_ROWS = 65_536
MAX_BYTES = 8 * 1024 * 1024
"""The most rows and bytes of a joined run.  A run of half of either is passed on alone."""
MAX_HELD_BYTES = 4 * MAX_BYTES
"""The most bytes that wait to be joined, of all namespaces together."""


@dataclass(slots=True)
class _Run:
    """Consecutive runs of one namespace with the same schema."""

    parts: list[Fetched] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def takes(self, fetched: Fetched, size: int) -> bool:
        alike = not self.parts or self.parts[0].data.schema.equals(fetched.data.schema, check_metadata=True)
        return alike and self.rows + fetched.data.num_rows <= MAX_ROWS and self.size + size <= MAX_BYTES

    def add(self, fetched: Fetched, size: int) -> None:
        self.parts.append(fetched)
        self.rows += fetched.data.num_rows
        self.size += size

    def whole(self) -> Fetched:
        first = self.parts[0]
        if len(self.parts) == 1:
            return first
        offsets = pa.concat_arrays([part.offsets for part in self.parts])
        return Fetched(first.partition, first.offset, pa.concat_batches([part.data for part in self.parts]), offsets)


class Chained(LazyBatches):
    """Several lists of batches as one.  A list that reads its batches from a file still reads each only on access."""

    def __init__(self, lists: Sequence[Sequence[pa.RecordBatch]]) -> None:
        self._lists = [one for one in lists if len(one)]
        self._ends = list(accumulate(map(len, self._lists)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def at(self, index: int) -> pa.RecordBatch:
        """Return the batch from the list that has it."""
        n = bisect_right(self._ends, index)
        return self._lists[n][index - self._ends[n]]  # a negative index: from the list's end


def joined_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join consecutive batches of the same schema into fewer ones, each within MAX_ROWS and MAX_BYTES."""
    run: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        alike = not run or run[0].schema.equals(batch.schema, check_metadata=True)
        if run and not (alike and rows + batch.num_rows <= MAX_ROWS and size + batch.nbytes <= MAX_BYTES):
            yield _one(run)
            run, rows, size = [], 0, 0
        run.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if run:
        yield _one(run)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def joined(some: Iterable[Fetched]) -> Iterator[Fetched]:
    """The same records of one partition in fewer runs."""
    waiting: dict[str, _Run] = {}
    held = 0
    for fetched in some:
        name, size = namespace_of(fetched.data), int(fetched.data.nbytes)
        large = fetched.data.num_rows >= MAX_ROWS // 2 or size >= MAX_BYTES // 2
        if name in waiting and (large or not waiting[name].takes(fetched, size)):
            run = waiting.pop(name)
            held -= run.size
            yield run.whole()
        if large:
            yield fetched
            continue
        waiting.setdefault(name, _Run()).add(fetched, size)
        held += size
        if held >= MAX_HELD_BYTES:
            yield from (run.whole() for run in waiting.values())
            waiting, held = {}, 0
    yield from (run.whole() for run in waiting.values())
