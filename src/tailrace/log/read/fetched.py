"""Fetched: some records of one partition as they were read, and their offsets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Fetched:
    """Some records of one partition, in order; columns timestamp, attributes, key, value and perhaps headers.

    Their offsets are consecutive from `offset` on, or, where compaction has removed records between them, `gaps`."""

    partition: int
    offset: int
    data: pa.RecordBatch
    gaps: pa.Array[Any] | None = None

    @property
    def end(self) -> int:
        """The offset after the last record."""
        if self.gaps is not None and len(self.gaps):
            return int(self.gaps[-1].as_py()) + 1
        return self.offset + int(self.data.num_rows)

    @property
    def offsets(self) -> pa.Array[Any]:
        """The offset of each record."""
        return pa.arange(self.offset, self.offset + self.data.num_rows) if self.gaps is None else self.gaps

    def offset_of(self, row: int) -> int:
        """The offset of the record in this row."""
        return self.offset + row if self.gaps is None else int(self.gaps[row].as_py())

    def row_at(self, offset: int) -> int:
        """The row of the first record at or after an offset."""
        if self.gaps is None:
            return int(min(max(0, offset - self.offset), self.data.num_rows))
        return place_of(self.gaps, offset)

    def rows(self, first: int, count: int) -> Fetched:
        """The records of `count` rows, from row `first` on."""
        data = self.data.slice(first, count)
        if self.gaps is None:
            return Fetched(self.partition, self.offset + first, data)
        gaps = self.gaps.slice(first, count)
        return Fetched(self.partition, int(gaps[0].as_py()) if len(gaps) else self.end, data, gaps)

    def between(self, start: int, end: int) -> Fetched:
        """The records from `start` up to, but not including, `end`."""
        first = self.row_at(start)
        return self.rows(first, max(0, self.row_at(end) - first))


def place_of(offsets: pa.Array[Any], offset: int) -> int:
    """The index of the first of these rising offsets that is not below the wanted one, by binary search."""
    whole = memoryview(offsets.buffers()[1]).cast("B").cast("q")[offsets.offset : offsets.offset + len(offsets)]
    return bisect_left(whole, offset)


def without_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A compacted chunk's batch without its last column, the offsets."""
    return batch.remove_column(batch.num_columns - 1)
