"""Readers: the sources of pipelines.  A reader copies, then follows.

  1. `begin()` fixes the position from which following will start, before anything is copied, and makes the source keep
     its log from there.
  2. `pieces(namespace)` cuts a namespace into pieces.  `copy(piece)` reads one piece, in a Spark task.  After a crash a
     task may read a piece again, later than the first time.  The source's log has every change since the position, and
     replaying the changes over the copied rows ends in the same state.
  3. `follow(position)` yields the changes after a position in the source's commit order.  The driver calls it.
  4. `acknowledge(position)` tells the reader that everything up to a position is durable in the commit log, so that the
     source may forget it.

A reader that cannot copy does not override `pieces` and `copy`; one that cannot follow does not override `follow`.

A source with several logs (partitions, shards) has a split for each, and its position is

    {"splits": {split: position}}

The pipeline follows each split with a reader of its own, in a thread of its own.  One thread commits the changes of all
splits together with their positions, one write after another.  So the changes of one split keep their order, and a key
must be in only one split at a time.  When a split goes on in other splits (a shard was divided), its reader says so by
`opened` and `closed`, and the pipeline follows the new splits once everything before them is committed.  The position
of a source with one log has any other form, and one reader follows it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyarrow as pa

from tailrace.adaptors.contract.adaptor import End
from tailrace.errors import BadInput

Position: TypeAlias = Any
"""A place in a source's log: any JSON value; None if the source has no log.  A large position should be a dictionary of
dictionaries: the pipeline then stores the entries in parts, and writes only the parts that have changed."""


class Namespace(NamedTuple):
    """A table, collection or file that a reader offers.  `rows` is an estimate, used to show progress."""

    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a namespace that one task copies.  `bounds` is any JSON value; only the reader interprets it."""

    namespace: str
    bounds: Any = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Some changes in the source's order, and the position after them.  Without rows: nothing happened in the
    pipeline's namespaces.

    A row of `rows.command.command_rows` says what the source did to a whole namespace: truncate, drop or rename."""

    rows: Sequence[pa.RecordBatch]
    position: Position
    committed_at: int = 0
    """When the source committed the last of these changes, in milliseconds since 1970; 0 if the source does not say."""
    appeared: Sequence[str] = ()
    """New namespaces.  The pipeline copies them before it reads the next changes."""
    altered: Sequence[str] = ()
    """Namespaces whose documents have changed without a change in the source's log.  The pipeline copies them again,
    over the rows that the sinks have, before it reads the next changes."""
    caught_up: bool = False
    """Whether the reader has now given everything that had happened when following began.  It ends a run that only
    catches up.  A reader whose position moves on even when nothing happens must set it; the pipeline sees that any
    other reader has caught up when the reader gives the same position twice."""
    ended: Sequence[str] = ()
    """Namespaces that have ended: a table that was dropped, a file that was read to its end and is not followed.  The
    status shows them as complete.  Changes that come for them later are delivered as before."""
    opened: Sequence[str] = ()
    """Splits that the pipeline must follow, from their start, once these changes are committed."""
    closed: bool = False
    """Whether this split has ended; the pipeline then forgets its position."""


class SourceResource(NamedTuple):
    """Something at the source that only one pipeline can use: its name for messages, and the settings that choose
    it."""

    what: str
    settings: tuple[str, ...]


class Reader(End, ABC):
    """The source of a pipeline.  Subclasses override what their system can do."""

    follows: bool = False
    """Whether the reader can follow changes."""
    finite: ClassVar[bool] = False
    """Whether the source has an end, as a file has.  A run that only catches up then reads to this end."""
    reads_ahead: ClassVar[bool] = False
    """Whether the source deletes its log after some time, even what the pipeline has not read.  The pipeline then reads
    changes by `follow_ahead` while it copies, and appends them to the commit log after the copy."""
    wants_last: ClassVar[bool] = False
    """Whether each commit stores the last message of each namespace, which the pipeline then passes to `resume`."""

    @abstractmethod
    def check(self) -> None:
        """Connect, and raise an error that says what to do if something would fail later: a right, a setting, a missing
        server."""

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise an error if copying or following one of these namespaces would fail later.  Must change nothing."""

    def kept(self) -> SourceResource | None:
        """What the source keeps for this pipeline and no other pipeline can use, such as a replication slot; None if it
        keeps nothing."""
        return None

    def namespaces(self) -> list[Namespace]:
        """All namespaces of the source, whether or not they match the pipeline's namespace setting."""
        return []

    @property
    def copies(self) -> bool:
        """Whether the reader can copy."""
        return type(self).copy is not Reader.copy

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Return the position from which following will start, and make the source keep its log from there.  The
        pipeline calls it again if it crashes before it has stored the position."""
        return None

    def begun(self, position: Position) -> None:
        """Receive the position that the commit log has, before `pieces` is called: the one that `begin` returned, in
        this run or an earlier one, or one that following has reached since."""

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a namespace into pieces of about `rows` rows.  An empty namespace must give one piece, whose copy says
        which columns there are.  Raises `NotThere` if the namespace is gone.  A reader that cannot copy returns no
        pieces."""
        return []

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece, with mode COPY.  If the piece has no rows, yield one batch without rows, whose
        schema has the columns."""
        raise BadInput(f"a {type(self).__name__} has nothing to copy")

    def sample(self, namespace: str, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a namespace, for a trial.  Must change nothing at the source."""
        for piece in self.pieces(namespace, rows)[:1]:
            yield from self.copy(piece)

    def splits(self, position: Position) -> Sequence[str]:
        """The splits to follow from a position, including new ones; none for a source with one log."""
        return ()

    def resume(self, last: Mapping[str, Mapping[str, Any]]) -> None:
        """Receive the last message that came after the copy of each namespace: {"id", "op", "timestamp", "data"}.
        Called before `follow`, only with `wants_last`.  `data` is the document as JSON values, None if it has more than
        16 KiB."""

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Yield the changes after a position, with mode SYNC, until the caller closes the iterator.  When nothing
        happens, yield `Changes` without rows at least every second, so that the caller can stop.

        With a `split`, yield only this split's changes; `position` is then the split's own, None for its start.
        `namespaces` changes while it is read: a namespace that appeared is in it once the pipeline has taken it."""
        raise BadInput(f"a {type(self).__name__} cannot follow; run with --once")

    def follow_ahead(self, position: Position) -> Iterator[Changes]:
        """Yield changes as `follow` does, while a copy goes on.  Called only with `reads_ahead`.

        It covers only what had a position when the copy began.  A namespace or log that appears, ends or is made again
        meanwhile is left to `follow`: the position stays before this event."""
        raise BadInput(f"a {type(self).__name__} does not read ahead")

    def health(self) -> str:
        """The state of the source's logs as text for people: how long ago each last answered.  Any thread may call
        it."""
        return ""

    def acknowledge(self, position: Position) -> None:
        """Receive a position up to which everything is durable in the commit log, so that the source may forget it.

        The thread that follows calls it.  A reader that follows one split gets a position of that split."""
