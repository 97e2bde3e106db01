"""Homes for the tests of the log, and waiting for what happens in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tailrace
from tailrace.home import Home
from tailrace.log import group as groups
from tailrace.log.group import Group
from tailrace.log.topic import Topic
from tailrace.storage.calls import Store
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
