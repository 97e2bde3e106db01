"""The reader passes the contract, and takes what a topic has as the settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.adaptors.kafka.source.reader import KafkaReader
from tailrace.testing import ReaderContract
from tests.adaptors.kafka.place import Place

Document = dict[str, Any]


class Orders:
    """A topic of documents, each under its id; each partition has a receiver, so that there is an order within it."""

    namespace = "orders"

    def __init__(self, place: Place) -> None:
        self._place = place
        place.make("orders", 2)

    def reader(self) -> KafkaReader:
        """A new reader of it."""
        return self._place.reader(start="latest", receivers=2)

    def add(self, documents: Sequence[Document]) -> None:
        """Append documents."""
        self._place.send("orders", [({"id": one["id"]}, one) for one in documents])

    change = add

    def remove(self, ids: Sequence[int]) -> None:
        """Append tombstones."""
        self._place.send("orders", [({"id": id}, None) for id in ids])


class TestReader(ReaderContract):
    @pytest.fixture
    def source(self, place: Place) -> Orders:
        return Orders(place)
