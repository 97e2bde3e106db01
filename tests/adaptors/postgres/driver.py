"""A stand-in for the runner: copies, follows and writes in one thread, but in shares as tasks have them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Command
from tailrace.adaptors.postgres.source.position import lsn_number
from tailrace.adaptors.rows.rows import namespace_of, ops_of
from tailrace.log.record import Op
from tests.adaptors.postgres.place import Place
from tests.adaptors.source_drive import WHO, SourceDrive


class Drive(SourceDrive):
    """A pipeline from one database to another, or, without a sink, to a list of batches."""

    def __init__(
        self, source: Place, sink: Place | None, namespaces: Sequence[str], *, reader: Any = None, writer: Any = None
    ) -> None:
        reading, writing = {"discover": 0.2, **(reader or {})}, {"create": True, "alter": True, **(writer or {})}
        super().__init__(source, sink, namespaces, reading, writing)
        self._source = source
        self.seen: list[pa.RecordBatch] = []

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
        """As a new run with --once does."""
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

    # -- writing
    def _write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows up to a command, the command, and so on."""
        self.seen += [batch for batch in batches if batch.num_rows]
        if self._sink is None:
            return
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if not batch.num_rows or ops_of(batch)[0].as_py() != Op.COMMAND:
                held.append(batch)
                continue
            self._finish(held)
            held = []
            with contextlib.closing(self._sink.writer(**self._writing)) as writer:
                command = Command(batch.column("data")[0].as_py()["command"])
                writer.command(namespace_of(batch), command, WHO)
        self._finish(held)
