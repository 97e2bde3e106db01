"""Inboxes, driven by hand: what is handed out, finished and committed when partitions change hands."""

from __future__ import annotations

import threading

import pytest

from tailrace.coordination import lease
from tailrace.errors import Fenced, Unavailable
from tailrace.log import catalog
from tailrace.log.groups import group as groups
from tailrace.log.groups.member import PartitionMember
from tailrace.log.groups.prefetch import ConsumerSettings, Inbox
from tailrace.log.read.fetched import Fetched
from tailrace.log.topic import as_records
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import place
from tailrace.testing import Simulation
from tests.log.driving import simulated
from tests.log.group_actors import EACH, prepare, shared

TTL = 10.0


class Bench:
    """A topic of two partitions with three records each, and members that move when they are told."""

    def __init__(self) -> None:
        self.sim = Simulation(timeouts=0, refusals=0, unread=0, torn=0, crashes=0, jumps=0)
        prepare(self.sim)

    def join(self, number: int, **settings) -> Inbox:
        member = PartitionMember(shared(), number, ttl=TTL, wall=lambda: 0.0)
        self.sim.do(member.join("earliest"))
        self.sim.do(member.balance())
        consuming = ConsumerSettings.of({"ttl": TTL, "commit_interval": 1000, **settings})
        inbox = Inbox(member, consuming, threading.Event(), threading.Event(), threading.Event())
        self.look(inbox)
        return inbox

    def look(self, inbox: Inbox) -> None:
        inbox._next_look = 0.0
        self.sim.do(inbox.keep())

    def fetch(self, inbox: Inbox) -> None:
        while self.sim.do(inbox.fetch()):
            pass

    def positions(self) -> list[int]:
        return [item["position"] for item in self.sim.do(groups.shards(shared())).values()]

    def owners(self) -> list[int]:
        return [item["owner"] for item in self.sim.do(groups.shards(shared())).values()]

    def steal(self, partition: int) -> None:
        """Another takes a partition over."""
        key = shared().shard(partition)
        assert self.sim.do(lease.take(key, 99, self.sim.table.items[key])) is not None

    def free(self, partition: int) -> None:
        """… and gives it back."""
        key = shared().shard(partition)
        self.sim.do(lease.release(lease.HeldLease(key, 99, self.sim.table.items[key]["epoch"])))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def hand(inbox: Inbox, rows: int) -> Fetched:
    """Hand out some records of what is next."""
    fetched = inbox.take()
    assert fetched is not None
    for record in list(as_records("topic", fetched))[:rows]:
        inbox.current = record
    return fetched


def test_what_is_in_hand_is_finished_up_to_the_last_record_given(bench: Bench):
    inbox = bench.join(1)
    bench.fetch(inbox)
    fetched = hand(inbox, 1)
    assert inbox.positions() == {0: 0, 1: 0}
    inbox.finish()
    assert inbox.positions()[fetched.partition] == 1


def test_of_what_was_handed_out_in_part_the_rest_is_neither_finished_nor_lost(bench: Bench):
    """Who stops in the middle of a chunk, and leaves, commits up to there."""
    log, buffer = shared().log, Buffer(2, 1000)
    for n in range(4):
        buffer.add(None, b"%d" % n, n, partition=0)
    bench.sim.do(commit([bench.sim.do(place(log, buffer.encode("none")))]))
    inbox = bench.join(1)
    bench.fetch(inbox)
    while (fetched := hand(inbox, 2)).data.num_rows < 4:
        inbox.finish()
    inbox.finish()
    assert inbox.positions()[0] == fetched.offset + 2
    bench.sim.do(inbox.commit(inbox.positions()))
    assert bench.positions()[0] == fetched.offset + 2
    rest = inbox.take()
    assert rest is not None
    assert (rest.offset, rest.end) == (fetched.offset + 2, fetched.end)
    bench.sim.do(inbox.leave())
    assert bench.positions()[0] == fetched.offset + 2


