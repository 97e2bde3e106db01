"""Groups: made once, listed, described, reset and deleted; on memory and on disk."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tailrace.coordination.guard import read
from tailrace.errors import BadInput, Conflict, UnknownGroup, UnknownTopic
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.log.groups import lag as groupstate
from tailrace.log.topic import Topic
from tailrace.storage.calls import Write
from tailrace.testing import Life, Simulation, Violation, check_schedules
from tests.log.group_actors import PARTITIONS, prepare, shared
from tests.log.homes import EVERYWHERE, group_of, homes, positions

TTL = 0.3


home = homes(EVERYWHERE)


@pytest.fixture
def topic(home: Home) -> Topic:
    made = home.topic("orders", partitions=2)
    made.append([(None, b"%d" % n) for n in range(3)])
    with made.transaction() as t:
        for n in range(2):
            t.send(None, b"x", partition=1, timestamp=1_000_000 + 1000 * n)
    return made


def ends(topic: Topic) -> dict[int, int]:
    return {q: end for q, (_, end) in topic.ends().items()}


# -- beginning
def test_a_new_group_begins_where_it_is_told(topic: Topic):
    for name, start, expected in [
        ("first", "earliest", {0: 0, 1: 0}),
        ("last", "latest", ends(topic)),
        ("offset", 1, {0: 1, 1: 1}),
        (
            "time",
            datetime(2000, 1, 1, tzinfo=UTC),
            {q: topic.offset_at(q, datetime(2000, 1, 1, tzinfo=UTC)) for q in (0, 1)},
        ),
    ]:
        topic.store.run(groups.make(group_of(topic, name), start))
        assert positions(topic, name) == expected


def test_a_group_that_exists_goes_on_where_it_was(topic: Topic):
    topic.store.run(groups.make(group_of(topic), "latest"))
    topic.store.run(groups.make(group_of(topic), "earliest"))
    assert positions(topic) == ends(topic)


@pytest.mark.parametrize("start", ["newest", -1, True, 1.5, None])
def test_a_bad_start_is_refused_and_makes_no_group(topic: Topic, start: object):
    with pytest.raises(BadInput):
        topic.store.run(groups.make(group_of(topic), start))  # type: ignore[arg-type]
    assert topic.store.run(groups.groups()) == []


def test_a_group_of_a_deleted_topic_is_not_made(home: Home, topic: Topic):
    home.delete_topic("orders")
    with pytest.raises(UnknownTopic, match="deleted"):
        topic.store.run(groups.make(group_of(topic), "earliest"))


def test_nor_of_one_that_is_deleted_at_that_moment(home: Home, topic: Topic):
    making = groups.make(group_of(topic), "earliest")
    call = next(making)
    while not isinstance(call, Write):
        call = making.send(home.store.answer(call))
    home.delete_topic("orders")
    with pytest.raises(Conflict) as refused:
        home.store.answer(call)
    assert home.store.run(read(group_of(topic).key)) is None
    with pytest.raises(UnknownTopic):
        call = making.throw(refused.value)
        while True:
            call = making.send(home.store.answer(call))


def test_a_topic_with_more_partitions_than_one_write_takes(home: Home):
    wide = home.topic("wide", partitions=128)
    wide.store.run(groups.make(group_of(wide), "earliest"))
    assert positions(wide) == dict.fromkeys(range(128), 0)


def test_whoever_makes_it_the_group_begins_at_one_place():
    """Two first members with different ideas, cut off anywhere: all shards are of the one that made the group."""

    def scenario(sim: Simulation) -> None:
        prepare(sim)
        for name, start in (("ann", 1), ("bob", 2)):
            sim.spawn(name, lambda life, start=start: made(life, start), restarts=1)
        sim.at_end.append(one_start)

    def made(life: Life, start: int):
        yield from groups.make(shared(), start)

    def one_start(sim: Simulation) -> None:
        started = {sim.table.items[shared().shard(q)]["position"] for q in range(PARTITIONS)}
        if len(started) != 1 or list(sim.table.items[groups.bucket_key("$Groups", "group/topic")]["names"]) != [
            "group/topic"
        ]:
            raise Violation("a group began at two places, or is not listed", started)

    check_schedules(scenario, range(200))


# -- people
def test_groups_are_listed_by_topic(home: Home, topic: Topic):
    other = home.topic("other", partitions=1)
    for where, name in ((topic, "b"), (topic, "a"), (other, "a")):
        where.store.run(groups.make(group_of(where, name), "earliest"))
    assert home.store.run(groups.groups()) == [
        ("a", "orders", topic.id),
        ("a", "other", other.id),
        ("b", "orders", topic.id),
    ]
    home.delete_topic("orders")
    assert home.store.run(groups.groups()) == [("a", "other", other.id)]
    assert home.store.run(groups.forget(topic.id)) == 0, "deleting the topic has removed them"
    assert home.store.run(read(group_of(topic, "a").shard(0))) is None
    assert home.store.run(read(group_of(other, "a").shard(0))) is not None


def test_describe_shows_members_owners_positions_and_lag(topic: Topic):
    with topic.consumer("billing", member="ann", ttl=TTL, prefetch=1) as consumer:
        record = next(iter(consumer))
        consumer.commit()
        state = topic.store.run(groupstate.describe(group_of(topic), time.time()))
        (member,) = state.members
        assert (member.name, member.partitions, member.pid > 0) == ("ann", (0, 1), True)
        assert [p.owner for p in state.partitions] == [member.number] * 2
        assert [p.epoch for p in state.partitions] == [1, 1]
        assert {p.partition: p.end for p in state.partitions} == ends(topic)
        assert {p.partition: p.position for p in state.partitions} == {0: 0, 1: 0, record.partition: 1}
        assert state.lag.records == 4
        assert state.lag.seconds > 0
        assert sum(p.lag.records for p in state.partitions) == 4
    state = topic.store.run(groupstate.describe(group_of(topic), time.time()))
    assert state.members == ()
    assert [p.owner for p in state.partitions] == [0, 0]


def test_an_unknown_group_is_named_with_the_nearest(topic: Topic):
    topic.store.run(groups.make(group_of(topic), "earliest"))
    with pytest.raises(UnknownGroup, match="did you mean 'billing'"):
        topic.store.run(groupstate.describe(group_of(topic, "biling"), 0))
    with pytest.raises(UnknownGroup, match="no group 'x'"):
        topic.store.run(groups.reset(group_of(topic, "x"), "latest"))
    with pytest.raises(UnknownGroup):
        topic.store.run(groups.delete(group_of(topic, "x")))


def test_lag_is_in_records_and_in_seconds(topic: Topic):
    lag = topic.store.run(groupstate.lag(topic.log, {1: ends(topic)[1] - 2}, 1_010.0))
    assert (lag.records, lag.seconds) == (2, 10.0)
    assert lag.partitions[1].seconds == 10.0
    caught_up = topic.store.run(groupstate.lag(topic.log, ends(topic), 1_010.0))
    assert (caught_up.records, caught_up.seconds) == (0, 0.0)


# -- operators
def test_reset_moves_back_and_raises_the_epochs(topic: Topic):
    with topic.consumer("billing") as consumer:
        consumer.run(lambda record: None)
    before = topic.store.run(groups.shards(group_of(topic)))
    assert positions(topic) == ends(topic)
    assert topic.store.run(groups.reset(group_of(topic), "earliest", ttl=TTL)) == {0: 0, 1: 0}
    after = topic.store.run(groups.shards(group_of(topic)))
    assert positions(topic) == {0: 0, 1: 0}
    assert all(after[q]["epoch"] == before[q]["epoch"] + 1 for q in before)


def test_reset_is_refused_while_a_member_lives(topic: Topic):
    with topic.consumer("billing", member="ann", ttl=TTL) as consumer:
        consumer.run(lambda record: None)
        for step in (groups.reset(group_of(topic), "earliest", ttl=TTL), groups.delete(group_of(topic), ttl=TTL)):
            with pytest.raises(Conflict, match="ann"):
                topic.store.run(step)
        assert positions(topic) == ends(topic)


def test_a_member_that_died_does_not_stand_in_the_way(topic: Topic):
    from tailrace.log.groups.member import PartitionMember

    topic.store.run(PartitionMember(group_of(topic), 7, ttl=TTL).join("earliest"))
    assert topic.store.run(groups.reset(group_of(topic), "latest", ttl=TTL)) == ends(topic)


def test_a_forced_reset_fences_who_reads_and_he_goes_on_from_there(topic: Topic):
    seen = []
    with topic.consumer("billing", ttl=TTL, commit_interval=0.01, max_seconds=20) as consumer:
        for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 5:
                consumer.commit()
                topic.store.run(groups.reset(group_of(topic), "earliest", force=True))
            if len(seen) == 10:
                break
    assert sorted(seen[:5]) == sorted(seen[5:])


def test_a_deleted_group_is_gone_and_a_new_one_begins_anew(topic: Topic):
    with topic.consumer("billing") as consumer:
        consumer.run(lambda record: None)
    epochs = {q: item["epoch"] for q, item in topic.store.run(groups.shards(group_of(topic))).items()}
    topic.store.run(groups.delete(group_of(topic)))
    assert topic.store.run(groups.groups()) == []
    assert epochs
    topic.store.run(groups.make(group_of(topic), "earliest"))
    assert positions(topic) == {0: 0, 1: 0}


def test_shards_that_a_deletion_left_behind_are_not_taken_over(topic: Topic):
    with topic.consumer("billing") as consumer:
        consumer.run(lambda record: None)
    deleting = groups.delete(group_of(topic))
    call = next(deleting)
    while topic.store.run(read(group_of(topic).key)) is not None:  # cut off as soon as the group is gone
        call = deleting.send(topic.store.answer(call))
    deleting.close()
    left = topic.store.run(groups.shards(group_of(topic)))
    assert left
    topic.store.run(groups.make(group_of(topic), "earliest"))
    now = topic.store.run(groups.shards(group_of(topic)))
    assert positions(topic) == {0: 0, 1: 0}
    assert all(now[q]["epoch"] > left[q]["epoch"] for q in left)


def test_who_reads_for_a_deleted_group_is_told(topic: Topic):
    with topic.consumer("billing", ttl=TTL, max_seconds=20) as consumer:
        records = iter(consumer)
        next(records)
        topic.store.run(groups.delete(group_of(topic), force=True))
        with pytest.raises(UnknownGroup, match="billing"):
            list(records)
