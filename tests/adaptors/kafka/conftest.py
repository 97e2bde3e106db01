"""Fixtures for Kafka: a broker for the run, topics of their own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tailrace.adaptors.kafka.source import consumption
from tests.adaptors.kafka.place import Place
from tests.conftest import started
from tests.servers import kafka as servers
from tests.servers.kafka import KafkaServer

_numbers = itertools.count()
USERS = {"reader": "right-password"}


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """Kafka 4.3, one broker.  It makes no topics by itself, keeps all records (those of tests may be years old), and
    looks often for transactions that take too long."""
    kept = {"log.retention.ms": -1, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with started("Kafka", lambda: servers.kafka(users=USERS, settings=kept)) as server:
        assert isinstance(server, KafkaServer)
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers that have nothing say so sooner."""
    monkeypatch.setattr(consumption, "BEAT_SECONDS", 0.3)


@pytest.fixture
def place(kafka: KafkaServer) -> Iterator[Place]:
    """Topics of a test: their names begin alike."""
    with Place(kafka.url, f"t{os.getpid()}-{next(_numbers)}.") as place:
        yield place
