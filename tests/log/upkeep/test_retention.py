"""Retention: by time, by bytes, and never past what somebody still needs."""

from __future__ import annotations

import pytest

from tailrace.coordination.rules import without
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.settings import TopicSettings
from tailrace.log.topic import Topic
from tailrace.log.upkeep.retention import RetentionRule, raise_floor, retain, stored_bytes
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, object_size, tend
from tests.log.driving import simulated_home


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 1)
    return simulated_home("objects")[0]


def filled(home: Home, stamps: list[int]) -> Topic:
    """A topic with one record a page, of these times."""
    topic = home.topic("t", partitions=1)
    for stamp in stamps:
        with topic.producer() as out:
            out.send(b"k", b"v%d" % stamp, timestamp=stamp)
    return topic


def kept(topic: Topic) -> list[int]:
    return [record.timestamp for record in topic.records()]


def do(topic: Topic, keep: RetentionRule) -> tuple[int, int]:
    return topic.store.run(retain(topic.log, keep))


def test_pages_whose_records_are_all_old_go(home: Home) -> None:
    topic = filled(home, [10, 20, 30, 40, 50])
    records, size = do(topic, RetentionRule(since=30))
    assert records == 2
    assert size > 0
    assert kept(topic) == [30, 40, 50]
    assert topic.ends() == {0: (2, 5)}
    assert do(topic, RetentionRule(since=30)) == (0, 0)


def test_a_late_record_holds_what_came_before_it_no_longer_than_itself(home: Home) -> None:
    topic = filled(home, [10, 90, 20, 30, 95])
    assert do(topic, RetentionRule(since=50))[0] == 1
    assert kept(topic) == [90, 20, 30, 95]
    assert do(topic, RetentionRule(since=91))[0] == 3
    assert kept(topic) == [95]


def test_the_head_is_never_removed(home: Home) -> None:
    topic = filled(home, [10, 20, 30])
    do(topic, RetentionRule(since=1000, bytes=1))
    assert kept(topic)[-1] == 30


def test_as_many_bytes_as_wanted_are_kept(home: Home) -> None:
    topic = filled(home, [10, 20, 30, 40, 50, 60])
    total = topic.store.run(stored_bytes(topic.log))
    one = total // 6
    do(topic, RetentionRule(bytes=3 * one + 1))
    assert kept(topic) == [30, 40, 50, 60], "three would be a byte less than is to be kept"
    do(topic, RetentionRule(bytes=3 * one))
    assert kept(topic) == [40, 50, 60]
    assert topic.store.run(stored_bytes(topic.log)) == 3 * one
    do(topic, RetentionRule(bytes=3 * one - 1))
    assert kept(topic) == [40, 50, 60]


def test_a_floor_never_rises_beyond_the_end(home: Home) -> None:
    """Else what is appended next would be below it, and nobody could read it."""
    topic = filled(home, [10, 20, 30])
    assert topic.store.run(raise_floor(topic.log, {0: 99})).floor == {0: 3}
    assert topic.ends() == {0: (3, 3)}
    topic.append([(b"k", b"new")])
    assert [record.value for record in topic.records()] == [b"new"]


def test_the_bytes_of_removed_pages_go_with_them(home: Home) -> None:
    topic = filled(home, [10, 20, 30, 40])
    before = len(list(home.store.objects.list(f"topics/{topic.id}/")))
    do(topic, RetentionRule(since=30))
    assert len(list(home.store.objects.list(f"topics/{topic.id}/"))) == before - 2


def test_what_somebody_still_needs_is_kept(home: Home) -> None:
    topic = filled(home, [10, 20, 30, 40])
    assert do(topic, RetentionRule(since=1000, held={0: 0})) == (0, 0)
    assert do(topic, RetentionRule(since=1000, held={})) == (0, 0)
    do(topic, RetentionRule(since=1000, held={0: 2}))
    assert kept(topic) == [30, 40]
    with without("upkeep.held"):
        do(topic, RetentionRule(since=1000, held={0: 2}))
    assert kept(topic) == [40]


def test_nothing_goes_without_a_setting(home: Home) -> None:
    topic = filled(home, [10, 20, 30, 40])
    done = UpkeepResult("t")
    topic.store.run(tend(topic.log, topic.settings, done, 10**12))
    assert kept(topic) == [10, 20, 30, 40]
    assert done.expired_records == 0


def test_upkeep_keeps_what_the_settings_say(home: Home) -> None:
    topic = filled(home, [10, 20, 30, 40])
    done = UpkeepResult("t")
    topic.store.run(tend(topic.log, TopicSettings(retention_ms=25), done, 50))
    assert kept(topic) == [30, 40]
    assert (done.expired_records, done.expired_bytes > 0) == (2, True)


def test_merging_leaves_pages_small_enough_for_retention(home: Home) -> None:
    topic = filled(home, list(range(0, 4000, 10)))
    topic.store.run(tend(topic.log, TopicSettings(retention_ms=8000), UpkeepResult("t"), 4000))
    topic.store.run(tend(topic.log, TopicSettings(retention_ms=8000), UpkeepResult("t"), 8000 + 2000))
    assert 1000 < kept(topic)[0] <= 2000
    assert object_size(TopicSettings(retention_bytes=80 << 20)) == 10 << 20
    assert object_size(TopicSettings(retention_bytes=80)) == 1 << 20
    assert object_size(TopicSettings()) == 64 << 20
