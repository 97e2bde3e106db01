"""The reader: copies collections of a replica set in ranges of their ids, then follows them through a change stream.

Modules that need the driver are imported where they are used, so that an installation without it can still list and
describe this adaptor."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.mongodb.deployment import Deployment
from tailrace.adaptors.mongodb.settings import MongoSource
from tailrace.adaptors.mongodb.source import collections
from tailrace.adaptors.mongodb.source.position import Point
from tailrace.errors import BadSetting


class MongoReader(Reader):
    """Reads the collections of one database, or of all.  Namespaces are database.collection."""

    follows = True

    def __init__(self, settings: MongoSource) -> None:
        self._settings, self.follows = settings, settings.follow
        self._changes: Generator[Changes] | None = None
        self._planned: set[str] = set()
        """Collections for which pieces were planned: from then on the pipeline follows them."""

    @cached_property
    def _deployment(self) -> Deployment:
        return Deployment(self._settings.uri)

    def __repr__(self) -> str:
        return f"MongoReader({self._settings!r})"

    def check(self) -> None:
        """Check version and password; for following also that it is a replica set, and the right to follow it."""
        self._deployment.check_version()
        if not self.follows:
            collections.listing(self._deployment)
            return
        self._deployment.check_replicated()
        from tailrace.adaptors.mongodb.source.change_stream import ChangeStream

        stream = ChangeStream(self._deployment, Point(self._deployment.now()), images=False, rows=1)
        try:
            stream.open()
        finally:
            stream.close()

    def namespaces(self) -> list[Namespace]:
        """Return every collection, without views and time series."""
        return collections.listing(self._deployment)

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Return the newest moment of the oplog; None if nothing is followed.

        Nothing makes the server keep its oplog from there, except the oplog's own size."""
        if not self.follows:
            return None
        self._deployment.check_version()
        self._deployment.check_replicated()
        return Point(self._deployment.now(), self._deployment.identity() or "").stored()

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a collection into ranges of its ids; raise `NotThere` if it is gone."""
        collections.check_there(self._deployment, namespace)
        self._planned.add(namespace)
        after = self._deployment.now() if self.follows else None
        from tailrace.adaptors.mongodb.source import copy as copying

        return copying.pieces(self._deployment, namespace, rows, after)

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Return the documents of a range as rows; a batch without rows if the collection is gone."""
        deployment = self._deployment
        from tailrace.adaptors.mongodb.source import copy as copying

        return copying.read(deployment, self._settings, piece)

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Return the changes of these collections, and of collections that appear and are then copied."""
        if position is None:
            raise BadSetting(
                "the collections were copied without following (follow = false), so what has changed since is not "
                "known; give the pipeline another name, and it is copied afresh and followed"
            )
        deployment = self._deployment
        from tailrace.adaptors.mongodb.source.follower import Follower

        self._changes = Follower(deployment, self._settings, Point.read(position), namespaces, self._planned).changes()
        return self._changes

    def close(self) -> None:
        """Stop following, and close the connections."""
        if self._changes is not None:
            self._changes.close()
        if "_deployment" in self.__dict__:
            self._deployment.close()