def test_a_partition_over_the_share_goes_with_its_position(bench: Bench):
    one = bench.join(1)
    bench.fetch(one)
    handle_all(one)
    two = bench.join(2)
    bench.look(one)
    bench.look(two)
    assert sorted(bench.owners()) == [1, 2]
    assert bench.positions()[bench.owners().index(2)] == EACH


def test_a_revoked_partition_is_not_handed_out_while_it_waits_to_go(bench: Bench):
    one = bench.join(1, auto_commit=False)
    bench.fetch(one)
    given = hand(one, 1).partition
    bench.join(2)
    one._held[given].revoked_at = 0.0  # over the share, and not yet committed: it waits
    one.finish()
    assert set(handle_all(one)) == {1 - given}


def handle_all(inbox: Inbox) -> list[int]:
    """Hand out everything there is; gives the partitions, in the order they came."""
    came = []
    while (fetched := inbox.take()) is not None:
        inbox.current = fetched
        inbox.finish()
        came.append(fetched.partition)
    return came


def test_a_partition_in_hand_is_kept_until_it_is_finished(bench: Bench):
    one = bench.join(1)
    bench.fetch(one)
    in_hand = hand(one, 1).partition
    bench.join(2)
    bench.join(3)
    for _ in range(3):
        bench.look(one)
    assert bench.owners()[in_hand] == 1


def test_records_fetched_under_an_older_lease_are_dropped(bench: Bench):
    """Lost and taken again while a fetch was under way, or its records in the queue or in hand."""
    one = bench.join(1)
    fetching = one.fetch()
    call = next(fetching)
    bench.steal(0)
    bench.free(0)
    bench.look(one)
    bench.look(one)
    assert bench.owners()[0] == 1
    finish_steps(bench, fetching, call)
    assert {fetched.partition for fetched in one._queue} == {1}
    bench.fetch(one)
    assert [fetched.offset for fetched in one._queue if fetched.partition == 0] == [0, 1, 2]


def finish_steps(bench: Bench, steps, call) -> None:
    try:
        while True:
            call = steps.send(bench.sim._carrier.answer(call))
    except StopIteration:
        return


def test_what_was_fetched_and_not_handed_out_is_not_committed_when_a_partition_goes(bench: Bench):
    """A fetch that was under way when the partition was revoked must not count the records dropped since as read."""
    one = bench.join(1)
    bench.fetch(one)
    fetching = one.fetch()
    call = next(fetching)
    bench.join(2)
    one._next_look = 0.0
    release, one._release = one._release, lambda now: iter(())  # type: ignore[method-assign, assignment]
    bench.sim.do(one.keep())
    one._release = release  # type: ignore[method-assign]
    (gone,) = (q for q, held in one._held.items() if held.revoked_at is not None)
    assert set(handle_all(one)) == {1 - gone}
    finish_steps(bench, fetching, call)
    bench.look(one)
    assert bench.owners()[gone] == 0
    assert bench.positions()[gone] == 0


def test_what_was_in_hand_under_an_older_lease_moves_no_position(bench: Bench):
    one = bench.join(1)
    bench.fetch(one)
    q = hand(one, 1).partition
    bench.steal(q)
    bench.free(q)
    bench.look(one)
    bench.look(one)
    assert one.interrupted
    one.finish()
    assert one.positions()[q] == 0
    bench.sim.do(one.leave())
    assert bench.positions() == [0, 0]


def test_a_partition_just_taken_is_not_caught_up_before_it_was_looked_at(bench: Bench):
    inbox = bench.join(1)
    assert not inbox.caught_up
    bench.fetch(inbox)
    assert not inbox.caught_up
    handle_all(inbox)
    assert inbox.caught_up


