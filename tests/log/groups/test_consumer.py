"""Consumers: members share a topic, hand over in order, commit what was handled, and are kept from what is others'."""

from __future__ import annotations

import threading
import time
from itertools import islice

import pytest

import tailrace
from tailrace.coordination import watch
from tailrace.errors import BadName, BadSetting, Closed, OutOfRange, UnknownTopic
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.log.record import Record
from tailrace.log.topic import Topic
from tests.log.homes import EVERYWHERE, fill, group_of, homes, orders, positions, raise_floors, until

TTL = 0.5


home = homes(EVERYWHERE)
topic = orders(4)


# -- reading
def test_everything_is_handed_out_in_order_per_partition(topic: Topic):
    fill(topic, 40)
    seen: dict[int, list[int]] = {}
    with topic.consumer("billing") as consumer:
        for record in consumer:
            seen.setdefault(record.partition, []).append(record.offset)
            assert record.value == b"%d" % (record.offset * 4 + record.partition)
            if consumer.caught_up:
                break
    assert seen == {q: list(range(10)) for q in range(4)}


def test_a_consumer_follows(topic: Topic):
    with topic.consumer("billing", max_seconds=20) as consumer:
        records = iter(consumer)
        for n in range(5):
            threading.Timer(0.05, fill, (topic, 1, n)).start()
            assert next(records).value == b"%d" % n


def test_it_is_woken_by_an_append_and_does_not_wait_for_its_next_look(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "MIN_POLL_SECONDS", 60.0)
    with tailrace.open("memory://") as home:
        topic = home.topic("orders", partitions=4)
        with topic.consumer("billing", max_seconds=10, ttl=60) as consumer:
            until(lambda: consumer.caught_up)
            threading.Timer(0.1, fill, (topic, 1)).start()
            assert next(iter(consumer)).value == b"0"


def test_batches_are_what_reading_gives(topic: Topic):
    fill(topic, 8)
    with topic.consumer("billing") as consumer:
        rows = 0
        for batch in consumer.batches():
            assert batch.schema.names == ["partition", "offset", "timestamp", "attributes", "key", "value"]
            rows += batch.num_rows
            if consumer.caught_up:
                consumer.commit()
                break
    assert rows == 8
    assert positions(topic) == dict.fromkeys(range(4), 2)


def test_a_batch_in_hand_is_not_committed(topic: Topic):
    fill(topic, 8)
    with topic.consumer("billing", commit_interval=0.01) as consumer:
        batches = consumer.batches()
        held = next(batches).column("partition")[0].as_py()
        time.sleep(0.1)
        assert positions(topic)[held] == 0
        next(batches)
        until(lambda: positions(topic)[held] == 2)


def test_what_is_left_of_a_batch_is_handed_out_in_the_next_loop(topic: Topic):
    fill(topic, 40)
    seen = []
    with topic.consumer("billing") as consumer:
        for _ in range(39):
            for record in consumer:
                seen.append((record.partition, record.offset))
                break
        seen += [
            (batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py())
            for batch in [next(consumer.batches())]
        ]
    assert sorted(seen) == [(q, n) for q in range(4) for n in range(10)]


def test_little_is_fetched_ahead_where_so_set(topic: Topic):
    for n in range(20):
        fill(topic, 4, 4 * n)
    with topic.consumer("billing", prefetch=1) as consumer:
        records = iter(consumer)
        next(records)
        time.sleep(0.2)
        assert len(consumer._inbox._queue) <= 4
        assert len(list(islice(records, 79))) == 79


# -- committing
def test_a_record_is_committed_when_the_loop_comes_back(topic: Topic):
    fill(topic, 4)
    with topic.consumer("billing", commit_interval=0.01) as consumer:
        records = iter(consumer)
        first = next(records)
        time.sleep(0.1)
        assert positions(topic) == dict.fromkeys(range(4), 0)
        next(records)
        until(lambda: positions(topic)[first.partition] == 1)
    assert sum(positions(topic).values()) == 1


