"""Acknowledgements: what a refused write of a window leaves to the next one, and how much a consumer emits."""

from __future__ import annotations

import random
from typing import Any

from tailrace.coordination.lease import new_number
from tailrace.log.groups import group as groups
from tailrace.queue import Message, Queue, supervisor
from tailrace.queue.consumer import Consumer, QueueMember
from tailrace.queue.lanes import Entry
from tailrace.storage.calls import Write
from tests.log.driving import Driven, simulated_home
from tests.log.homes import raise_floors


def joined(queue: Queue, clock: Any, **settings: Any) -> Consumer:
    """A consumer of the queue, of which the test makes the rounds."""
    member = QueueMember(queue._group(), new_number(random.Random(1).getrandbits), wall=clock.monotonic)
    queue.store.run(member.join("earliest"))
    log = queue.topic().log
    return Consumer(log, member, queue.settings, dead_log=lambda: log, wall=clock.monotonic, **settings)


def test_a_pause_leaves_no_offset_behind_that_has_no_record() -> None:
    """The queue is paused just before the first messages behind a gap are emitted: after `play` the shard goes on."""
    home, clock = simulated_home()
    queue = home.queue("q", shards=1)
    queue.push_many(range(5))
    raise_floors(queue.topic(), {0: 2})
    group, store = queue._group(), home.store
    consumer = joined(queue, clock)
    paused = False
    for _ in range(60):
        round = Driven(store, consumer.round())
        while not round.done:
            desk = consumer.desks.get(0)
            if not paused and desk is not None and desk.shard.writing and isinstance(round.call, Write):
                store.run(supervisor.set_paused(group, True, 0.0))
                paused = True
            round.step()
        assert round.error is None, round.error
        if consumer.desks.paused:
            store.run(supervisor.set_paused(group, False))
        clock.move(0.2)
        for entry in consumer.take(10, clock.monotonic()):
            consumer.ack(entry, entry.run)
    assert paused
    shard = store.run(groups.shards(group))[0]
    assert (shard["position"], shard["queue"]["purged"], shard["queue"]["acked"]) == (5, 2, 3)


def test_many_messages_of_a_key_that_waits_hold_up_no_other_key() -> None:
    home, clock = simulated_home()
    queue = home.queue("q", shards=1, backoff=600, max_backoff=600)
    queue.push_many([Message(n, "bad") for n in range(10)] + [Message(n, "good") for n in range(10)])
    consumer, done = joined(queue, clock, batch_size=3), list[int]()
    for _ in range(40):
        queue.store.run(consumer.round())
        clock.move(0.2)
        for entry in consumer.take(2, clock.monotonic()):
            if entry.key == b"bad":
                consumer.fail(entry, entry.run, "ValueError", now=clock.monotonic())
            else:
                done.append(entry.offset)
                consumer.ack(entry, entry.run)
    assert done == list(range(10, 20))


def test_a_message_that_failed_and_lost_its_consumer_is_given_up_for_both() -> None:
    home, clock = simulated_home()
    queue = home.queue("q", shards=1, attempts=3, backoff=0)
    queue.push("x")
    consumer = joined(queue, clock)
    for _ in range(2):
        entry = next_of(consumer, queue, clock)
        consumer.fail(entry, entry.run, "ValueError", now=clock.monotonic())
    next_of(consumer, queue, clock)
    entry = next_of(joined(queue, clock), queue, clock)
    assert entry.why_given_up == "it failed 2 times, and its consumer disappeared 1 times while it was handled"


def test_outcomes_since_the_last_round_are_stored_by_whoever_leaves() -> None:
    home, clock = simulated_home()
    queue = home.queue("q", shards=1)
    queue.push_many(range(5))
    consumer = joined(queue, clock)
    acked, failed, running = (next_of(consumer, queue, clock) for _ in range(3))
    assert consumer.ack(acked, acked.run)
    consumer.fail(failed, failed.run, "ValueError", now=clock.monotonic())
    queue.store.run(consumer.leave())
    assert not consumer.ack(running, running.run)
    now = queue.stats()
    assert (now.acked, now.errored, now.backlog, now.consumers) == (1, 1, 4, {})
    following = joined(queue, clock)
    tried = {entry.offset: entry.tries for entry in (next_of(following, queue, clock) for _ in range(4))}
    assert tried == {1: 2, 2: 1, 3: 0, 4: 0}


def next_of(consumer: Consumer, queue: Queue, clock: Any) -> Entry:
    """The next message that the consumer hands out."""
    for _ in range(100):
        queue.store.run(consumer.round())
        clock.move(0.2)
        for entry in consumer.take(1, clock.monotonic()):
            return entry
    raise AssertionError("it hands out nothing")
