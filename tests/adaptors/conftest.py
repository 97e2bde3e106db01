"""The sink that tests of all adaptors share: one PostgreSQL for the run, a database of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import psycopg
import pytest

from tests.adaptors.postgres.place import Place as Tables
from tests.conftest import started
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def warehouse_server() -> Iterator[Postgres]:
    """PostgreSQL."""
    with started("PostgreSQL", lambda: servers.postgres(settings={"fsync": "off"})) as server:
        yield server


@pytest.fixture
def warehouse(warehouse_server: Postgres) -> Iterator[Tables]:
    """An empty database to write."""
    name = f"warehouse_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(warehouse_server.uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        with Tables(warehouse_server, name) as tables:
            yield tables
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
