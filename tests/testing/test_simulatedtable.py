"""The simulated table keeps the contract, with its faults counted and its limits exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.storage.tables import Table
from tailrace.testing import SimulatedTable
from tailrace.testing.tablecontract import TableContract


class TestSimulatedTable(TableContract):
    @pytest.fixture
    def table(self) -> Iterator[Table]:
        yield SimulatedTable()


class TestSimulatedTableThatAnswersLikeDynamoDB(TableContract):
    @pytest.fixture
    def table(self) -> Iterator[Table]:
        yield SimulatedTable(answers=False)
