"""A store of every kind that events can live in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.storage.calls import Store
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable
from tests.servers.aws import client, new_table

SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("dynoxide", "moto")]


@pytest.fixture(params=["simulated", "sqlite", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store; pauses take no time where nothing else is waited for."""
    if request.param == "simulated":
        clock = ManualClock()
        yield Store(SimulatedTable(answers=False), SimulatedObjects(), clock.monotonic, clock.move)
    elif request.param == "sqlite":
        table = SqliteTable(SqliteDatabase(tmp_path / "tailrace.db", durable=False))
        yield Store(table, SimulatedObjects())
        table.close()
    else:
        from tailrace.storage.aws.dynamodb import DynamoTable

        server = request.getfixturevalue(request.param)
        with client(server) as made:
            yield Store(DynamoTable(made, new_table(server)), SimulatedObjects())


@pytest.fixture
def memory() -> Store:
    """A store in memory."""
    clock = ManualClock()
    return Store(SimulatedTable(answers=False), SimulatedObjects(), clock.monotonic, clock.move)
