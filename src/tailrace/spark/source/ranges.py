"""Ranges: which offsets to read, cut and grouped into the tasks that read them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

MAX_RECORDS_READ_BY_ONE_TASK = 50_000
"""Up to this many records of several partitions, one task reads them all: starting a task takes longer than reading
them."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of one partition, from `start` to before `end`."""

    topic: str
    id: str
    partition: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many records it has."""
        return max(0, self.end - self.start)


@dataclass
class TaskSlice(InputPartition):
    """What one task reads: ranges of partitions of one topic.  `times` (milliseconds, both included): records outside
    them are not wanted."""

    ranges: tuple[OffsetRange, ...]
    times: tuple[int, int] | None = None

    @property
    def records(self) -> int:
        """The most records that it can have."""
        return sum(r.records for r in self.ranges)


def cut(ranges: Iterable[OffsetRange], tasks: int | None, most: int | None) -> list[OffsetRange]:
    """Cut ranges so that none has more than `most` records, and that there are at least about `tasks` of them."""
    ranges = [r for r in ranges if r.records]
    total = sum(r.records for r in ranges)
    out = []
    for r in ranges:
        parts = max(1, -(-r.records // most) if most else 1)
        if tasks and tasks > len(ranges):
            parts = max(parts, round(r.records * tasks / total))
        parts = min(parts, r.records)
        at = [r.start + r.records * n // parts for n in range(parts + 1)]
        out += [replace(r, start=a, end=b) for a, b in pairwise(at)]
    return out


def grouped(ranges: Sequence[OffsetRange], small: int = MAX_RECORDS_READ_BY_ONE_TASK) -> list[tuple[OffsetRange, ...]]:
    """Join neighbouring small ranges, of different partitions of one topic."""
    out: list[tuple[OffsetRange, ...]] = []
    for r in ranges:
        last = out[-1] if out else ()
        fits = last and last[0].topic == r.topic and sum(x.records for x in last) + r.records <= small
        if fits and all(x.partition != r.partition for x in last):
            out[-1] = (*last, r)
        else:
            out.append((r,))
    return out


def slices(
    ranges: Iterable[OffsetRange], tasks: int | None, most: int | None, times: tuple[int, int] | None = None
) -> list[TaskSlice]:
    """The tasks that read these ranges.  They are in the order of the offsets, so that a sink can keep it."""
    pieces = cut(sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)), tasks, most)
    groups = [(r,) for r in pieces] if tasks else grouped(pieces)
    return [TaskSlice(group, times) for group in groups]
