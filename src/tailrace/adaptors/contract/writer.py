"""Writers: the sinks of pipelines.

Tasks call `stage` with their share of a batch.  Then the driver calls `finish` once, which makes all shares visible.
If the sink can, `finish` stores the offsets in the same transaction (`guarantee` "exactly once"), and `restore` returns
them.  Otherwise the pipeline may write a batch again after a crash, and the result must be the same ("idempotent by
id").

Every row has its partition and offset in the commit log beside it, even after functions (`rows.provenance`).  Of two
rows with one id the row with the higher offset is newer.  A writer can use the offset as an external version, as an
idempotence key or as a header.  A row is a whole document, or a change that leaves fields as they are (`rows.unset`,
`rows.removal`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from tailrace.adaptors.contract.adaptor import End
from tailrace.adaptors.rows.command import Command

Guarantee: TypeAlias = Literal["exactly once", "idempotent by id", "at least once"]


class Who(NamedTuple):
    """Which run writes to a sink: the pipeline, the writer's name in it, and the epoch, which rises with each run."""

    pipeline: str
    writer: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What `stage` returns: the number of staged rows, and in `detail` what `finish` needs (small and picklable)."""

    rows: int
    detail: Any = None
    namespaces: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    """The staged files and their sizes in bytes, if the sink stages files; `finish` checks that each is there."""


class Writer(End, ABC):
    """A sink of a pipeline."""

    guarantee: ClassVar[Guarantee] = "at least once"
    commands: ClassVar[frozenset[str]] = frozenset()
    """The names of the commands that the sink can carry out.  The pipeline passes the others without changing the sink,
    and says so in its log and its status."""
    on_driver: ClassVar[bool] = False
    """Whether `finish` needs what only the driver has, such as its terminal.  If not, a task calls both `stage` and
    `finish` when the pipeline delivers messages one at a time."""

    every: float = 0.0
    """The least number of seconds between two batches while few records are pending, for a sink that would otherwise
    make a file for each change.  Records that are held back are safe in the commit log, and not acknowledged."""

    @abstractmethod
    def check(self) -> None:
        """Connect, and raise an error that says what to do if something would fail later."""

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Raise the error that writing these rows would raise, if the sink can tell without keeping any of them."""

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Return what `finish` last stored in the sink itself: {"epoch", "offsets"}; None if the sink stores no
        offsets."""
        return None

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """Begin a run: return what `restore` returns, and fence all earlier epochs, so that none of them can finish a
        batch.

        Otherwise a run that only seemed dead could finish a batch that this run delivers again."""
        return self.restore(who.pipeline, who.writer)

    def lost(self, who: Who) -> Sequence[str]:
        """The tables, collections, topics or folders that this writer has delivered to and another program has dropped
        or emptied since, each as messages name it ("the table public.orders").  Called when a run begins."""
        return ()

    def forget(self, who: Who) -> None:
        """Forget what this writer has delivered to, so that `lost` does not report it.  Called when an operator has set
        from where to deliver again."""

    @abstractmethod
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Store a task's share of a batch so that `finish` can make it visible.  If the sink can hold the rows back,
        readers of the sink must not see them yet.

        A batch without rows says which columns an empty namespace has, so that a sink of tables can make its table."""

    @abstractmethod
    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Make all staged rows visible, and store the offsets in the same transaction if the sink can."""

    def discard(self, staged: Sequence[Staged]) -> None:
        """Delete what tasks have staged for a batch that failed."""

    def idle(self) -> None:
        """Do what `finish` has put off, such as merging files.  The driver calls it about once a second while nothing
        is pending, so that nothing waits for the next message."""

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Carry out one of `commands` on a whole namespace.  The pipeline calls it when all rows before the command are
        finished, and perhaps again after a crash.

        A sink that stores offsets raises `Fenced` if another run has claimed the sink since: a late truncate, for
        example, would also remove rows that the other run has delivered."""