def test_positions_are_committed_on_close(topic: Topic):
    fill(topic, 4)
    with topic.consumer("billing", commit_interval=1000) as consumer:
        records = iter(consumer)
        for _ in range(3):
            next(records)
    assert sum(positions(topic).values()) == 2


def test_commits_are_in_batches(topic: Topic):
    fill(topic, 40)
    with topic.consumer("billing", commit_interval=1000) as consumer:
        for n, _ in enumerate(consumer):
            if n == 38:
                assert sum(positions(topic).values()) == 0
                break
    assert sum(positions(topic).values()) == 38


def test_commit_by_hand_counts_the_record_in_hand(topic: Topic):
    fill(topic, 4)
    with topic.consumer("billing", auto_commit=False) as consumer:
        records = iter(consumer)
        next(records)
        next(records)
        time.sleep(0.1)
        assert sum(positions(topic).values()) == 0
        consumer.commit()
        assert sum(positions(topic).values()) == 2
        next(records)
    assert sum(positions(topic).values()) == 2


def test_the_next_member_goes_on_where_the_last_stopped(topic: Topic):
    fill(topic, 8)
    with topic.consumer("billing") as consumer:
        assert consumer.run(lambda record: None) == (8, True, pytest.approx(0, abs=20))
    fill(topic, 4, 8)
    seen = []
    with topic.consumer("billing") as consumer:
        consumer.run(seen.append)
    assert sorted(record.offset for record in seen) == [2, 2, 2, 2]


def test_a_handler_that_raises_leaves_its_record_for_the_next(topic: Topic):
    fill(topic, 4)
    seen: list[Record] = []

    def fails(record: Record) -> None:
        seen.append(record)
        if len(seen) == 3:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"), topic.consumer("billing") as consumer:
        consumer.run(fails)
    with topic.consumer("billing") as consumer:
        assert consumer.run(seen.append).records == 2
    assert seen[2] in seen[3:]


# -- running for a while
def test_a_run_that_catches_up_says_so(topic: Topic):
    fill(topic, 12)
    asked = []
    with topic.consumer("billing") as consumer:
        ran = consumer.run(lambda record: None, max_seconds=20, on_unfinished=lambda: asked.append(1))
        assert (ran.records, ran.caught_up) == (12, True)
        assert consumer.run(lambda record: None).records == 0
    assert not asked


def test_what_a_run_has_handled_is_committed(topic: Topic):
    fill(topic, 12)
    with topic.consumer("billing", commit_interval=1000) as consumer:
        consumer.run(lambda record: None)
        assert positions(topic) == dict.fromkeys(range(4), 3)


def test_a_run_out_of_time_asks_for_another_which_finishes(topic: Topic):
    fill(topic, 40)
    asked, seen = [], []

    def slow(record: Record) -> None:
        seen.append(record)
        time.sleep(0.05)

    with topic.consumer("billing") as consumer:
        until(lambda: len(consumer.partitions) == 4)
        ran = consumer.run(slow, max_seconds=0.5, on_unfinished=lambda: asked.append(1))
    assert not ran.caught_up
    assert 0 < ran.records < 40
    assert asked == [1]
    with topic.consumer("billing") as consumer:
        assert consumer.run(seen.append, on_unfinished=lambda: asked.append(2)).caught_up
    assert asked == [1]
    assert len(seen) == len({(r.partition, r.offset) for r in seen}) == 40


def test_a_loop_ends_after_max_seconds(topic: Topic):
    fill(topic, 4)
    for seconds in 0.3, 3.0, 30.0:  # a busy machine may need longer for four records
        began = time.monotonic()
        group = f"billing-{seconds:.0f}"
        with topic.consumer(group, max_seconds=seconds) as consumer:
            found = list(consumer)
            assert time.monotonic() - began > seconds * 0.8
            caught_up = consumer.caught_up
        if len(found) == 4 and caught_up:
            assert positions(topic, group) == dict.fromkeys(range(4), 1)
            return
    raise AssertionError(found)


