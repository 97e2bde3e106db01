"""The items that the parts of `TableContract` work on."""

from __future__ import annotations

import uuid

import pytest

from tailrace.storage.tables import (
    Absent,
    Key,
    Put,
    Table,
)
from tailrace.testing.tablecases import (
    STORED,
)


class TableItems:
    """Keys of each test's own; the subclass gives the fixture `table`."""

    @pytest.fixture
    def p(self) -> str:
        """A hash key that no other test uses."""
        return f"contract-{uuid.uuid4().hex}"

    @pytest.fixture
    def key(self, table: Table, p: str) -> Key:
        """The key of an item with every kind of value, `STORED`."""
        table.write(Put(Key(p, 1), STORED, (Absent(),)))
        return Key(p, 1)
