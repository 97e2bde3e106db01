"""A database of a test: documents by hand, and readers and writers of it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pymongo
from bson.raw_bson import RawBSONDocument

from tailrace.adaptors.mongodb.settings import MongoSink, MongoSource
from tailrace.adaptors.mongodb.sink.writer import MongoWriter
from tailrace.adaptors.mongodb.source.reader import MongoReader
from tests.servers.mongodb import Mongo


class Place:
    """One database, with a client of the test's own."""

    def __init__(self, server: Mongo, name: str) -> None:
        self.server, self.name, self.uri = server, name, server.uri(name)
        self.client: pymongo.MongoClient[dict[str, Any]] = server.client()
        self.database = self.client[name]

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()

    def __getitem__(self, collection: str) -> pymongo.collection.Collection[dict[str, Any]]:
        return self.database[collection]

    def namespace(self, collection: str) -> str:
        """What a pipeline calls a collection."""
        return f"{self.name}.{collection}"

    def raw(self, collection: str) -> list[bytes]:
        """A collection byte by byte, in the order of its ids: what two collections are compared by."""
        options = self.database.codec_options.with_options(document_class=RawBSONDocument)
        found = self.database.get_collection(collection, codec_options=options).find().sort("_id")
        return [bytes(document.raw) for document in found]

    def keep_images(self, collection: str) -> None:
        """Make a collection that keeps what its documents were before a change."""
        self.database.create_collection(collection, changeStreamPreAndPostImages={"enabled": True})

    def reader(self, **settings: Any) -> MongoReader:
        """A new reader of it."""
        return MongoReader(MongoSource(**{"uri": self.uri, **settings}))

    def writer(self, **settings: Any) -> MongoWriter:
        """A new writer to it, with its state in a database of its own."""
        return MongoWriter(MongoSink(**{"uri": self.uri, "state": f"state_{self.name}", **settings}))
