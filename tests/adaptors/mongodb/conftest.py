"""Fixtures for MongoDB: a server for the run, a database of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.adaptors.mongodb.place import Place
from tests.conftest import started
from tests.servers import mongodb as servers
from tests.servers.mongodb import Mongo

_numbers = itertools.count()


@pytest.fixture(scope="session")
def mongo() -> Iterator[Mongo]:
    """MongoDB 6.0.5, a replica set."""
    with started("MongoDB", servers.mongod) as server:
        yield server


@pytest.fixture(scope="session")
def newer_mongo() -> Iterator[Mongo]:
    """MongoDB 6.0.27, a replica set, which splits events over 16 MB."""
    with started("MongoDB 6.0.27", lambda: servers.mongod(servers.NEW)) as server:
        yield server


def fresh(server: Mongo, kind: str) -> Iterator[Place]:
    """A new database."""
    with Place(server, f"{kind}_{os.getpid()}_{next(_numbers)}") as place:
        yield place
        place.client.drop_database(place.name)
        place.client.drop_database(f"state_{place.name}")


@pytest.fixture
def place(mongo: Mongo) -> Iterator[Place]:
    """An empty database to read."""
    yield from fresh(mongo, "source")


@pytest.fixture
def sink_place(mongo: Mongo) -> Iterator[Place]:
    """An empty database to write."""
    yield from fresh(mongo, "sink")
