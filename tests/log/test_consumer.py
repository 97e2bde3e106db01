"""Consumers: members share a topic, hand over in order, commit what was handled, and are kept from what is others'."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

import tailrace
from tailrace.coordination import lease
from tailrace.coordination.guard import settle
from tailrace.errors import AlreadyThere, BadName, BadSetting, Closed, Fenced, OutOfRange, UnknownTopic
from tailrace.home import Home
from tailrace.log import group as groups
from tailrace.log import head as heads
from tailrace.log import watch
from tailrace.log.record import Record
from tailrace.log.topic import Topic
from tailrace.storage.tables import Set, Update
from tests.log.homes import EVERYWHERE, fill, group_of, opened, positions, until

TTL = 0.5


@pytest.fixture(params=EVERYWHERE)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with opened(request, tmp_path) as home:
        yield home


@pytest.fixture
def topic(home: Home) -> Topic:
    return home.topic("orders", partitions=4)


class Worker:
    """A consumer in a thread of its own."""

    def __init__(self, topic: Topic, handle: Callable[[Record], object] = lambda record: None, **settings):
        self.consumer = topic.consumer("billing", **{"ttl": TTL, "commit_interval": 0.05, **settings})
        self.handled: list[Record] = []
        self.handle = handle
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with self.consumer as consumer:
            for record in consumer:
                self.handle(record)
                self.handled.append(record)

    def stop(self) -> None:
        self.consumer.close()
        self.thread.join()


@pytest.fixture
def worker(topic: Topic) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(*args, **settings) -> Worker:
        workers.append(Worker(topic, *args, **settings))
        return workers[-1]

    yield start
    for one in workers:
        one.stop()


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


def test_a_consumer_follows(topic: Topic, worker):
    one = worker()
    for n in range(5):
        fill(topic, 1, n)
        until(lambda n=n: len(one.handled) == n + 1, 5)


def test_it_is_woken_by_an_append_and_does_not_wait_for_its_next_look(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "SHORTEST", 60.0)
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
    began = time.monotonic()
    with topic.consumer("billing", max_seconds=0.3) as consumer:
        assert len(list(consumer)) == 4
        assert 0.25 < time.monotonic() - began < 5
        assert consumer.caught_up
    assert positions(topic) == dict.fromkeys(range(4), 1)


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


# -- sharing
def test_two_members_five_records_five_handled(topic: Topic, worker):
    one, two = worker(), worker()
    until(lambda: len(one.consumer.partitions) == len(two.consumer.partitions) == 2)
    fill(topic, 5)
    until(lambda: sum(positions(topic).values()) == 5)
    assert sorted(int(r.value) for r in one.handled + two.handled) == [0, 1, 2, 3, 4]
    assert one.handled
    assert two.handled


def test_members_that_come_and_go_hand_over_at_a_record_boundary(topic: Topic, worker):
    """Nothing is handled twice, nothing out of order, while members join and leave under load."""
    workers = [worker(lambda record: time.sleep(0.001))]
    for n in range(6):
        fill(topic, 100, 100 * n)
        if n in (1, 2):
            workers.append(worker(lambda record: time.sleep(0.001)))
        if n == 4:
            workers[0].stop()
        time.sleep(0.3)
    until(lambda: sum(positions(topic).values()) == 600)
    handled = [(r.partition, r.offset) for w in workers for r in w.handled]
    assert len(handled) == len(set(handled)) == 600
    assert all(w.handled for w in workers)
    for w in workers:
        for q in range(4):
            offsets = [r.offset for r in w.handled if r.partition == q]
            assert offsets == sorted(offsets)


def test_a_record_in_hand_keeps_its_partition_until_it_is_handled(topic: Topic, worker):
    fill(topic, 8)
    go, first = threading.Event(), threading.Event()

    def handle(record: Record) -> None:
        first.set()
        go.wait()

    one = worker(handle)
    first.wait()
    two = worker()
    until(lambda: len(two.consumer.partitions) >= 1)
    time.sleep(2 * TTL)  # longer than a handler without a beat would be left alone
    in_hand = one.consumer._inbox.current
    assert in_hand is not None
    assert in_hand.partition not in two.consumer.partitions
    go.set()
    until(lambda: sum(positions(topic).values()) == 8)
    handled = [(r.partition, r.offset) for w in (one, two) for r in w.handled]
    assert len(handled) == len(set(handled)) == 8


def test_a_member_that_falls_silent_is_relieved_and_its_commit_is_fenced(topic: Topic, worker):
    fill(topic, 8)
    with topic.consumer("billing", auto_commit=False, ttl=TTL) as silent:
        records = iter(silent)
        taken = next(records).partition
        silent._beating.stop()
        silent._closing.set()  # its background stops, as if the process hung
        for event in (silent._due, silent._more):
            event.set()
        for thread in silent._threads:
            thread.join()
        silent._closing.clear()
        two = worker()
        until(lambda: sum(positions(topic).values()) == 8)
        with pytest.raises(Fenced, match="newer owner"):
            silent.commit()
        assert taken not in silent.partitions
        silent.commit()
    assert sorted((r.partition, r.offset) for r in two.handled) == [(q, n) for q in range(4) for n in range(2)]


def test_a_fenced_partition_is_dropped_and_the_others_go_on(topic: Topic):
    fill(topic, 40)
    group = group_of(topic)
    with topic.consumer("billing", auto_commit=False, ttl=60) as consumer:
        records = iter(consumer)
        until(lambda: consumer.partitions == [0, 1, 2, 3])
        lost = next(records).partition
        item = topic.store.run(groups.shards(group))[lost]
        assert topic.store.run(lease.take(group.shard(lost), 7, item)) is not None
        with pytest.raises(Fenced, match=f"partition {lost}"):
            consumer.commit()
        rest = [next(records) for _ in range(30)]
        assert lost not in {r.partition for r in rest}
        consumer.commit()
    assert positions(topic) == {q: 0 if q == lost else 10 for q in range(4)}


def test_a_member_taken_for_dead_comes_back(topic: Topic, worker):
    one = worker()
    until(lambda: len(one.consumer.partitions) == 4)
    group = group_of(topic)
    (number,) = topic.store.run(groups.members(group))
    topic.store.table.write(groups.Delete(group.member(number)))
    until(lambda: bool(topic.store.run(groups.members(group))))
    fill(topic, 8)
    until(lambda: len(one.handled) == 8)


def test_more_members_than_partitions(topic: Topic, worker):
    workers = [worker() for _ in range(5)]
    until(lambda: sorted(len(w.consumer.partitions) for w in workers) == [0, 1, 1, 1, 1])
    fill(topic, 8)
    until(lambda: sum(len(w.handled) for w in workers) == 8)


def test_groups_do_not_disturb_each_other(topic: Topic):
    fill(topic, 8)
    for group in ("billing", "shipping"):
        with topic.consumer(group) as consumer:
            assert consumer.run(lambda record: None).records == 8


def test_one_group_name_on_two_topics_is_two_groups(home: Home, topic: Topic):
    other = home.topic("other", partitions=2)
    with topic.consumer("billing", ttl=TTL) as a, other.consumer("billing", ttl=TTL) as b:
        until(lambda: (len(a.partitions), len(b.partitions)) == (4, 2))


def test_an_idle_consumer_asks_little():
    with tailrace.open("memory://") as home:
        one = Worker(home.topic("orders", partitions=4), ttl=10)
        time.sleep(1.5)
        before = home.store.table.calls.total()
        time.sleep(2)
        asked = home.store.table.calls.total() - before
        one.stop()
    assert asked <= 6


# -- names
def test_a_second_member_of_the_same_name_is_refused(topic: Topic):
    with topic.consumer("billing", member="ann", ttl=TTL):
        with pytest.raises(AlreadyThere, match="'ann'"):
            topic.consumer("billing", member="ann", ttl=TTL)
        members = topic.store.run(groups.members(group_of(topic)))
        assert [item["name"] for item in members.values()] == ["ann"]
    with topic.consumer("billing", member="ann", ttl=TTL) as again:
        until(lambda: len(again.partitions) == 4)


def test_the_name_of_a_member_that_died_is_free_again(topic: Topic):
    from tailrace.log.member import Member

    topic.store.run(Member(group_of(topic), 7, name="ann").join("earliest"))
    with topic.consumer("billing", member="ann", ttl=0.2):
        pass


# -- the floor, the end
def raise_floor_of(topic: Topic, floors: dict[int, int]) -> None:
    """What retention does first."""
    key = heads.head_key(topic.id)
    changes = tuple(Set(("floor", str(q)), floor) for q, floor in floors.items())
    done = {str(q): floor for q, floor in floors.items()}.items()
    topic.store.run(settle(key, lambda item: None if done <= item["floor"].items() else (Update(key, changes),)))


def raise_floor(topic: Topic, floor: int) -> None:
    raise_floor_of(topic, dict.fromkeys(range(4), floor))


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
