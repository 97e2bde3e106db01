"""A stand-in for the runner: copies, follows and writes in one thread, but in shares as tasks have them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Piece, Who
from tailrace.adaptors.postgres.position import lsn_number
from tailrace.adaptors.rows import namespace_of, ops_of
from tailrace.errors import Unavailable
from tailrace.log.record import Op, partition_of
from tests.adaptors.postgres.place import Place

SHARES = 3


def shares(batches: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Rows by the partition of their key, in order within each."""
    out: list[list[pa.RecordBatch]] = [[] for _ in range(SHARES)]
    for batch in batches:
        homes = pa.array([partition_of(key, SHARES) for key in batch.column("key").to_pylist()], pa.int8())
        for n, share in enumerate(out):
            part = batch.filter(pa.compute.equal(homes, n))
            if part.num_rows:
                share.append(part)
    return out


class Drive:
    """A pipeline from one database to another, or, without a sink, to a list of batches."""

    def __init__(
        self, source: Place, sink: Place | None, namespaces: Sequence[str], *, reader: Any = None, writer: Any = None
    ) -> None:
        self._source, self._sink, self.namespaces = source, sink, list(namespaces)
        self._reading = {"discover": 0.2, **(reader or {})}
        self._writing = {"create": True, "alter": True, **(writer or {})}
        self.position: Any = None
        self.seen: list[pa.RecordBatch] = []
        self.appeared: list[str] = []
        self.altered: list[str] = []
        self._count = 0
        self._reader = source.reader(**self._reading)
        self._changes: Iterator[Changes] | None = None

    # -- copy
    def begin(self) -> None:
        """Fix the position."""
        self.position = self._kept(self._reader.begin(self.namespaces))

    def copy(self, namespaces: Sequence[str] | None = None, rows: int = 100) -> None:
        """Copy, each piece by a reader of its own."""
        for name in namespaces or self.namespaces:
            for piece in self._reader.pieces(name, rows):
                self.copy_piece(piece)

    def copy_piece(self, piece: Piece, tries: int = 5) -> None:
        """Copy one, again if something was in the way."""
        with contextlib.closing(self._source.reader(**self._reading)) as task:
            try:
                batches = list(task.copy(piece))
            except Unavailable:
                if tries == 1:
                    raise
                return self.copy_piece(piece, tries - 1)
        self._write(batches)
        return None

    # -- sync
    def follow(self, *, until: str | None = None, seconds: float = 60) -> None:
        """Follow to where the source's log is now, or to a place in it."""
        if until is None:
            ((until,),) = self._source.ask("SELECT pg_current_wal_flush_lsn()::text")
        end, deadline = lsn_number(until), time.monotonic() + seconds
        while lsn_number(self.position["lsn"]) < end or self._unsettled():
            assert time.monotonic() < deadline, f"not there after {seconds} s: {self.position}, {until}"
            self.step()

    def catch_up(self, *, seconds: float = 60) -> None:
        """As a run with --once does, anew."""
        self.stop()
        deadline = time.monotonic() + seconds
        while True:
            before = self.position
            changes = self.step()
            if changes.caught_up:
                return
            assert changes.rows or self.position != before, "a run would end here"
            assert time.monotonic() < deadline, f"not there after {seconds} s: {self.position}"

    def _unsettled(self) -> bool:
        return bool(self.position.get("recopy"))

    def step(self) -> Changes:
        """The next changes, written and acknowledged, after what they say must be copied."""
        if self._changes is None:
            self._changes = self._reader.follow(self.position, self.namespaces, {})
        changes = next(self._changes)
        if changes.appeared:
            self.appeared += changes.appeared
            new = [name for name in changes.appeared if name not in self.namespaces]
            self.namespaces += new
            self.copy(new)
        if changes.altered:
            self.copy(changes.altered)
            self.altered += changes.altered
        self._write(changes.rows)
        self.position = self._kept(changes.position)
        self._reader.acknowledge(self.position)
        return changes

    def stop(self) -> None:
        """Give up the reader, as a crash does; the position stays."""
        self._reader.close()
        self._changes = None
        self._reader = self._source.reader(**self._reading)

    def close(self) -> None:
        """The end."""
        self._reader.close()

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kept(self, position: Any) -> Any:
        return json.loads(json.dumps(position))

    # -- writing
    def _write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows up to a command, the command, and so on."""
        self.seen += batches
        if self._sink is None:
            return
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if ops_of(batch)[0].as_py() != Op.COMMAND:
                held.append(batch)
                continue
            self._finish(held)
            held = []
            with contextlib.closing(self._sink.writer(**self._writing)) as writer:
                command = batch.column("data")[0].as_py()["command"]
                writer.command(namespace_of(batch), command, Who("drive", "sink", 1))
        self._finish(held)

    def _finish(self, batches: Sequence[pa.RecordBatch]) -> None:
        if not batches:
            return
        assert self._sink is not None
        with contextlib.closing(self._sink.writer(**self._writing)) as writer:
            staged = [writer.stage(share) for share in shares(batches)]
            self._count += 1
            writer.finish(staged, Who("drive", "sink", 1), {"0": self._count})
