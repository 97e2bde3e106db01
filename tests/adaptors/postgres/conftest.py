"""Fixtures for PostgreSQL: a server of each version for the run, a database of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import psycopg
import pytest

from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

_numbers = itertools.count()
FAST = {"fsync": "off"}
"""The tests kill processes, never the machine."""


@pytest.fixture(scope="session")
def postgres18() -> Iterator[Postgres]:
    """PostgreSQL 18."""
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres15() -> Iterator[Postgres]:
    """PostgreSQL 15."""
    with started("PostgreSQL 15", lambda: servers.postgres(servers.debian(), settings=FAST)) as server:
        yield server


@pytest.fixture(params=["18", "15"])
def server(request: pytest.FixtureRequest) -> Postgres:
    """Either version."""
    found: Postgres = request.getfixturevalue(f"postgres{request.param}")
    return found


def fresh(server: Postgres, kind: str) -> Iterator[Place]:
    """A new database, which goes with all its slots."""
    name = f"{kind}_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        with Place(server, name) as place:
            yield place
        place.drop_slots(admin)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def source(server: Postgres) -> Iterator[Place]:
    """An empty database to read."""
    yield from fresh(server, "source")


@pytest.fixture
def sink(server: Postgres) -> Iterator[Place]:
    """An empty database to write."""
    yield from fresh(server, "sink")


@pytest.fixture
def source18(postgres18: Postgres) -> Iterator[Place]:
    """An empty database to read, where one version is enough."""
    yield from fresh(postgres18, "source")


@pytest.fixture
def sink18(postgres18: Postgres) -> Iterator[Place]:
    """An empty database to write, where one version is enough."""
    yield from fresh(postgres18, "sink")
