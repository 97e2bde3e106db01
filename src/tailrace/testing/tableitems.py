"""Items that the parts of `TableContract` work on: fixtures for keys and for a stored item."""

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
    """Fixtures with keys that only one test uses; the subclass gives the fixture `table`."""

    @pytest.fixture
    def p(self) -> str:
        """Return a hash key that no other test uses."""
        return f"contract-{uuid.uuid4().hex}"

    @pytest.fixture
    def key(self, table: Table, p: str) -> Key:
        """Store an item with every kind of value, `STORED`, and return its key."""
        table.write(Put(Key(p, 1), STORED, (Absent(),)))
        return Key(p, 1)
