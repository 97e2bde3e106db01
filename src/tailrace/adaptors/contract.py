"""The contract of adaptors: what a pipeline asks of the system it reads from and of those it writes to.

An adaptor is made anew wherever it is needed, on the driver and in Spark's tasks, from its settings alone, so it must
be cheap to make and connects only when first asked something.  Calls come from one thread at a time.  Rows are Arrow
record batches as `tailrace.adaptors.rows` makes them, one namespace a batch.

Reading.  A reader copies, then follows:
  1. `begin()` fixes the position from which following will start, before anything is copied, and makes the source keep
     its log from there.
  2. `ranges(namespace)` cuts a namespace into pieces; `copy(piece)` reads one, in a Spark task.  A piece may be read
     again after a crash, later than the first time: what changed since is in the log after the position, and replaying
     it over the copied rows ends in the same state, because each change carries the whole document.
  3. `follow(position)` gives the changes after a position in the source's commit order; it is called in one place only.
  4. `acknowledge(position)`: everything up to here is durable in the commit log; the source may forget it.

Writing.  Tasks call `stage` with their share of a batch, the driver then calls `finish` once, which makes all of it
visible.  Where the sink can, `finish` stores the offsets in the same transaction (`guarantee` "exactly once"), and
`restore` tells them; elsewhere a batch may be written again after a crash, and must come out the same ("idempotent").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from tailrace.errors import BadInput

Position: TypeAlias = Any
"""A place in a source's log: anything that JSON can hold; None where a source has none."""

Guarantee: TypeAlias = Literal["exactly once", "idempotent by id", "at least once"]


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
    """Some changes in the source's order, and the position after them.  No rows: nothing that matches happened."""

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


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an adaptor is made from.  Subclass it; each field's type, default and docstring is shown by `about`."""


class Kept(NamedTuple):
    """Something at the source that is one pipeline's: what it is called, and the settings that say which one it is."""

    what: str
    settings: tuple[str, ...]


class Reader(ABC):
    """The source of a pipeline.  Subclasses implement what they can; `follows` says whether they can follow."""

    follows: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Connect, and raise a clear error for whatever would fail later: rights, settings, a missing server."""

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise a clear error for whatever would fail later with these, and change nothing."""

    def kept(self) -> Kept | None:
        """What the source already keeps for whoever has these settings, and one alone can use; None if nothing."""
        return None

    @abstractmethod
    def namespaces(self) -> list[Namespace]:
        """Everything that can be read, whether or not it matches the pipeline's namespace."""

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Fix where following will start, and make the source keep its log from there.  Called again after a crash."""
        return None

    def begun(self, position: Position) -> None:
        """Told before `pieces`: what `begin` fixed, in this run or one before, or where following has come since."""

    @abstractmethod
    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a namespace into pieces of about so many rows.  An empty namespace gives one piece, which tells its
        columns."""

    @abstractmethod
    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with mode COPY."""

    def follow(self, position: Position, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        """Changes after a position, for ever, with mode SYNC; an empty one at least every second when nothing happens,
        so that the caller can stop.  `state` has what is known of each namespace: its `phase`, and once there was one
        the `last` message that followed the copy: {"id", "op", "timestamp"}."""
        raise BadInput(f"a {type(self).__name__} cannot follow; run with --once")

    def acknowledge(self, position: Position) -> None:
        """Everything up to here is durable: the source may forget it.  Called from the thread that follows."""

    def close(self) -> None:
        """Give up connections."""


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


class Writer(ABC):
    """A sink of a pipeline."""

    guarantee: ClassVar[Guarantee] = "at least once"
    on_driver: ClassVar[bool] = False
    """Whether `finish` needs what only the driver has, such as its terminal.  Otherwise, where messages go one at a
    time, a task stages and finishes each."""

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

    @abstractmethod
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Take a share of a batch, in a task; nothing of it may be visible yet where the sink can hold it back."""

    @abstractmethod
    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Make what was staged visible, and keep the offsets with it where the sink can."""

    def discard(self, staged: Sequence[Staged]) -> None:
        """Throw away what was staged by tasks of a batch that failed."""

    def command(self, namespace: str, name: str, who: Who) -> None:
        """Something that concerns a whole namespace, once all rows before it are in: "truncate".

        A sink that keeps offsets refuses it (`Fenced`) from a run that another has claimed the sink since: what came
        after would be lost with what it means."""

    def close(self) -> None:
        """Give up connections."""


@dataclass(frozen=True, slots=True)
class Adaptor:
    """What a package registers: a name, what it is for, its ends and what they are made from."""

    name: str
    about: str
    reader: type[Reader] | None = None
    reader_settings: type[Settings] | None = None
    writer: type[Writer] | None = None
    writer_settings: type[Settings] | None = None
    example: str = ""
