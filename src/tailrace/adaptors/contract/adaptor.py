"""Adaptors: what a package registers, and what readers and writers have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.adaptors.contract.reader import Reader
    from tailrace.adaptors.contract.settings import Settings
    from tailrace.adaptors.contract.writer import Writer


class End:
    """What readers and writers have in common: a place, which a Spark task on another host may not have before it.

    Before the first row the driver calls `leave_mark`, and every process that runs tasks calls `sees_mark`.  An end on
    a server needs neither: every process that reaches it sees the same."""

    def leave_mark(self, who: str, mark: str) -> None:
        """Write this mark, in place of an earlier one of the same `who`, where tasks will read or write."""

    def sees_mark(self, who: str, mark: str) -> bool:
        """Whether the mark that `who` has left is seen from here.  It must not make what is not there."""
        return True

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
    limits: str = ""
    """What of the system is not carried, in a sentence."""
