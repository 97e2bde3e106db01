"""Retention by time does not believe one host's clock: what the topic has seen bounds it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.topic import Topic
from tailrace.log.upkeep.retention_clock import DAY_MS, clock_key, counted
from tailrace.log.upkeep.scheduler import HomeUpkeep
from tailrace.log.upkeep.topic_upkeep import UpkeepResult
from tests.log.driving import simulated_home

HOUR_MS = DAY_MS // 24
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 1)
    return simulated_home("objects")[0]


def now() -> int:
    return int(time.time() * 1000)


def filled(home: Home, *ages: int, **settings: object) -> Topic:
    """A topic with one record a page, so many milliseconds old."""
    topic = home.topic("t", partitions=1, **settings)
    for age in ages:
        with topic.producer() as out:
            out.send(b"k", b"%d" % age, timestamp=now() - age)
    return topic


def upkeep(home: Home, wall: int) -> UpkeepResult:
    """One upkeep on a host whose clock says so."""
    return HomeUpkeep(home.store, wall=lambda: wall / 1000).run()[0]


def left(topic: Topic) -> int:
    return len(list(topic.records()))


def test_a_host_whose_clock_is_days_ahead_removes_nothing_fresh(home: Home) -> None:
    topic = filled(home, 3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS, 0, retention_ms=WEEK_MS)
    for hour in range(30):
        done = upkeep(home, now() + 8 * DAY_MS + hour * HOUR_MS)
        assert done.expired_records == 0
        assert done.clock_ahead_ms > 7 * DAY_MS
    assert left(topic) == 4


def test_nor_does_it_take_tombstones_away_too_early(home: Home) -> None:
    topic = home.topic("t", partitions=1, compact=True, tombstone_ms=DAY_MS)
    topic.append([(b"a", b"1"), (b"b", b"1")])
    topic.append([(b"a", None)])
    topic.append([(b"b", b"2")])
    for _ in range(3):
        upkeep(home, now() + 8 * DAY_MS)
    assert [r.key for r in topic.records() if r.value is None] == [b"a"]


def test_a_right_clock_removes_what_is_old(home: Home) -> None:
    topic = filled(home, 9 * DAY_MS, 8 * DAY_MS, DAY_MS, 0, retention_ms=WEEK_MS)
    assert upkeep(home, now()).expired_records == 2
    assert left(topic) == 2


def test_a_topic_that_nobody_writes_to_ages_with_the_upkeeps(home: Home) -> None:
    topic = filled(home, 2 * DAY_MS, DAY_MS, 0, 0, retention_ms=WEEK_MS)
    begin, expired = now(), 0
    for day in range(9):
        expired += upkeep(home, begin + day * DAY_MS).expired_records
    assert expired == 3, "the newest page stays"
    assert left(topic) == 1


def test_a_clock_that_jumps_counts_a_day_at_most(home: Home) -> None:
    topic = filled(home, 6 * DAY_MS + HOUR_MS, 6 * DAY_MS - HOUR_MS, 5 * DAY_MS, DAY_MS, retention_ms=WEEK_MS)
    begin = now()
    assert upkeep(home, begin).expired_records == 0
    assert upkeep(home, begin + 30 * DAY_MS).expired_records == 1
    assert upkeep(home, begin + 30 * DAY_MS + HOUR_MS // 2).expired_records == 0
    assert left(topic) == 3


def send(topic: Topic, *stamps: int) -> None:
    """A record a page, with these times."""
    for stamp in stamps:
        with topic.producer() as out:
            out.send(b"k", b"later", timestamp=stamp)


def test_records_that_follow_each_other_bring_the_time_up_at_once(home: Home) -> None:
    topic = filled(home, 20 * DAY_MS, 0, retention_ms=WEEK_MS)
    begin = now()
    upkeep(home, begin)
    send(topic, *(begin + day * (DAY_MS - HOUR_MS) for day in range(1, 12)))
    assert upkeep(home, begin + 11 * (DAY_MS - HOUR_MS)).expired_records == 4


def test_after_a_gap_the_time_comes_up_at_twice_the_pace(home: Home) -> None:
    """A laptop that was off for ten days, and then makes a record each hour."""
    topic = filled(home, 20 * DAY_MS, 0, retention_ms=WEEK_MS)
    begin = now()
    upkeep(home, begin)
    for hour in range(0, 10 * 24, 6):
        at = begin + 10 * DAY_MS + hour * HOUR_MS
        send(topic, at)
        upkeep(home, at)
    assert next(iter(topic.records())).timestamp >= begin + 13 * DAY_MS - 6 * HOUR_MS


@pytest.mark.parametrize("first", [True, False], ids=["the first upkeep", "later upkeeps"])
def test_one_record_far_ahead_takes_no_fresh_records_away_on_any_host(home: Home, first: bool) -> None:
    topic = filled(home, 3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS, 0, retention_ms=WEEK_MS)
    begin = now()
    if not first:
        upkeep(home, begin)
    send(topic, begin + 8 * DAY_MS, begin, begin)
    for hour in range(24):
        for ahead in (8 * DAY_MS, 0, 30 * DAY_MS, 8 * DAY_MS):
            done = upkeep(home, begin + ahead + hour * HOUR_MS)
            assert done.expired_records == 0
            assert now_of(topic) <= begin + hour * HOUR_MS + 2 * DAY_MS
    assert left(topic) == 7


def now_of(topic: Topic) -> int:
    """The time by which the last upkeep judged."""
    item = topic.store.table.get(clock_key(topic.id))
    assert item is not None
    return int(item["t"])


def test_a_clock_that_is_behind_keeps_more(home: Home) -> None:
    topic = filled(home, 8 * DAY_MS, 0, retention_ms=WEEK_MS)
    assert upkeep(home, now() - 3 * DAY_MS).expired_records == 0
    assert left(topic) == 2


@given(st.lists(st.tuples(st.integers(0, 10 * DAY_MS), st.integers(-5 * DAY_MS, 20 * DAY_MS)), max_size=8))
def test_the_time_is_never_more_than_a_day_for_each_jump_ahead_of_what_passed(steps: list[tuple[int, int]]) -> None:
    """Upkeeps at true times, each on a host whose clock is off by so much."""
    true = seen = 100 * DAY_MS
    last, jumps, before = None, 0, 0
    for passed, off in steps:
        true += passed
        jumps += off > before
        time_now = counted(true + off, seen, seen, last)
        assert time_now <= true + jumps * DAY_MS
        assert time_now <= true + off
        last, before = {"t": time_now, "wall": true + off}, off
