"""The reader against real servers: the contract of all readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.adaptors.dynamodb.source.reader import DynamoReader
from tailrace.testing.readercontract import Document, ReaderContract
from tests.adaptors.dynamodb.place import Place

pytestmark = pytest.mark.server


class DynamoSourceTable:
    """A table that a contract test reads."""

    def __init__(self, place: Place) -> None:
        self._place, self.namespace = place, place.table("documents")

    def reader(self) -> DynamoReader:
        return self._place.reader(shape="columns")

    def add(self, documents: Sequence[Document]) -> None:
        self._place.put(self.namespace, *documents)

    change = add

    def remove(self, ids: Sequence[int]) -> None:
        for number in ids:
            self._place.delete(self.namespace, id=number)


class TestDynamoReader(ReaderContract):
    @pytest.fixture
    def source(self, place: Place) -> Any:
        return DynamoSourceTable(place)
