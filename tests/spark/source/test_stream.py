"""The streaming source, called as Spark calls it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tailrace.errors import BadSetting, OutOfRange, UnknownTopic
from tailrace.home import Home
from tailrace.log.upkeep.retention import raise_floor
from tailrace.log.write.attempt import roll
from tailrace.spark.source import stream
from tailrace.spark.source.offsets import numbers
from tailrace.spark.source.stream import TopicStreamReader
from tests.spark.direct import fill, source, travelled

ALL = ReadAllAvailable()


def reading(home: Home, **options: Any) -> TopicStreamReader:
    found = source(home, **{"subscribe": "orders", "startingOffsets": "earliest", **options})
    return travelled(found.streamReader(found.schema()))


def counted(offsets: dict[str, Any]) -> dict[str, dict[int, int]]:
    return {topic: numbers(found) for topic, found in offsets.items()}


def follow(reader: TopicStreamReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """The ends of all batches until nothing is left."""
    ends = []
    while True:
        kept = json.loads(json.dumps(start))
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert start == kept
        if json.dumps(end) == json.dumps(start):
            return ends
        ends.append(end)
        start = json.loads(json.dumps(end))


def rows(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    found = [b for part in reader.partitions(start, end) for b in travelled(reader).read(travelled(part))]
    return [(row["topic"], row["partition"], row["offset"]) for b in found for row in b.to_pylist()]


def test_a_new_query_begins_where_it_is_told(home: Home) -> None:
    fill(home.topic("orders", partitions=2), {0: 3, 1: 1})
    assert counted(reading(home).initialOffset()) == {"orders": {0: 0, 1: 0}}
    assert counted(reading(home, startingOffsets="latest").initialOffset()) == {"orders": {0: 3, 1: 1}}
    given = '{"orders": {"0": 2}}'
    assert counted(reading(home, startingOffsets=given).initialOffset()) == {"orders": {0: 2, 1: 0}}
    found = source(home, subscribe="orders")
    assert counted(found.streamReader(found.schema()).initialOffset()) == {"orders": {0: 3, 1: 1}}


def test_batches_join_and_give_each_record_once(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    reader = reading(home, maxOffsetsPerTrigger=7)
    at, seen = reader.initialOffset(), []
    for step in range(5):
        fill(topic, {0: 4, 1: step}, step * 10)
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        got = rows(reader, at, end)
        assert len(got) <= 7
        seen, at = seen + got, end
    for end in follow(reader, at):
        seen, at = seen + rows(reader, at, end), end
    assert sorted(seen) == [("orders", 0, n) for n in range(20)] + [("orders", 1, n) for n in range(10)]
    assert rows(reader, at, at) == []


def test_a_limit_on_records_is_shared_and_starves_nobody(home: Home) -> None:
    fill(home.topic("orders", partitions=3), {0: 1000, 1: 100, 2: 1})
    reader = reading(home, maxOffsetsPerTrigger=110)
    assert reader.getDefaultReadLimit() == ReadMaxRows(110)
    first = follow(reader, reader.initialOffset())[0]
    taken = counted(first)["orders"]
    assert sum(taken.values()) == 110
    assert taken[2] == 1
    assert 95 <= taken[0] <= 101
    assert counted(reader.latestOffset(reader.initialOffset(), ALL))["orders"] == {0: 1000, 1: 100, 2: 1}


def test_a_limit_on_bytes_takes_whole_runs(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    for n in range(10):
        fill(topic, {0: 50, 1: 50}, n * 50)
        if n % 3 == 2:
            home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    reader = reading(home, maxBytesPerTrigger=8000)
    assert reader.getDefaultReadLimit() == ReadMaxBytes(8000)
    ends = follow(reader, reader.initialOffset())
    assert len(ends) > 2
    assert counted(ends[-1])["orders"] == {0: 500, 1: 500}
    one = follow(reading(home, maxBytesPerTrigger=1), reader.initialOffset())
    assert len(one) == 20  # never less than a run
    both = follow(reading(home, maxBytesPerTrigger=8000, maxOffsetsPerTrigger=10), reader.initialOffset())
    assert len(both) == 100


def test_few_records_wait_for_more_but_not_for_ever(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    reader = reading(home, minOffsetsPerTrigger=10, maxTriggerDelay="5s")
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    assert limit == ReadMinRows(10)
    fill(topic, {0: 9})
    assert reader.latestOffset(start, limit) == start
    assert counted(reader.latestOffset(start, ALL)) == {"orders": {0: 9}}
    with patch.object(stream.time, "monotonic", lambda: reader.waiting_since + 5.1):
        end = reader.latestOffset(start, limit)
    assert counted(end) == {"orders": {0: 9}}
    fill(topic, {0: 9}, 9)
    assert reader.latestOffset(end, limit) == end
    fill(topic, {0: 1}, 18)
    assert counted(reader.latestOffset(end, limit)) == {"orders": {0: 19}}


def test_available_now_ends_where_the_topics_ended(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    fill(topic, {0: 10})
    reader = reading(home, maxOffsetsPerTrigger=4, minOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    fill(topic, {0: 10}, 10)
    ends = follow(reader, reader.initialOffset())
    assert [counted(end)["orders"][0] for end in ends] == [4, 8, 10]


def test_topics_that_appear_are_read_from_their_beginning(home: Home) -> None:
    fill(home.topic("orders-1", partitions=1), {0: 3})
    options = {"subscribe": None, "subscribePattern": "orders-.*", "startingOffsets": "latest"}
    found = source(home, **{k: v for k, v in options.items() if v})
    reader = found.streamReader(found.schema())
    start = reader.initialOffset()
    home.topic("orders-2", partitions=2)
    assert reader.latestOffset(start, ALL) == start  # nothing to read in it
    fill(home.topic("orders-2"), {1: 2})
    end = reader.latestOffset(start, ALL)
    assert counted(end) == {"orders-1": {0: 3}, "orders-2": {1: 2}}
    assert rows(reader, start, end) == [("orders-2", 1, 0), ("orders-2", 1, 1)]
    fill(home.topic("orders-2"), {0: 1})  # a partition that had nothing
    assert rows(reader, end, reader.latestOffset(end, ALL)) == [("orders-2", 0, 0)]


def test_a_partition_the_query_does_not_know_is_read_from_its_beginning(home: Home) -> None:
    topic = home.topic("orders", partitions=3)
    fill(topic, {0: 2, 2: 2})
    reader = reading(home)
    start = {"orders": {"id": topic.id, "0": 1}}
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == [("orders", 0, 1), ("orders", 2, 0), ("orders", 2, 1)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_removed_before_they_were_read(home: Home, fail: str) -> None:
    topic = home.topic("orders", partitions=1)
    fill(topic, {0: 10})
    reader = reading(home, failOnDataLoss=fail)
    start = reader.initialOffset()
    home.store.run(raise_floor(topic.log, {0: 4}))
    end = reader.latestOffset(start, ALL)
    if fail == "true":
        with pytest.raises(OutOfRange, match="offsets 0 to 3"):
            reader.partitions(start, end)
    else:
        assert rows(reader, start, end) == [("orders", 0, n) for n in range(4, 10)]


def test_a_topic_deleted_or_made_again_is_noticed(home: Home) -> None:
    fill(home.topic("orders", partitions=1), {0: 5})
    strict, easy = reading(home), reading(home, failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    home.delete_topic("orders")
    with pytest.raises(UnknownTopic, match="orders"):
        strict.latestOffset(start, ALL)
    assert easy.latestOffset(start, ALL) == start
    fill(home.topic("orders", partitions=1), {0: 9})
    with pytest.raises(OutOfRange, match="made again"):
        strict.latestOffset(start, ALL)
    end = easy.latestOffset(start, ALL)
    assert rows(easy, start, end) == [("orders", 0, n) for n in range(9)]


def test_the_end_and_the_distance_to_it_are_reported(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    ages = [30, 20, 10]
    for n, age in enumerate(ages):
        with topic.transaction() as out:
            for _ in range(3):
                out.send(None, b"%d" % n, timestamp=datetime.now(UTC) - timedelta(seconds=age), partition=0)
        if n == 0:
            home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    reader = reading(home, maxOffsetsPerTrigger=2)
    assert reader.reportLatestOffset() is None
    at, seen = reader.initialOffset(), []
    for _ in range(6):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
        latest = reader.reportLatestOffset()
        assert latest is not None
        assert counted(latest) == {"orders": {0: 9, 1: 0}}
        assert latest["orders"]["behind"]["1"] == {"records": 0, "seconds": 0.0}
        json.dumps(latest)
        seen.append(latest["orders"]["behind"]["0"])
    assert [one["records"] for one in seen] == [7, 5, 3, 1, 0, 0]
    assert [one["seconds"] for one in seen] == pytest.approx([30, 20, 10, 10, 0, 0], abs=5)
    again = reading(home, startingOffsets=json.dumps(reader.reportLatestOffset()))  # it may be copied from there
    assert counted(again.initialOffset()) == {"orders": {0: 9, 1: 0}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "is for spark.read"),
        ({"pushFilters": "true"}, "is for spark.read"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a number with"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger"),
    ],
)
def test_bad_input_is_refused_on_the_driver(home: Home, options: dict[str, str], said: str) -> None:
    home.topic("orders", partitions=1)
    with pytest.raises(BadSetting, match=said):
        reading(home, **options)
