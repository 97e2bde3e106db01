"""The ledger: the state of a writer, in a table of tailrace's own, one for each writer.

    epoch, offsets, claimed    which run may write, and how far it came: see sinks.fencing
    number                     the number of the last batch or command
    pending                    the work of that batch or command, by namespace: staged rows, or the command
    tables                     the tables that the writer has written: id, version, and whether they have rows

A lake commits to one table at a time.  So the commit that finishes a batch is the one to the ledger, with the batch's
offsets and its pending work.  Then the writer commits the rows to each table, and each commit has the number of its
step.  After a crash the next run carries out the pending work, and skips the steps that a table has already.  The
ledger changes only if it is still as it was read, so of two runs at once one is refused.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from tailrace.adaptors.lake.units import Unit
from tailrace.adaptors.sinks.fencing import Fence

STEPS_PER_BATCH = 1_000_000
"""A step's number in a table is the batch's number times this, plus the step within the batch."""


class Work(msgspec.Struct, frozen=True):
    """The pending work for the table of one namespace: a command, or the rows of units.  `steps` says how many commits
    it takes."""

    units: tuple[Unit, ...] = ()
    steps: int = 1
    command: str = ""


class WrittenTable(msgspec.Struct, frozen=True):
    """A table that the writer has written to: its id, a version that it had then, and whether it certainly has rows.
    All versions up to that one have been made durable."""

    id: str
    version: int
    filled: bool


class State(msgspec.Struct, frozen=True):
    """The state that the ledger holds."""

    epoch: int = -1
    offsets: dict[str, Any] | None = None
    claimed: bool = False
    number: int = 0
    keep: str = ""
    pending: dict[str, Work] = {}
    tables: dict[str, WrittenTable] = {}
    mark: str = ""

    @property
    def fence(self) -> Fence:
        """The fence, which says which runs may still change the state."""
        return Fence(self.epoch, self.offsets, self.claimed)

    def changed(self, fence: Fence | None = None, **fields: Any) -> State:
        """The next state, with a new mark, by which a writer recognizes its own write."""
        if fence is not None:
            offsets = None if fence.offsets is None else dict(fence.offsets)
            fields |= {"epoch": fence.epoch, "offsets": offsets, "claimed": fence.claimed}
        return msgspec.structs.replace(self, mark=secrets.token_hex(8), **fields)


class Ledger(ABC):
    """The stored state of one writer."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The ledger's id, which differs from that of a ledger made again in its place."""

    @abstractmethod
    def read(self) -> State:
        """Read the state; an empty one if none is stored yet."""

    @abstractmethod
    def swap(self, now: State) -> bool:
        """Replace the state that was read last.  Returns False if another was written since, and changes nothing."""
