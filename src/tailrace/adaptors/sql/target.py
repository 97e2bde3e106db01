"""Targets: the tables of a sink, as its catalog describes them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol


class SqlSettings(Protocol):
    """The settings that every SQL sink has."""

    @property
    def schema(self) -> str | None:
        """The schema that all tables are written into; None: the schema that each namespace names."""

    @property
    def create(self) -> bool:
        """Whether the writer creates missing tables."""

    @property
    def alter(self) -> bool:
        """Whether the writer adds missing columns and widens narrow ones."""

    @property
    def state(self) -> str:
        """The schema of tailrace's own tables."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the sink.  `type` is the name of its type without modifiers, `exact` the name with them.  `kind` is
    the name of the base type, as the dialect names it."""

    type: str
    kind: str
    array: bool
    generated: bool
    always: bool
    """Whether only the server gives the column values."""
    exact: str
    spelled_once: bool = True
    """Whether equal values are always written alike.  For example, 1.0 and 1.00 are equal numbers, and a collation can
    make two different texts equal."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table of the sink.  `unique`: it has a unique index on the keys of the rows that are merged."""

    schema: str
    name: str
    sql: str
    """The table's name in SQL."""
    unique: bool
    file: Hashable = None
    """What identifies the table.  It differs from the value of another table with this name, and, where the system can
    tell, from the value before the table was emptied."""
    columns: dict[str, TargetColumn] = field(default_factory=dict)
