"""Fixtures for RabbitMQ: a broker for the run, queues of their own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tailrace.adaptors.rabbitmq.source import queue_follower, stream_follower
from tests.adaptors.rabbitmq.place import Place
from tests.conftest import started
from tests.servers import rabbitmq as servers
from tests.servers.rabbitmq import RabbitServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitServer]:
    """RabbitMQ with streams."""
    with started("RabbitMQ", lambda: servers.rabbitmq(streams=True)) as server:
        assert isinstance(server, RabbitServer)
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers that have nothing say so sooner."""
    for module in (queue_follower, stream_follower):
        monkeypatch.setattr(module, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(queue_follower, "LOOK_SECONDS", 0.2)


@pytest.fixture
def place(rabbitmq: RabbitServer) -> Iterator[Place]:
    """Queues of a test: their names begin alike."""
    with Place(rabbitmq.uri(), rabbitmq.streams, f"t{os.getpid()}-{next(_numbers)}.") as place:
        yield place
