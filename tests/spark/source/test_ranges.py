"""Ranges cut into tasks, and offsets shared between partitions: nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tailrace.spark.source.filters import wanted
from tailrace.spark.source.offsets import shared, to_json
from tailrace.spark.source.ranges import OffsetRange, grouped, slices

COUNTS = some.lists(some.integers(0, 300), min_size=1, max_size=12)


def ranges(counts: list[int]) -> list[OffsetRange]:
    return [OffsetRange(f"t{n % 2}", "id", n, 5, 5 + count) for n, count in enumerate(counts)]


@given(COUNTS, some.none() | some.integers(1, 20), some.none() | some.integers(1, 200))
def test_every_record_is_in_one_task(counts: list[int], tasks: int | None, most: int | None) -> None:
    made = slices(ranges(counts), tasks, most)
    read = sorted((r.topic, r.partition, n) for s in made for r in s.ranges for n in range(r.start, r.end))
    assert read == sorted((r.topic, r.partition, n) for r in ranges(counts) for n in range(r.start, r.end))
    in_order = [(r.topic, r.partition, r.start) for s in made for r in s.ranges]
    assert in_order == sorted(in_order)
    assert all(len({r.partition for r in s.ranges}) == len(s.ranges) for s in made)
    assert all(r.records <= most for s in made for r in s.ranges) if most else True
    if tasks:
        assert len(made) >= min(tasks, sum(counts)) * 0.5 - 1


def test_small_neighbours_share_a_task() -> None:
    made = grouped([OffsetRange("a", "", q, 0, n) for q, n in enumerate((10, 20, 90, 5, 5))], 100)
    assert [[r.partition for r in group] for group in made] == [[0, 1], [2, 3, 4]]
    assert len(grouped([OffsetRange("a", "", 0, 0, 1), OffsetRange("b", "", 1, 0, 1)])) == 2  # a task reads one topic


@given(some.lists(some.integers(0, 1000), min_size=1, max_size=10), some.integers(1, 2000))
def test_a_limit_is_used_up_and_nobody_starves(counts: list[int], most: int) -> None:
    spans = {("t", q): (7, 7 + count) for q, count in enumerate(counts)}
    ends = shared(spans, most)
    taken = {key: ends[key] - start for key, (start, _) in spans.items()}
    assert sum(taken.values()) == min(most, sum(counts))
    assert all(0 <= taken["t", q] <= count for q, count in enumerate(counts))
    if most >= sum(count > 0 for count in counts):
        assert all(taken["t", q] >= 1 for q, count in enumerate(counts) if count)


def test_offsets_are_always_in_the_same_order() -> None:
    next = {("b", 10): 1, ("a", 2): 5, ("b", 9): 7}
    made = to_json({"a": "x", "b": "y"}, next)
    assert json.dumps(made) == '{"a": {"id": "x", "2": 5}, "b": {"id": "y", "9": 7, "10": 1}}'


AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ATTRIBUTES = some.sampled_from(["partition", "offset"])


@some.composite
def filters(draw: some.DrawFn) -> Filter:
    kind = draw(some.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In]))
    number = some.integers(0, 12)
    value = tuple(draw(some.lists(number, min_size=1, max_size=3))) if kind is In else draw(number)
    return kind((draw(ATTRIBUTES),), value)


def holds(filter: Filter, row: dict[str, int]) -> bool:
    value = row[filter.attribute[0]]  # type: ignore[attr-defined]
    bound = filter.value  # type: ignore[attr-defined]
    return {
        EqualTo: lambda: value == bound,
        GreaterThan: lambda: value > bound,
        GreaterThanOrEqual: lambda: value >= bound,
        LessThan: lambda: value < bound,
        LessThanOrEqual: lambda: value <= bound,
        In: lambda: value in bound,
    }[type(filter)]()


@given(some.lists(filters(), max_size=4))
def test_no_record_that_filters_let_through_is_left_out(chosen: list[Filter]) -> None:
    found = wanted(chosen)
    for q in range(12):
        cut = found.of(OffsetRange("t", "", q, 0, 12))
        kept = set(range(cut.start, cut.end)) if cut else set()
        assert {n for n in range(12) if all(holds(f, {"partition": q, "offset": n}) for f in chosen)} <= kept


def test_filters_that_say_nothing_leave_nothing_out() -> None:
    nothing = [
        IsNotNull(("offset",)),
        Not(EqualTo(("offset",), 3)),
        EqualTo(("headers", "key"), 1),
        EqualTo(("offset",), None),
    ]
    assert wanted(nothing) == wanted([])
    assert wanted([In(("offset",), (3, None, "x"))]).offset == wanted([]).offset


def test_times_keep_the_millisecond_that_a_bound_is_in() -> None:
    at = int(AT.timestamp() * 1000)
    low, high = wanted([GreaterThan(("timestamp",), AT), LessThan(("timestamp",), AT + timedelta(hours=1))]).timestamp
    assert low <= at
    assert high >= at + 3_600_000 - 1
    assert high < at + 3_600_100
