"""The reader against a real replica set: the contract of all readers, and what is MongoDB's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.adaptors.mongodb.source.reader import MongoReader
from tailrace.testing.readercontract import Document, ReaderContract
from tests.adaptors.mongodb.place import Place

pytestmark = pytest.mark.server


class MongoCollection:
    """A collection that keeps pre-images, so that a delete says all of a document."""

    def __init__(self, place: Place) -> None:
        self._place, self.namespace = place, place.namespace("documents")
        place.keep_images("documents")

    def reader(self) -> MongoReader:
        return self._place.reader(shape="columns")

    def add(self, documents: Sequence[Document]) -> None:
        self._place["documents"].insert_many([{"_id": d["id"], **d} for d in documents])

    def change(self, documents: Sequence[Document]) -> None:
        for document in documents:
            self._place["documents"].update_one({"_id": document["id"]}, {"$set": {"text": document["text"]}})

    def remove(self, ids: Sequence[int]) -> None:
        for number in ids:
            self._place["documents"].delete_one({"_id": number})


class TestMongoReader(ReaderContract):
    @pytest.fixture
    def source(self, place: Place) -> Any:
        return MongoCollection(place)
