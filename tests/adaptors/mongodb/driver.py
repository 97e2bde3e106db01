"""A stand-in for the runner: copies and follows in one thread, and keeps what a sink would hold, byte by byte."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import bson
import pyarrow as pa

from tailrace.adaptors.contract import Changes, Piece
from tailrace.adaptors.mongodb.extended_json import from_text
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import NotThere
from tailrace.log.record import Op
from tests.adaptors.mongodb.place import Place

PATIENCE = 30.0
"""Seconds to wait for what must come."""


class Drive:
    """A pipeline from one database into memory: `held` has the documents of each namespace by their id."""

    def __init__(
        self, source: Place, collections: Sequence[str], wanted: Callable[[str], bool] | None = None, **settings: Any
    ) -> None:
        self._source, self._settings = source, settings
        self.namespaces = [source.namespace(name) for name in collections]
        self._wanted = wanted or (lambda name: name.startswith(f"{source.name}."))
        self.position: Any = None
        self.held: dict[str, dict[str, bytes | None]] = {}
        self.messages: list[Message] = []
        self.said: list[tuple[str, list[str]]] = []
        """What was told of whole namespaces: appeared, altered, ended, commands."""
        self.reader = source.reader(**settings)
        self._changes: Iterator[Changes] | None = None

    def begin(self) -> None:
        """Fix the position."""
        self.position = self._kept(self.reader.begin(self.namespaces))

    def copy(self, namespaces: Sequence[str] | None = None, rows: int = 100) -> list[str]:
        """Copy, each piece by a reader of its own; which of them were there."""
        there = []
        for name in self.namespaces if namespaces is None else namespaces:
            with contextlib.suppress(NotThere):
                pieces = self.reader.pieces(name, rows)
                there.append(name)
                for piece in pieces:
                    self.copy_piece(piece)
        return there

    def copy_piece(self, piece: Piece) -> None:
        """Copy one."""
        sent = Piece(piece.namespace, self._kept(piece.bounds), piece.rows)
        with contextlib.closing(self._source.reader(**self._settings)) as task:
            for batch in task.copy(sent):
                self._take(batch)

    def step(self) -> Changes:
        """The next changes, after what they say must be copied."""
        if self._changes is None:
            self._changes = self.reader.follow(self.position, self.namespaces)
        changes = next(self._changes)
        for name, some in (("appeared", changes.appeared), ("altered", changes.altered), ("ended", changes.ended)):
            if some:
                self.said.append((name, list(some)))
        listed = {found.name for found in self.reader.namespaces()} if changes.appeared else set()
        new = [name for name in changes.appeared if self._wanted(name) and name in listed]
        self.namespaces += [name for name in self.copy(new) if name not in self.namespaces]
        self.copy(list(changes.altered))
        for batch in changes.rows:
            self._take(batch)
        self.position = self._kept(changes.position)
        return changes

    def until(self, enough: Callable[[], bool]) -> None:
        """Go on until it is enough."""
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline, f"not there after {PATIENCE} s: {self.said}, {self.position}"
            self.step()

    def catch_up(self) -> None:
        """Follow to where the oplog is now."""
        self.stop()
        deadline, before = time.monotonic() + PATIENCE, self.position
        while not (changes := self.step()).caught_up:
            assert changes.rows or self.position != before, "a run that only catches up would end here"
            before = self.position
            assert time.monotonic() < deadline, f"not there after {PATIENCE} s: {self.position}"

    def stop(self) -> None:
        """Give up the reader, as a crash does; the position stays."""
        self.reader.close()
        self._changes = None
        self.reader = self._source.reader(**self._settings)

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def documents(self, collection: str) -> list[bytes]:
        """What is held of a collection, sorted."""
        return sorted(d for d in self.held.get(self._source.namespace(collection), {}).values() if d is not None)

    def _take(self, batch: pa.RecordBatch) -> None:
        for message in messages_of(batch):
            held = self.held.setdefault(message.namespace, {})
            if message.op == Op.COMMAND:
                self.said.append((message.data["command"], [message.namespace]))
                held.clear()
                continue
            self.messages.append(message)
            if message.op == Op.DELETE:
                held.pop(message.id, None)
            else:
                text = message.data.get("document")
                held[message.id] = None if text is None else bson.encode(from_text(text))

    @staticmethod
    def _kept(value: Any) -> Any:
        return json.loads(json.dumps(value))


def assert_same(drive: Drive, source: Place, collection: str) -> None:
    """What is held is what the source has, byte by byte."""
    assert drive.documents(collection) == sorted(source.raw(collection))
