"""The reader: copies tables of DynamoDB in the segments of a scan, then follows them through their streams."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.dynamodb.service import DynamoService
from tailrace.adaptors.dynamodb.settings import DynamoSource
from tailrace.adaptors.dynamodb.source import copy as copying
from tailrace.adaptors.dynamodb.source import tables
from tailrace.adaptors.dynamodb.source.follower import Follower, positions
from tailrace.adaptors.dynamodb.source.position import StreamPosition
from tailrace.adaptors.dynamodb.source.progress import ShardProgress
from tailrace.adaptors.dynamodb.source.table_stream import first_position
from tailrace.errors import BadSetting, NotThere

_log = logging.getLogger("tailrace")


class DynamoReader(Reader):
    """Reads the tables of one region.  A namespace is a table's name."""

    follows = True
    reads_ahead: ClassVar[bool] = True

    def __init__(self, settings: DynamoSource) -> None:
        self._settings, self.follows = settings, settings.follow
        self._changes: Generator[Changes] | None = None
        self._begun: set[str] = set()
        """Tables whose position in their stream the pipeline has stored."""
        self._planned: dict[str, StreamPosition] = {}
        """Tables for which pieces were planned, with the end of their streams at that time.

        The position is empty if the pipeline has stored one already, or if the table has no stream yet."""
        self._progress = ShardProgress()

    @cached_property
    def _service(self) -> DynamoService:
        return DynamoService(*self._settings.place)

    def __repr__(self) -> str:
        return f"DynamoReader({self._settings!r})"

    def check(self) -> None:
        """Check region, endpoint and credentials by listing the tables."""
        self._service.tables()

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise `NotReady` if a table is to be followed and has no stream that carries items after their change."""
        for name in namespaces if self.follows else ():
            tables.check_followed(self._service.describe(name))

    def namespaces(self) -> list[Namespace]:
        """Return every table of the region, except the default table of sinks' state."""
        return tables.listing(self._service)

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Return the end of each table's stream, which keeps later changes for 24 hours; None without following."""
        if not self.follows:
            return None
        found = [self._service.describe(name) for name in namespaces]
        for one in found:
            tables.check_followed(one)
        return positions(self._service, found)

    def begun(self, position: Position) -> None:
        """Remember which tables have a stored position; `pieces` notes one for each other table before its copy."""
        self._begun = set(position or ())

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a table into segments, and note the end of its stream unless the pipeline has stored a position of it.

        For a table that must be followed and lacks a usable stream, log a warning once and raise `NotThere`."""
        table = self._service.wait_active(namespace)
        place: StreamPosition = {}
        if self.follows and namespace not in self._begun:
            if told := tables.lacking(table):
                if namespace not in self._planned:
                    _log.warning("%s; it is neither copied nor followed until then", told)
                self._planned.setdefault(namespace, place)
                raise NotThere(told)
            place = first_position(self._service, table)
        self._planned[namespace] = place
        return copying.pieces(self._service, table, rows)

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Return the items of a segment as rows."""
        return copying.read(self._service, self._settings, piece)

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Return the changes of these tables, and of tables that appear and are then copied."""
        if position is None:
            raise BadSetting(
                "the tables were copied without following (follow = false), so nobody knows what has changed since; "
                "give the pipeline another name, and it is copied afresh and followed"
            )
        self._changes = self._follower(position, namespaces).changes()
        return self._changes

    def follow_ahead(self, position: Position) -> Iterator[Changes]:
        """Return the changes of tables while they are copied: a scan may take longer than a stream's 24 hours."""
        self._changes = self._follower(position, ()).ahead()
        return self._changes

    def _follower(self, position: Position, namespaces: Sequence[str]) -> Follower:
        return Follower(self._service, self._settings, position, namespaces, self._planned, self._progress)

    def health(self) -> str:
        """Return a text that says how long ago the shards last answered."""
        return self._progress.shown()

    def close(self) -> None:
        """Stop following, and close the connections."""
        if self._changes is not None:
            self._changes.close()
        if "_service" in self.__dict__:
            self._service.close()
