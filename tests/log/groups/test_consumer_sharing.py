"""Members of one group: each has its share, hands over in order, and is kept from what is another's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import tailrace
from tailrace.coordination import lease
from tailrace.errors import AlreadyThere, Fenced
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.log.record import Record
from tailrace.log.topic import Topic
from tests.log.homes import EVERYWHERE, Worker, fill, group_of, homes, orders, positions, until

TTL = 0.5


home = homes(EVERYWHERE)
topic = orders(4)


@pytest.fixture
def worker(topic: Topic) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(*args, **settings) -> Worker:
        workers.append(Worker(topic, *args, **settings))
        return workers[-1]

    yield start
    for one in workers:
        one.stop()


def test_two_members_five_records_five_handled(topic: Topic, worker):
    one, two = worker(), worker()
    until(lambda: len(one.consumer.partitions) == len(two.consumer.partitions) == 2)
    fill(topic, 5)
    until(lambda: sum(positions(topic).values()) == 5)
    assert sorted(int(r.value) for r in one.handled + two.handled) == [0, 1, 2, 3, 4]
    assert one.handled
    assert two.handled


def test_members_that_come_and_go_hand_over_at_a_record_boundary(topic: Topic, worker):
    """Nothing is handled twice, nothing out of order, while members join and leave under load.

    Nobody is thought dead: a busy machine may let a member wait for a second."""
    slow = {"handle": lambda record: time.sleep(0.001), "ttl": 4 * TTL}
    workers = [worker(**slow)]
    for n in range(6):
        fill(topic, 100, 100 * n)
        if n in (1, 2):
            workers.append(worker(**slow))
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
    assert asked <= 10


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
    from tailrace.log.groups.member import PartitionMember

    topic.store.run(PartitionMember(group_of(topic), 7, name="ann").join("earliest"))
    with topic.consumer("billing", member="ann", ttl=0.2):
        pass
