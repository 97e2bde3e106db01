"""Change buffer: the changes that a follower has decoded and not yet handed out, kept by table until they become
batches of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tailrace.adaptors.rows.command import Command, command_rows
from tailrace.adaptors.rows.overflow import Overflow


class TableChanges(Protocol):
    """The buffered changes of one table, in order."""

    def build(self) -> pa.RecordBatch | None:
        """Return the buffered changes as rows, None if there are none, and empty the buffer of this table."""


T = TypeVar("T", bound=TableChanges)


class ChangeBuffer(Generic[T]):
    """Collects changes by table and makes batches of them.  After each time that it makes batches it calls `alive`, so
    that a large transaction does not look like a dead connection."""

    def __init__(self, *, max_rows: int, max_bytes: int, alive: Callable[[], None]) -> None:
        self.max_rows, self.max_bytes, self._alive = max_rows, max_bytes, alive
        self.order: list[T] = []
        """The tables that have buffered changes, ordered by their first change."""
        self.count = self.size = self.time = self.committed_at = 0
        self._sealed = Overflow()
        self._sealed_rows = 0

    @property
    def rows(self) -> int:
        """The number of buffered changes, with those that are in batches already."""
        return self.count + self._sealed_rows

    def command(self, namespace: str, command: Command) -> None:
        """Add a command on a whole namespace, after all changes that came before it."""
        self.seal()
        self._sealed.append(command_rows(namespace, command, self.time))
        self._sealed_rows += 1

    def seal(self) -> None:
        """Make batches of the buffered changes of all tables."""
        for changed in self.order:
            batch = changed.build()
            if batch is not None:
                self._sealed.append(batch)
        self._sealed_rows += self.count
        self.order, self.count, self.size = [], 0, 0
        self._alive()

    def take(self) -> Sequence[pa.RecordBatch]:
        """Make batches of all buffered changes, return all batches, and empty the buffer."""
        self.seal()
        self._sealed_rows = 0
        return self._sealed.take()

    def close(self) -> None:
        """Discard everything."""
        self._sealed.close()
