"""Row batches: gathers the follower's changes as a batch of rows for each namespace, and cuts them at every command."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from tailrace.adaptors.mongodb.source.documents import Change, rows
from tailrace.adaptors.rows.command import Command, command_rows
from tailrace.log.record import Mode


class RowBatches:
    """The changes that the follower has gathered and not yet yielded."""

    def __init__(self, shape: Literal["document", "columns"]) -> None:
        self._shape: Literal["document", "columns"] = shape
        self._open: dict[str, list[Change]] = {}
        self._sealed: list[pa.RecordBatch] = []
        self.committed_at = 0
        """When the last change was committed, in milliseconds since 1970."""

    def __bool__(self) -> bool:
        return bool(self._open or self._sealed)

    def add(self, namespace: str, change: Change) -> None:
        """Add a change of a document."""
        self._open.setdefault(namespace, []).append(change)
        self.committed_at = change.timestamp

    def command(self, namespace: str, name: str, timestamp: int) -> None:
        """Add a command on a namespace, after all changes before it."""
        self._seal()
        self._sealed.append(command_rows(namespace, Command(name), timestamp))
        self.committed_at = timestamp

    def take(self) -> list[pa.RecordBatch]:
        """Return all batches and forget them."""
        self._seal()
        taken, self._sealed = self._sealed, []
        return taken

    def _seal(self) -> None:
        self._sealed += [rows(name, self._shape, some, Mode.SYNC) for name, some in self._open.items()]
        self._open = {}
