"""Delayed messages: who finds them when they are due."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tailrace.coordination import guard
from tailrace.coordination.lease import HeldLease
from tailrace.errors import GaveUp
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.queue import Message, delayed
from tailrace.queue.delayed import Clock, delay
from tailrace.storage.calls import Write
from tailrace.storage.tables import Set, Update
from tests.log.driving import Driven, simulated_home


def test_a_message_that_was_due_in_an_outage_is_moved_with_the_next_look() -> None:
    """Not only with the next look at all of them, a minute later."""
    home, _ = simulated_home()
    queue, wall, run = home.queue("q", shards=1), [100.0], home.store.run
    topic, group = queue.topic(create=True), queue._group()
    run(groups.make(group, "earliest"))
    run(guard.attempt(Update(group.shard(0), (Set("owner", 1), Set("epoch", 1)))))
    held, clock = HeldLease(group.shard(0), 1, 1), Clock(topic.log, lambda: wall[0])
    run(clock.move_due(wall[0], held))
    message = {"id": "1", "key": None, "value": b"x", "attributes": 0, "pushed": 0}
    assert run(delay(topic.id, message, 101_000, random.Random(1)))
    for wall[0] in (102.0, 110.0):
        look = Driven(home.store, clock.move_due(wall[0], held)).until(Write)
        assert not look.done, "it does not try to move the message"
        assert isinstance(look.fail(GaveUp("no answer for a minute")).error, GaveUp)
    wall[0] = 118.0
    run(clock.move_due(wall[0], held))
    assert run(topic.log.head()).next == {0: 1}


def test_very_many_that_are_due_are_moved_in_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "AT_ONCE", 2)
    monkeypatch.setattr(delayed, "MOVES_A_ROUND", 2)
    home, _ = simulated_home()
    queue, wall, run = home.queue("q", shards=1), [100.0], home.store.run
    topic, group = queue.topic(create=True), queue._group()
    run(groups.make(group, "earliest"))
    run(guard.attempt(Update(group.shard(0), (Set("owner", 1), Set("epoch", 1)))))
    held, clock = HeldLease(group.shard(0), 1, 1), Clock(topic.log, lambda: wall[0])
    for n in range(9):
        message = {"id": str(n), "key": None, "value": b"%d" % n, "attributes": 0, "pushed": 0}
        assert run(delay(topic.id, message, 99_000 + 100 * n, random.Random(n)))
    moved = []
    for _ in range(3):
        run(clock.move_due(wall[0], held))
        moved.append(run(topic.log.head()).next.get(0, 0))
    assert moved == [4, 8, 9]
    assert clock.next_look > wall[0]
    assert [record.value for record in topic.records()] == [b"%d" % n for n in range(9)]


def test_more_messages_are_due_at_one_time_than_it_has_keys(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "RANDOM_BITS", 1)
    queue, got = home.queue("q", shards=1), list[Any]()
    due = datetime.now(UTC) + timedelta(seconds=1)
    pushed = queue.push_many([Message(n, not_before=due) for n in range(30)])
    assert all(one.delayed for one in pushed)
    assert queue.stats().delayed == 30
    with queue.tail(lambda envelope: got.append(envelope.message)):
        assert queue.drain(30)
    assert sorted(got) == list(range(30))
