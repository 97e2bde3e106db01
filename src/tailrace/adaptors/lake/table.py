"""Tables: the interface of one table and of a lake, which each format implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tailrace.adaptors.lake.ledger import Ledger
from tailrace.adaptors.lake.schemas import Growth
from tailrace.adaptors.lake.stores import Store


class Mark(NamedTuple):
    """What a commit to a table stores about the writer: the writer's id, the number of the step, and details for
    people."""

    app: str
    step: int
    details: dict[str, Any]


class Merged(NamedTuple):
    """Changes of documents, one row for each, in the types of the table's columns."""

    keys: tuple[str, ...]
    columns: pa.RecordBatch
    ops: pa.Array[Any]
    unset: pa.Array[Any]
    """Which fields a change leaves as they are, as in `rows.unset`; null for whole documents."""
    open: bool
    """Whether a whole document sets the columns that these rows lack to null in a row that exists."""


class Raced(Exception):
    """Another program has committed to the table since it was read, so this commit must be made again."""


class LakeTable(ABC):
    """One table.  Each method that changes it commits, and raises `Raced` if another program has committed since."""

    place: str
    """The table's path or URL, for messages."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The table's id, which differs from that of a table made again in its place."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The version that was read last; each commit raises it."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The table's columns."""

    @abstractmethod
    def refresh(self) -> None:
        """Read what other programs have committed."""

    @abstractmethod
    def step(self, app: str) -> int:
        """The number of a writer's last step in the table; 0 if it has none."""

    @abstractmethod
    def grow(self, growth: Growth) -> None:
        """Add columns, or give them wider types."""

    @abstractmethod
    def append(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, mark: Mark) -> None:
        """Add rows in one commit with this mark."""

    @abstractmethod
    def merge(self, rows: Merged, mark: Mark) -> None:
        """Insert, update and delete documents, and store this mark."""

    @abstractmethod
    def empty(self, mark: Mark) -> None:
        """Delete all rows, and store this mark."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the table has no rows."""

    @abstractmethod
    def maintain(self, before: int) -> None:
        """Compact small files and remove old ones, if that has become due since the version `before`."""

    @abstractmethod
    def make_durable(self, before: int) -> None:
        """Make the commits after the version `before` survive a power failure of the machine."""


class Lake(Protocol):
    """The tables below one root."""

    @property
    def store(self) -> Store:
        """The store for objects that are not tables."""

    def check(self) -> None:
        """Raise a clear error for whatever would fail later."""

    def ledger(self, pipeline: str, writer: str) -> Ledger:
        """A writer's ledger.  The first state that is written makes it."""

    def ledgers(self) -> Iterable[Ledger]:
        """The ledgers of all writers below the root."""

    def place(self, namespace: str) -> str:
        """The path or URL of a namespace's table, whether it exists or not."""

    def find(self, namespace: str) -> LakeTable | None:
        """Open the table of a namespace; None if it does not exist."""

    def create(self, namespace: str, schema: pa.Schema) -> LakeTable:
        """Make the table of a namespace with these columns, and open it."""

    def close(self) -> None:
        """Close the connections."""
