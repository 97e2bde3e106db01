"""Readers: the sources of pipelines.  A reader copies, then follows.

  1. `begin()` fixes the position from which following will start, before anything is copied, and makes the source keep
     its log from there.
  2. `pieces(namespace)` cuts a namespace into pieces; `copy(piece)` reads one, in a Spark task.  A piece may be read
     again after a crash, later than the first time: what changed since is in the log after the position, and replaying
     it over the copied rows ends in the same state, because each change carries the whole document.
  3. `follow(position)` gives the changes after a position in the source's commit order; it is called on the driver.
  4. `acknowledge(position)`: everything up to here is durable in the commit log; the source may forget it.

A source without a copy leaves `pieces` and `copy` as they are; one that cannot follow leaves `follow`.

A source with several logs (partitions, shards) has a split for each, and its position is

    {"splits": {split: position}}

Each split is followed by a reader of its own in a thread of its own.  What all of them give is committed together with
the positions, one write after another.  So the changes of one split keep their order: a key must be in one split at a
time.  A split that goes on in others (a shard that was divided) says so by `opened` and `closed`: these are followed
once all before them is committed.  A source with one log has any other position, and one receiver.
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
"""A place in a source's log: anything that JSON can hold; None where a source has none.  A large one is a dictionary of
dictionaries: the pipeline stores their entries in parts, and of a change only the parts that it concerns."""


class Namespace(NamedTuple):
    """A table, collection or file that a reader offers; `rows` is an estimate, for showing progress."""

    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a namespace that one task copies: `bounds` is the reader's own, anything that JSON can hold."""

    namespace: str
    bounds: Any = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Some changes in the source's order, and the position after them.  No rows: nothing that matches happened.

    Rows of `rows.command.command_rows` say what the source did to a whole namespace: truncate, drop, rename."""

    rows: Sequence[pa.RecordBatch]
    position: Position
    committed_at: int = 0
    """When the source committed the last of them, in milliseconds since 1970; 0 if it does not say."""
    appeared: Sequence[str] = ()
    """Namespaces that are new, and must be copied before what follows is read."""
    altered: Sequence[str] = ()
    """Namespaces whose documents are no longer what was copied, though no change says so: they must be copied again,
    over what is there, before what follows is read."""
    caught_up: bool = False
    """With these, all that had happened when following began is given.  A reader whose position moves on though nothing
    happens says so, for a run that only catches up; any other has caught up when it gives the same position again."""
    ended: Sequence[str] = ()
    """Namespaces that have ended: a table that was dropped, a file that is read to its end and not followed.  They are
    shown as complete; should they go on after all, they are followed as before."""
    opened: Sequence[str] = ()
    """Splits that begin here, from their start, once these changes are committed."""
    closed: bool = False
    """This split has ended; its position is forgotten."""


class SourceResource(NamedTuple):
    """Something at the source that is one pipeline's: what it is called, and the settings that say which one it is."""

    what: str
    settings: tuple[str, ...]


class Reader(End, ABC):
    """The source of a pipeline.  Subclasses implement what they can; `follows` says whether they can follow."""

    follows: bool = False
    finite: ClassVar[bool] = False
    """Whether a run that only catches up reads what is there to its end, as a file's; a database has none."""
    reads_ahead: ClassVar[bool] = False
    """Whether the source forgets its log after some time, also what a pipeline has yet to read.  The pipeline then
    takes changes in while it copies, by `follow_ahead`, and puts them behind the copy."""
    wants_last: ClassVar[bool] = False
    """Whether the pipeline keeps the last message of each namespace, for `resume`; each commit then stores it."""

    @abstractmethod
    def check(self) -> None:
        """Connect, and raise a clear error for whatever would fail later: rights, settings, a missing server."""

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise a clear error for whatever would fail later with these, and change nothing."""

    def kept(self) -> SourceResource | None:
        """What the source keeps for a pipeline with these settings, and one pipeline alone can use; None if nothing."""
        return None

    def namespaces(self) -> list[Namespace]:
        """Everything that can be copied, whether or not it matches the pipeline's namespace."""
        return []

    @property
    def copies(self) -> bool:
        """Whether there is anything to copy before following."""
        return type(self).copy is not Reader.copy

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Fix where following will start, and make the source keep its log from there.  Called again after a crash."""
        return None

    def begun(self, position: Position) -> None:
        """The pipeline calls it before `pieces`, with what `begin` fixed, in this run or one before, or with where
        following has come since."""

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a namespace into pieces of about so many rows.  An empty namespace gives one piece, which tells its
        columns; `NotThere` if it is gone by now.  None for a source without a copy."""
        return []

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with mode COPY.  Where there are none, a batch without rows tells the columns."""
        raise BadInput(f"a {type(self).__name__} has nothing to copy")

    def splits(self, position: Position) -> Sequence[str]:
        """The splits to follow from a position, new ones among them; none for a source with one log."""
        return ()

    def resume(self, last: Mapping[str, Mapping[str, Any]]) -> None:
        """With `wants_last` the pipeline calls it before `follow`, with the last message that followed the copy of each
        namespace: {"id", "op", "timestamp", "data"}; the data as JSON has it, None if that takes more than 16 KiB."""

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Changes after a position, for ever, with mode SYNC; an empty one at least every second when nothing happens,
        so that the caller can stop.  `split`: those of one split, and the position is its own; None: from its start.
        `namespaces` are the pipeline's at each moment: one that appeared is among them once it was taken."""
        raise BadInput(f"a {type(self).__name__} cannot follow; run with --once")

    def follow_ahead(self, position: Position) -> Iterator[Changes]:
        """With `reads_ahead`: as `follow`, while a copy goes on, of what had a position when it began.  Whatever comes,
        goes or is made again meanwhile is left to `follow`: the position stays before it."""
        raise BadInput(f"a {type(self).__name__} does not read ahead")

    def health(self) -> str:
        """How the source's logs are, for people: how long ago each last answered.  Called from any thread."""
        return ""

    def acknowledge(self, position: Position) -> None:
        """Everything up to here is durable: the source may forget it.  Called from the thread that follows; of a reader
        of one split, with a position of that."""
