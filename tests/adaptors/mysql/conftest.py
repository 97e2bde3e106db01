"""Fixtures for MySQL and MariaDB: a server of each for the run, a database of its own for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import pymysql
import pytest

from tests.adaptors.mysql.place import Place
from tests.conftest import started
from tests.servers import mariadb as mariadbs
from tests.servers import mysql as mysqls
from tests.servers.mysql import FAST, MySQL

_numbers = itertools.count()


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """MySQL 8.0."""
    with started("MySQL 8.0", lambda: mysqls.mysql(settings=FAST)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MySQL]:
    """MariaDB."""
    with started("MariaDB", lambda: mariadbs.mariadb(settings=FAST)) as server:
        yield server


@pytest.fixture(params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> MySQL:
    """Either."""
    found: MySQL = request.getfixturevalue(request.param)
    return found


def fresh(server: MySQL, kind: str) -> Iterator[Place]:
    """A new database."""
    name = f"{kind}_{os.getpid()}_{next(_numbers)}"
    with Place(server, "") as admin:
        admin.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        with Place(server, name) as place:
            yield place
        for (number,) in admin.ask(f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"):
            with contextlib.suppress(
                pymysql.Error
            ):  # of a test that failed: its open transaction would keep the tables
                admin.run(f"KILL {number}")
        admin.run(f"DROP DATABASE {name}", f"DROP DATABASE IF EXISTS {name}_state")


@pytest.fixture
def source(server: MySQL) -> Iterator[Place]:
    """An empty database to read."""
    yield from fresh(server, "source")


@pytest.fixture
def sink(server: MySQL) -> Iterator[Place]:
    """An empty database to write."""
    yield from fresh(server, "sink")
