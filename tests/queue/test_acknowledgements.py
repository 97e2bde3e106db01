"""Acknowledgements: what a refused write of a window leaves to the next one."""

from __future__ import annotations

import random

from tailrace.coordination.lease import new_number
from tailrace.log.groups import group as groups
from tailrace.queue import supervisor
from tailrace.queue.consumer import Consumer, QueueMember
from tailrace.queue.settings import Settings
from tailrace.storage.calls import Write
from tests.log.driving import Driven, simulated_home
from tests.log.homes import raise_floors


def test_a_pause_leaves_no_offset_behind_that_has_no_record() -> None:
    """The queue is paused just before the first messages behind a gap are emitted: after `play` the shard goes on."""
    home, clock = simulated_home()
    queue = home.queue("q", shards=1)
    queue.push_many(range(5))
    raise_floors(queue.topic(), {0: 2})
    group, store = queue._group(), home.store
    member = QueueMember(group, new_number(random.Random(1).getrandbits), wall=clock.monotonic)
    store.run(member.join("earliest"))
    consumer = Consumer(queue.topic().log, member, Settings(), dead_log=lambda: queue.topic().log, wall=clock.monotonic)
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
