"""Homes for the tests of the log, and waiting for what happens in the background."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.coordination.guard import settle
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.record import Record
from tailrace.log.topic import Topic
from tailrace.storage.calls import Store
from tailrace.storage.tables import Set, Update
from tailrace.testing import SimulatedObjects
from tests.servers.aws import table

HERE = ["memory", "disk"]
EVERYWHERE = [*HERE, pytest.param("dynoxide", marks=pytest.mark.server)]


@contextmanager
def opened(request: pytest.FixtureRequest, folder: Path) -> Iterator[Home]:
    """The home that a fixture's parameter names."""
    if request.param == "dynoxide":
        with table(request.getfixturevalue("dynoxide")) as on_server:
            yield Home("s3://simulated", Store(on_server, SimulatedObjects()))
    else:
        with tailrace.open("memory://" if request.param == "memory" else folder / "home") as home:
            yield home


def homes(places: list[Any]) -> Any:
    """A fixture `home`: one at each of these places."""

    @pytest.fixture(params=places)
    def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
        with opened(request, tmp_path) as home:
            yield home

    return home


def orders(partitions: int) -> Any:
    """A fixture `topic` in such a home."""

    @pytest.fixture
    def topic(home: Home) -> Topic:
        return home.topic("orders", partitions=partitions)

    return topic


def fill(topic: Topic, count: int, first: int = 0) -> None:
    """Records numbered from `first`, dealt out to the partitions in turn."""
    with topic.transaction() as t:
        for n in range(first, first + count):
            t.send(b"%d" % n, b"%d" % n, partition=n % topic.partitions)


def group_of(topic: Topic, name: str = "billing") -> Group:
    """A consumer group of a topic."""
    return Group(name, topic.log, topic.partitions)


def positions(topic: Topic, name: str = "billing") -> dict[int, int]:
    """How far a group has committed."""
    shards = topic.store.run(groups.shards(group_of(topic, name)))
    return {q: item["position"] for q, item in shards.items()}


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def raise_floors(topic: Topic, floors: dict[int, int]) -> None:
    """What retention does first."""
    key = heads.head_key(topic.id)
    changes = tuple(Set(("floor", str(q)), floor) for q, floor in floors.items())
    done = {str(q): floor for q, floor in floors.items()}.items()
    topic.store.run(settle(key, lambda item: None if done <= item["floor"].items() else (Update(key, changes),)))


class Worker:
    """A consumer in a thread of its own."""

    def __init__(self, topic: Topic, handle: Callable[[Record], object] = lambda record: None, **settings: Any) -> None:
        self.consumer = topic.consumer("billing", **{"ttl": 0.5, "commit_interval": 0.05, **settings})
        self.handled: list[Record] = []
        self.handle = handle
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Handle records until it is stopped."""
        with self.consumer as consumer:
            for record in consumer:
                self.handle(record)
                self.handled.append(record)

    def stop(self) -> None:
        """Close the consumer, and wait for its loop to end."""
        self.consumer.close()
        self.thread.join()


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run a test's coroutine; no task may be left behind."""

    async def whole() -> Any:
        result = await main()
        await asyncio.sleep(0.02)
        left = [t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        assert not left, left
        return result

    return asyncio.run(whole())
