"""A stand-in for the runner: copies and follows in one thread, and hands the rows to a sink in shares as tasks do."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Piece, Reader, Who, Writer
from tailrace.errors import NotThere, Unavailable
from tailrace.log.record import partition_of

SHARES = 3
WHO = Who("drive", "sink", 1)


class Place(Protocol):
    """A database of a test."""

    def reader(self, **settings: Any) -> Reader:
        """A new reader of it."""

    def writer(self, **settings: Any) -> Writer:
        """A new writer to it."""


def shares(batches: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Rows by the partition of their key, in order within each; the first share also has the batches without rows."""
    out: list[list[pa.RecordBatch]] = [[] for _ in range(SHARES)]
    for batch in batches:
        if not batch.num_rows:
            out[0].append(batch)
        homes = pa.array([partition_of(key, SHARES) for key in batch.column("key").to_pylist()], pa.int8())
        for n, share in enumerate(out):
            part = batch.filter(pa.compute.equal(homes, n))
            if part.num_rows:
                share.append(part)
    return out


class SourceDrive(ABC):
    """A pipeline of some namespaces of a source; a subclass says when it has caught up, and keeps what it reads."""

    def __init__(
        self,
        source: Place,
        sink: Place | None,
        namespaces: Sequence[str],
        reading: dict[str, Any],
        writing: dict[str, Any],
    ) -> None:
        self._place, self._sink, self.namespaces = source, sink, list(namespaces)
        self._reading, self._writing = reading, writing
        self.position: Any = None
        self.appeared: list[str] = []
        self.altered: list[str] = []
        self.ended: list[str] = []
        self._count = 0
        self._reader = source.reader(**reading)
        self._changes: Iterator[Changes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the reader."""
        self._reader.close()

    # -- copy
    def begin(self) -> None:
        """Fix the position."""
        self.position = self._kept(self._reader.begin(self.namespaces))

    def copy(self, namespaces: Sequence[str] | None = None, rows: int = 100) -> list[str]:
        """Copy, each piece by a reader of its own; which of them were there."""
        there = []
        for name in self.namespaces if namespaces is None else namespaces:
            try:
                pieces = self._reader.pieces(name, rows)
            except NotThere:
                continue
            there.append(name)
            for piece in pieces:
                self.copy_piece(piece)
        return there

    def copy_piece(self, piece: Piece, tries: int = 5) -> None:
        """Copy one, again if something was in the way."""
        with contextlib.closing(self._place.reader(**self._reading)) as task:
            try:
                batches = list(task.copy(piece))
            except Unavailable:
                if tries == 1:
                    raise
                return self.copy_piece(piece, tries - 1)
        self._write(batches)
        return None

    # -- sync
    def step(self) -> Changes:
        """The next changes, written and acknowledged, after what they say must be copied."""
        if self._changes is None:
            self._changes = self._reader.follow(self.position, self.namespaces)
        changes = next(self._changes)
        if changes.appeared:
            self.appeared += changes.appeared
            new = [name for name in changes.appeared if name not in self.namespaces]
            self.namespaces += self.copy(new) or []  # tests put another `copy` here, which may give none
        if changes.altered:
            self.altered += changes.altered
            self.copy(changes.altered)
        self._write(changes.rows)
        self.ended += changes.ended
        self.position = self._kept(changes.position)
        self._reader.acknowledge(self.position)
        return changes

    def stop(self) -> None:
        """Give up the reader, as a crash does; the position stays."""
        self._reader.close()
        self._changes = None
        self._reader = self._place.reader(**self._reading)

    def _kept(self, position: Any) -> Any:
        return json.loads(json.dumps(position))

    # -- writing
    @abstractmethod
    def _write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep batches, and write them if there is a sink."""

    def _finish(self, batches: Sequence[pa.RecordBatch]) -> None:
        if not batches or self._sink is None:
            return
        with contextlib.closing(self._sink.writer(**self._writing)) as writer:
            staged = [writer.stage(share) for share in shares(batches)]
            self._count += 1
            writer.finish(staged, WHO, {"0": self._count})
