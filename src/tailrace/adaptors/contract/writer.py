"""Writers: the sinks of pipelines.

Tasks call `stage` with their share of a batch, the driver then calls `finish` once, which makes all of it visible.
Where the sink can, `finish` stores the offsets in the same transaction (`guarantee` "exactly once"), and `restore`
gives them back; elsewhere a batch may be written again after a crash, and must come out the same ("idempotent").

Every row has its partition and offset in the commit log beside it, also after functions (`rows.provenance`): of two
rows of one id the one with the higher offset is newer.  That serves as an external version, as an idempotence key, or
as a header.  A row is a whole document, or a change that leaves fields as they are (`rows.unset`, `rows.removal`).
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
    """On whose behalf a sink is written."""

    pipeline: str
    writer: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task staged: how many rows, and whatever `finish` needs to know (small, and picklable)."""

    rows: int
    detail: Any = None
    namespaces: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    """The files that were staged, if they are files, with their bytes: `finish` looks for each."""


class Writer(End, ABC):
    """A sink of a pipeline."""

    guarantee: ClassVar[Guarantee] = "at least once"
    commands: ClassVar[frozenset[str]] = frozenset()
    """The names of the commands that the sink can carry out.  The pipeline passes the others, and says so in its log
    and its status: the sink stays as it is."""
    on_driver: ClassVar[bool] = False
    """Whether `finish` needs what only the driver has, such as its terminal.  Otherwise, where messages go one at a
    time, a task stages and finishes each."""

    every: float = 0.0
    """Seconds between two batches, at least, while little is pending: a sink whose batches are files would have one for
    each change.  What is held back meanwhile is safe in the commit log, and not acknowledged."""

    @abstractmethod
    def check(self) -> None:
        """Connect, and raise a clear error for whatever would fail later."""

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Raise what writing these rows would raise, where that can be known without writing any."""

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """What `finish` stored last in the sink itself: {"epoch", "offsets"}; None if the sink keeps nothing."""
        return None

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """A run begins: as `restore`, and from now on no earlier epoch can finish anything, though this one has not
        finished anything yet.  Without that, a run thought dead could finish a batch that this one delivers again."""
        return self.restore(who.pipeline, who.writer)

    def lost(self, who: Who) -> Sequence[str]:
        """What this writer has delivered into and another program has since dropped or emptied, each as
        people call it ("the table public.orders").  Asked when a run begins."""
        return ()

    def forget(self, who: Who) -> None:
        """An operator has said where to go on: what was delivered before need not be there any more."""

    @abstractmethod
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Take a share of a batch, in a task; nothing of it may be visible yet where the sink can hold it back.

        A batch without rows says which columns a namespace has that is empty: a sink of tables makes one."""

    @abstractmethod
    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Make what was staged visible, and keep the offsets with it where the sink can."""

    def discard(self, staged: Sequence[Staged]) -> None:
        """Throw away what was staged by tasks of a batch that failed."""

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Carry out one of `commands`, which concerns a whole namespace, once all rows before it are in.  After a crash
        it may come again.

        A sink that keeps offsets refuses it (`Fenced`) from a run that another has claimed the sink since: what came
        after would be lost with what it means."""
