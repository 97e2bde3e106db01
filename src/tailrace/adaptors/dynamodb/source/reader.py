"""The reader: tables of DynamoDB, copied in segments of a scan and then followed by their streams."""

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
        """Tables whose place in their stream is stored."""
        self._planned: dict[str, StreamPosition] = {}
        """Tables that were to be copied, and so are the pipeline's, and where their streams were then; nothing if that
        is stored already, or if they have no stream yet."""
        self._progress = ShardProgress()

    @cached_property
    def _service(self) -> DynamoService:
        return DynamoService(*self._settings.place)

    def __repr__(self) -> str:
        return f"DynamoReader({self._settings!r})"

    def check(self) -> None:
        """Region, endpoint and credentials."""
        self._service.tables()

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """A stream for each table, with what a change leaves behind."""
        for name in namespaces if self.follows else ():
            tables.check_followed(self._service.describe(name))

    def namespaces(self) -> list[Namespace]:
        """Every table."""
        return tables.listing(self._service)

    def begin(self, namespaces: Sequence[str]) -> Position:
        """The end of each table's stream, which keeps what comes after it for 24 hours."""
        if not self.follows:
            return None
        found = [self._service.describe(name) for name in namespaces]
        for one in found:
            tables.check_followed(one)
        return positions(self._service, found)

    def begun(self, position: Position) -> None:
        """These tables have a place in their stream; others get one before they are copied."""
        self._begun = set(position or ())

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Segments.  A table that nothing was noted of has its place in its stream noted now; one that has no stream is
        left out, with a warning, until it has."""
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
        """The items of a segment."""
        return copying.read(self._service, self._settings, piece)

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """The changes of these tables, and of tables that appear."""
        if position is None:
            raise BadSetting(
                "the tables were copied without following (follow = false), so nobody knows what has changed since; "
                "give the pipeline another name, and it is copied afresh and followed"
            )
        self._changes = self._follower(position, namespaces).changes()
        return self._changes

    def follow_ahead(self, position: Position) -> Iterator[Changes]:
        """The changes of tables that are being copied: a scan may take longer than the 24 hours of a stream."""
        self._changes = self._follower(position, ()).ahead()
        return self._changes

    def _follower(self, position: Position, namespaces: Sequence[str]) -> Follower:
        return Follower(self._service, self._settings, position, namespaces, self._planned, self._progress)

    def health(self) -> str:
        """How long ago each shard last answered."""
        return self._progress.shown()

    def close(self) -> None:
        """Stop following, and give up connections."""
        if self._changes is not None:
            self._changes.close()
        if "_service" in self.__dict__:
            self._service.close()
