"""Poll: what one poll of a reader has fetched, how much more it may fetch, and the chunk that it stopped in.

It counts bytes of decoded records: a compressed chunk can be a thousand times as large as its object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.log.format.chunk import PartitionRun
from tailrace.log.read.fetched import Fetched


@dataclass(slots=True)
class PolledRecords:
    """The records that one poll has fetched so far, within its limits of decoded bytes and of records."""

    max_bytes: int
    max_records: int
    fetched: list[Fetched] = field(default_factory=list)
    size: int = 0
    records: int = 0
    _limit: int = 0
    _next: int = 0
    """The bytes of the batch that `has_room` measured last: for a few records, measuring again would cost more than
    reading."""

    def begin(self, runs: Sequence[PartitionRun]) -> bool:
        """Whether there is room for these runs of the next chunk, in their stored size; for the first chunk there
        always is room."""
        length, count = sum(run.length for run in runs), sum(run.count for run in runs)
        # as many bytes as the chunk has are taken anyway, when it is read
        self._limit = max(self.max_bytes, length)
        return not self.size or (self.size + length <= self.max_bytes and self.records + count <= self.max_records)

    def has_room(self, batch: pa.RecordBatch) -> bool:
        """Whether there is room for a decoded batch of the chunk; for the first one there always is room."""
        self._next = int(batch.nbytes)
        return not self.fetched or self.size + self._next <= self._limit

    def add(self, some: Fetched) -> None:
        """Add records of a batch that there was room for."""
        self.fetched.append(some)
        self.size += self._next
        self.records += some.data.num_rows


class RunBatches:
    """The batches of a run; the last one that was taken can be put back."""

    __slots__ = ("_back", "_rest")

    def __init__(self, rest: Iterator[pa.RecordBatch]) -> None:
        self._rest = rest
        self._back: pa.RecordBatch | None = None

    def __iter__(self) -> RunBatches:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch, self._back = self._back, None
        return next(self._rest) if batch is None else batch

    def put_back(self, batch: pa.RecordBatch) -> None:
        """Put a batch back, so that the next poll gets it first."""
        self._back = batch


@dataclass(slots=True)
class PartlyReadChunk:
    """A chunk of which a poll has taken only part.  `data` has its bytes by partition.  The poll stopped in the run
    of `partition` at `position`; `left` are the batches of that run that it did not take, and `first` is the offset at
    which they begin."""

    id: str
    data: Mapping[int, memoryview]
    partition: int = -1
    position: int = -1
    first: int = 0
    left: RunBatches | None = None

    def has(self, id: str, runs: Sequence[PartitionRun]) -> bool:
        """Whether the bytes of these runs are here."""
        return self.id == id and all(run.partition in self.data for run in runs)

    def rest(self, partition: int, position: int) -> tuple[int, RunBatches] | None:
        """The remaining batches of a run, and the offset at which they begin; None if the poll stopped in another
        run."""
        if self.left is None or (partition, position) != (self.partition, self.position):
            return None
        return self.first, self.left

    def stopped(self, partition: int, position: int, first: int, left: RunBatches) -> PartlyReadChunk:
        """The same chunk, with the place where the poll stopped."""
        return PartlyReadChunk(self.id, self.data, partition, position, first, left)