def test_lag_counts_what_was_not_handled(topic: Topic):
    with topic.transaction() as t:
        t.send(value=b"old", partition=0, timestamp=int(time.time() * 1000) - 60_000)
        t.send(value=b"new", partition=1)
    with topic.consumer("billing") as consumer:
        records = iter(consumer)
        until(lambda: consumer.partitions == [0, 1, 2, 3])
        lag = consumer.lag()
        assert (lag.records, lag.partitions[0].records, lag.partitions[2].records) == (2, 1, 0)
        assert 60 <= lag.seconds < 90
        assert lag.partitions[0].seconds == lag.seconds
        assert lag.partitions[2].seconds == 0
        next(records), next(records)
        assert consumer.lag().records == 1
        consumer.commit()
        assert (consumer.lag().records, consumer.lag().seconds) == (0, 0.0)


# -- the floor, the end
def raise_floor(topic: Topic, floor: int) -> None:
    raise_floors(topic, dict.fromkeys(range(4), floor))


def test_a_position_below_the_floor_is_an_error_that_says_so(topic: Topic):
    fill(topic, 40)
    with topic.consumer("billing"):
        pass
    raise_floor(topic, 7)
    with pytest.raises(OutOfRange, match="kept is 7"), topic.consumer("billing") as consumer:
        next(iter(consumer))


@pytest.mark.parametrize("floor", [7, 10])
def test_or_reading_goes_on_at_the_floor(topic: Topic, floor: int):
    fill(topic, 40)
    with topic.consumer("billing"):
        pass
    raise_floor(topic, floor)
    seen: list[Record] = []
    with topic.consumer("billing", from_floor=True) as consumer:
        assert consumer.run(seen.append).caught_up
    assert sorted(r.offset for r in seen) == sorted(4 * list(range(floor, 10)))
    assert positions(topic) == dict.fromkeys(range(4), 10)


def test_a_deleted_topic_is_an_error(home: Home, topic: Topic):
    with topic.consumer("billing", ttl=TTL) as consumer:
        records = iter(consumer)
        home.delete_topic("orders")
        with pytest.raises(UnknownTopic, match="deleted"):
            next(records)
    with pytest.raises(UnknownTopic):
        topic.consumer("shipping")


def test_a_new_group_may_begin_at_the_end(topic: Topic):
    fill(topic, 4)
    with topic.consumer("billing", start="latest") as consumer:
        assert consumer.run(lambda record: None).records == 0
        fill(topic, 4, 4)
        assert next(iter(consumer)).offset == 1


# -- opening and closing
def test_leaving_the_loop_closes_a_consumer_without_with(topic: Topic):
    fill(topic, 4)
    consumer = topic.consumer("billing")
    for _ in consumer:
        break
    assert topic.store.run(groups.members(group_of(topic))) == {}
    for use in (lambda: next(iter(consumer)), lambda: next(consumer.batches()), consumer.commit):
        with pytest.raises(Closed, match="closed"):
            use()
    consumer.close()


def test_close_ends_a_loop_that_waits(topic: Topic):
    consumer = topic.consumer("billing")
    threading.Timer(0.2, consumer.close).start()
    with consumer:
        assert list(consumer) == []


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"comit_interval": 1}, "commit_interval"),
        ({"ttl": 0}, "ttl"),
        ({"prefetch": "x"}, "prefetch"),
        ({"max_seconds": -1}, "max_seconds"),
    ],
)
def test_bad_settings_are_refused_with_a_hint(topic: Topic, settings, hint: str):
    with pytest.raises(BadSetting, match=hint):
        topic.consumer("billing", **settings)


@pytest.mark.parametrize("group", ["", "a/b", "ä", "x" * 201])
def test_bad_names_are_refused(topic: Topic, group: str):
    with pytest.raises(BadName):
        topic.consumer(group)
    with pytest.raises(BadName):
        topic.consumer("billing", member=group)
