"""Filters: which partitions, offsets and times can be left out, by the filters that Spark pushes down.  Pure.

Spark evaluates all of them again, so a filter here must only keep everything that might be wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tailrace.log.record import MAX_TIMESTAMP
from tailrace.spark.source.ranges import OffsetRange
from tailrace.storage.tables import LAST

LOWER, UPPER = (GreaterThan, GreaterThanOrEqual), (LessThan, LessThanOrEqual)


@dataclass(frozen=True)
class PushedBounds:
    """What may be wanted: topics (None: any), and the bounds of partition, offset and timestamp, both included."""

    topics: frozenset[str] | None = None
    partition: tuple[int, int] = (0, LAST)
    offset: tuple[int, int] = (0, LAST)
    timestamp: tuple[int, int] = (0, MAX_TIMESTAMP)

    @property
    def times(self) -> tuple[int, int] | None:
        """The bounds of the timestamp, if there are any."""
        return None if self.timestamp == (0, MAX_TIMESTAMP) else self.timestamp

    def of(self, r: OffsetRange) -> OffsetRange | None:
        """The part of a range within these bounds."""
        if self.topics is not None and r.topic not in self.topics:
            return None
        if not self.partition[0] <= r.partition <= self.partition[1]:
            return None
        cut = replace(r, start=max(r.start, self.offset[0]), end=min(r.end, self.offset[1] + 1))
        return cut if cut.records else None


def wanted(filters: Iterable[Filter]) -> PushedBounds:
    """The bounds within which all filters hold."""
    out = PushedBounds()
    for filter in filters:
        out = _narrowed(out, filter)
    return out


def _narrowed(now: PushedBounds, filter: Filter) -> PushedBounds:
    name = ".".join(getattr(filter, "attribute", ()))
    if name not in ("topic", "partition", "offset", "timestamp"):
        return now
    if name == "topic":
        topics = _values(filter)
        if topics is None:
            return now
        return replace(now, topics=frozenset(t for t in topics if now.topics is None or t in now.topics))
    low, high = _between(filter)
    before = getattr(now, name)
    narrowed: dict[str, Any] = {name: (max(low, before[0]), min(high, before[1]))}
    return replace(now, **narrowed)


def _values(filter: Filter) -> list[Any] | None:
    if isinstance(filter, (EqualTo, EqualNullSafe)):
        return [filter.value]
    return list(filter.value) if isinstance(filter, In) else None


def _between(filter: Filter) -> tuple[int, int]:
    """The least and the greatest number that may pass a filter."""
    values = _values(filter)
    if values is not None:
        bounds = [_bounds(v) for v in values if v is not None]
        known = bounds and all(bounds)
        return (min(b[0] for b in bounds), max(b[-1] for b in bounds)) if known else (0, LAST)
    if isinstance(filter, (*LOWER, *UPPER)) and (bound := _bounds(filter.value)):
        out = int(isinstance(filter, (GreaterThan, LessThan)) and isinstance(filter.value, int))
        return (bound[0] + out, LAST) if isinstance(filter, LOWER) else (0, bound[-1] - out)
    return 0, LAST


def _bounds(value: Any) -> list[int]:
    """The bounds of a value: a number itself; a time as the milliseconds around it; none for a value that cannot be
    compared."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        at = int(value.timestamp() * 1000)
        return [max(0, at - 1), max(0, at + 1)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []
