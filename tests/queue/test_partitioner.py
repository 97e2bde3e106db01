"""Queues on topics that place keys as Kafka does: every way into a queue finds the same shard for a key."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.home import Home
from tailrace.queue import Message
from tests.log.partitioning import kafka_by_default, kafka_partition, keys_in_place
from tests.queue.conftest import until

KEYS = [f"customer-{n}" for n in range(30)]


@pytest.fixture(autouse=True)
def _kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka_by_default(monkeypatch)


def test_pushes_and_dead_letters_that_are_put_back(home: Home) -> None:
    queue = home.queue("q", shards=5, attempts=1, backoff=0.01)
    pushed = [queue.push(b"bad", key) for key in KEYS]
    pushed += queue.push_many([Message(b"many", key) for key in KEYS])
    with home.transaction() as t:
        for key in KEYS:
            t.push("q", b"together", key)
    assert [one.shard for one in pushed] == 2 * [kafka_partition(key.encode(), 5) for key in KEYS]

    def handler(envelope: Any) -> None:
        if envelope.message == b"bad":
            raise ValueError("not this one")

    with queue.tail(handler):
        assert queue.drain(60)
    assert queue.requeue() == len(KEYS)
    assert keys_in_place(queue.topic()) == 4 * len(KEYS)


def test_messages_that_were_delayed(home: Home) -> None:
    queue = home.queue("q", shards=5)
    assert all(queue.push(b"later", key, not_before=0.05).delayed for key in KEYS)
    with queue.tail(lambda envelope: None):
        until(lambda: keys_in_place(queue.topic()) == len(KEYS))
