"""Tables: what a lake sink asks of one table, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tailrace.adaptors.lake.ledger import Ledger
from tailrace.adaptors.lake.schemas import Growth
from tailrace.adaptors.lake.stores import Store


class Mark(NamedTuple):
    """What a commit to a table says of the writer: who it is, and up to which step it is in the table with it."""

    app: str
    step: int
    details: dict[str, Any]


class Merged(NamedTuple):
    """Changes of documents, one row for each, in the types of the table's columns."""

    keys: tuple[str, ...]
    columns: pa.RecordBatch
    ops: pa.Array[Any]
    unset: pa.Array[Any]
    """As in `rows.unset`; null for whole documents."""
    open: bool
    """Of a whole document that is there already, columns that these rows do not have are set back, too."""


class Raced(Exception):
    """Another program has committed to the table, and this commit must be made again."""


class LakeTable(ABC):
    """One table.  Its changes are commits, which raise `Raced` if another came in between."""

    place: str
    """As people call it."""

    @property
    @abstractmethod
    def id(self) -> str:
        """What tells this table from one that is made again in its place."""

    @property
    @abstractmethod
    def version(self) -> int:
        """A number that each commit raises."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Its columns."""

    @abstractmethod
    def refresh(self) -> None:
        """See what others have committed."""

    @abstractmethod
    def step(self, app: str) -> int:
        """The last step of a writer that it has; 0 if none."""

    @abstractmethod
    def grow(self, growth: Growth) -> None:
        """Add columns, or give them wider types."""

    @abstractmethod
    def append(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, mark: Mark) -> None:
        """Add rows."""

    @abstractmethod
    def merge(self, rows: Merged, mark: Mark) -> None:
        """Insert, update and delete documents."""

    @abstractmethod
    def empty(self, mark: Mark) -> None:
        """Delete all rows."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no rows."""

    @abstractmethod
    def maintain(self, before: int) -> None:
        """Put small files together and remove old ones, if that is due since the version it had before."""

    @abstractmethod
    def make_durable(self, before: int) -> None:
        """Make what was committed since a version survive a cut of the machine's power."""


class Lake(Protocol):
    """The tables below one root."""

    @property
    def store(self) -> Store:
        """Where what is not a table yet is put."""

    def check(self) -> None:
        """Raise a clear error for whatever would fail later."""

    def ledger(self, pipeline: str, writer: str) -> Ledger:
        """A writer's ledger, made with its first state."""

    def place(self, namespace: str) -> str:
        """Where a namespace's table is, or would be."""

    def find(self, namespace: str) -> LakeTable | None:
        """The table of a namespace."""

    def create(self, namespace: str, schema: pa.Schema) -> LakeTable:
        """Make it."""

    def close(self) -> None:
        """Give up connections."""
