"""The reader passes the contract, with a queue, a stream and a super stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.adaptors.rabbitmq.source.reader import RabbitReader
from tailrace.testing import ReaderContract
from tests.adaptors.rabbitmq.place import Place

Document = dict[str, Any]


class Orders:
    """A queue or a stream of documents, each under its id."""

    def __init__(self, place: Place, kind: str) -> None:
        self._place, self._kind = place, kind
        self.namespace = place.make("orders", **({"x_queue_type": "stream"} if kind == "streams" else {}))

    def reader(self) -> RabbitReader:
        """A new reader of it."""
        return self._place.reader(key="header:key", start="latest", **{self._kind: ["orders"]})

    def add(self, documents: Sequence[Document]) -> None:
        """Publish documents."""
        self._place.send("orders", documents, headers=_headers)

    change = add

    def remove(self, ids: Sequence[int]) -> None:
        """Publish messages without a body."""
        for id in ids:
            self._place.send("orders", [b""], headers={"key": f'{{"id":{id}}}'})


def _headers(document: Document) -> dict[str, str]:
    return {"key": f'{{"id":{document["id"]}}}'}


class TestQueue(ReaderContract):
    @pytest.fixture
    def source(self, place: Place) -> Orders:
        return Orders(place, "queues")


class TestStream(ReaderContract):
    @pytest.fixture
    def source(self, place: Place) -> Orders:
        return Orders(place, "streams")