def test_who_commits_himself_is_given_time_to_do_so_before_a_partition_goes(bench: Bench):
    one = bench.join(1, auto_commit=False)
    bench.fetch(one)
    handle_all(one)
    bench.join(2)
    bench.look(one)
    assert bench.owners() == [1, 1]
    assert bench.sim.do(one.commit()) == {}
    assert bench.positions() == [EACH, EACH]
    bench.look(one)
    assert sorted(bench.owners()) == [0, 1]


def test_but_not_for_ever_and_then_his_commit_says_so(bench: Bench):
    one = bench.join(1, auto_commit=False)
    bench.fetch(one)
    handle_all(one)
    two = bench.join(2)
    bench.look(one)
    bench.sim.clock.move(TTL + 1)
    bench.sim.do(one.member.beat())
    bench.sim.do(two.member.beat())
    bench.look(one)
    assert sorted(bench.owners()) == [0, 1]
    assert bench.positions() == [0, 0]
    kept = bench.owners().index(1)
    fenced = bench.sim.do(one.commit())
    assert fenced.keys() == {1 - kept}
    assert isinstance(fenced[1 - kept], Fenced)
    assert bench.positions()[kept] == EACH
    assert bench.sim.do(one.commit()) == {}


def test_what_the_background_loses_by_a_failed_write_is_tried_again(bench: Bench):
    """A commit that fails on the way to a release keeps the partition, and what was finished of it."""
    one = bench.join(1)
    bench.fetch(one)
    handle_all(one)
    bench.join(2)
    commit, one.member.commit = one.member.commit, failing  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        bench.look(one)
    one.member.commit = commit  # type: ignore[method-assign]
    bench.look(one)
    assert sorted(bench.owners()) == [0, 1]
    gone = bench.owners().index(0)
    assert bench.positions()[gone] == EACH


def failing(*args, **kwargs):
    raise Unavailable("away")
    yield


def test_a_member_without_its_share_looks_often_at_first_and_then_less(bench: Bench):
    one = bench.join(1)
    bench.fetch(one)
    hand(one, 1)
    two = PartitionMember(shared(), 2, ttl=TTL, wall=lambda: 0.0)
    bench.sim.do(two.join("earliest"))
    waiting = Inbox(
        two, ConsumerSettings(ttl=TTL, commit_interval=1000), threading.Event(), threading.Event(), threading.Event()
    )
    pauses = []
    for _ in range(7):
        waiting._next_look = 0.0
        bench.sim.do(two.beat())
        bench.sim.do(one.member.beat())
        pauses.append(bench.sim.do(waiting.keep()))
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.3 < 0.9 < pauses[-1] < TTL / 10 + 0.01


@pytest.mark.parametrize(("kept", "seconds"), [("joined", 1.5), ("objects", 2.0)])
def test_a_second_member_soon_has_its_share(kept: str, seconds: float):
    """Who was alone looks each 3.3 s whether all live; that somebody came is seen at once."""
    store, clock = simulated(kept)
    described = store.run(catalog.create("orders", 4, {}, 0))
    log = TopicLog("orders", described.id, joins_inline=kept == "joined", partitions=4)

    def joined(number: int) -> Inbox:
        member = PartitionMember(groups.Group("g", log, 4), number, ttl=TTL, wall=lambda: 0.0)
        store.run(member.join("earliest"))
        settings = ConsumerSettings.of({"ttl": TTL})
        return Inbox(member, settings, threading.Event(), threading.Event(), threading.Event())

    def run(*inboxes: Inbox) -> None:
        next_round = min(store.run(inbox.keep()) for inbox in inboxes)
        for inbox in inboxes:
            store.run(inbox.member.beat())
        clock.move(max(next_round, 0.001))

    first = joined(1)
    while clock.monotonic() < 100 or first._next_look - clock.monotonic() < 3:
        run(first)
    assert len(first.member.held) == 4
    began, second = clock.monotonic(), joined(2)
    while len(second.member.held) < 2:
        run(first, second)
        assert clock.monotonic() - began < seconds
