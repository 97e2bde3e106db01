"""Adaptors: what a package registers, and the base class of readers and writers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.adaptors.contract.reader import Reader
    from tailrace.adaptors.contract.settings import Settings
    from tailrace.adaptors.contract.writer import Writer


class End:
    """The base class of readers and writers.

    An end has a place, such as a folder, and a Spark task on another host may see another folder under the same path.
    So before the first row the driver calls `leave_mark`, and every process that runs tasks calls `sees_mark`.  An end
    on a server overrides neither: every process that reaches the server sees the same data."""

    def leave_mark(self, who: str, mark: str) -> None:
        """Write a mark into the system, where tasks will read or write.  It replaces the earlier mark of the same
        `who`."""

    def sees_mark(self, who: str, mark: str) -> bool:
        """Whether this process sees the mark that the driver left for `who`.  Must not create a folder or file that is
        missing."""
        return True

    def close(self) -> None:
        """Close the connections of this reader or writer."""


@dataclass(frozen=True, slots=True)
class Adaptor:
    """What a package registers: the adaptor's name, a description, its reader and writer, and their settings."""

    name: str
    about: str
    reader: type[Reader] | None = None
    reader_settings: type[Settings] | None = None
    writer: type[Writer] | None = None
    writer_settings: type[Settings] | None = None
    example: str = ""
    limits: str = ""
    """What of the system a pipeline does not carry, in a sentence."""
