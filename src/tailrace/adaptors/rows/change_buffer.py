"""The changes that a follower has decoded and not given away yet: those of each table, then batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tailrace.adaptors.rows.command import Command, command_rows
from tailrace.adaptors.rows.overflow import Overflow


class TableChanges(Protocol):
    """The changes of one table, in order."""

    def build(self) -> pa.RecordBatch | None:
        """All of them as rows, and begin again; None if there are none."""


T = TypeVar("T", bound=TableChanges)


class ChangeBuffer(Generic[T]):
    """Collects changes by table until they are made into batches.  `alive` is called after each time that is done,
    so that a large transaction does not look like a dead connection."""

    def __init__(self, *, max_rows: int, max_bytes: int, alive: Callable[[], None]) -> None:
        self.max_rows, self.max_bytes, self._alive = max_rows, max_bytes, alive
        self.order: list[T] = []
        """The tables with changes, by their first one."""
        self.count = self.size = self.time = self.committed_at = 0
        self._sealed = Overflow()
        self._sealed_rows = 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.count + self._sealed_rows

    def command(self, namespace: str, command: Command) -> None:
        """Something about a whole namespace, after what was before it."""
        self.seal()
        self._sealed.append(command_rows(namespace, command, self.time))
        self._sealed_rows += 1

    def seal(self) -> None:
        """Make batches of the changes that there are."""
        for changed in self.order:
            batch = changed.build()
            if batch is not None:
                self._sealed.append(batch)
        self._sealed_rows += self.count
        self.order, self.count, self.size = [], 0, 0
        self._alive()

    def take(self) -> Sequence[pa.RecordBatch]:
        """All batches, and begin again."""
        self.seal()
        self._sealed_rows = 0
        return self._sealed.take()

    def close(self) -> None:
        """Forget everything."""
        self._sealed.close()
