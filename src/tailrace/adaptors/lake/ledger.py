"""The ledger: what a writer has decided, in a table of tailrace's own, one for each writer.

    epoch, offsets, claimed    which run may write, and how far it came: see sinks.fencing
    number                     of the last batch or command
    pending                    what that is to do to which tables: the rows that were staged, by namespace
    tables                     what the writer has written: which table it was, at which version, whether it has rows

A lake commits to one table at a time.  So a batch is finished by the one commit that writes the ledger, with its
offsets and with what is pending.  Then each table gets its rows, in a commit that also says up to which step the writer
is in it.  After a crash the next run carries out what is pending: a table that has a step already is passed over.  The
ledger is changed only from the state that was read, so of two runs at once one is refused.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from tailrace.adaptors.lake.units import Unit
from tailrace.adaptors.sinks.fencing import Fence

STEPS_PER_BATCH = 1_000_000
"""A writer's mark in a table is the number of the batch, times this, and the step of the batch."""


class Work(msgspec.Struct, frozen=True):
    """What is to be done to the table of one namespace: a command, or rows, in so many steps."""

    units: tuple[Unit, ...] = ()
    steps: int = 1
    command: str = ""


class WrittenTable(msgspec.Struct, frozen=True):
    """A table that was written: which one it was, at least at which version, and whether it certainly has rows."""

    id: str
    version: int
    filled: bool


class State(msgspec.Struct, frozen=True):
    """As the ledger has it."""

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
        """Which runs may still change it."""
        return Fence(self.epoch, self.offsets, self.claimed)

    def changed(self, fence: Fence | None = None, **fields: Any) -> State:
        """The next state, with a new mark: by it a writer knows its own write."""
        if fence is not None:
            offsets = None if fence.offsets is None else dict(fence.offsets)
            fields |= {"epoch": fence.epoch, "offsets": offsets, "claimed": fence.claimed}
        return msgspec.structs.replace(self, mark=secrets.token_hex(8), **fields)


class Ledger(ABC):
    """Where one writer's state is."""

    @property
    @abstractmethod
    def id(self) -> str:
        """What tells this ledger from one that is made again in its place."""

    @abstractmethod
    def read(self) -> State:
        """What is kept; an empty state if there is none yet."""

    @abstractmethod
    def swap(self, now: State) -> bool:
        """Write a state in place of the one that was read last; False if another has been written since."""
