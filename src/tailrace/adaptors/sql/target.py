"""Targets: tables of a sink as its catalog has them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol


class SqlSettings(Protocol):
    """The settings that every SQL sink has."""

    @property
    def schema(self) -> str | None:
        """The schema to write all tables into; None: the one that each namespace names."""

    @property
    def create(self) -> bool:
        """Whether missing tables are created."""

    @property
    def alter(self) -> bool:
        """Whether missing columns are added, and narrow ones widened."""

    @property
    def state(self) -> str:
        """The schema of tailrace's own tables."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the sink.  `type` is its type's name without modifiers, `exact` with them, `kind` the name of the
    type beneath, as the dialect calls it."""

    type: str
    kind: str
    array: bool
    generated: bool
    always: bool
    """The server alone gives it values."""
    exact: str
    spelled_once: bool = True
    """Whether equal values are always written alike.  1.0 and 1.00 are equal numbers, and two texts may be equal by
    their collation."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table of the sink.  `unique`: it has a unique index on the keys of the rows that are merged."""

    schema: str
    name: str
    sql: str
    """Its name in SQL."""
    unique: bool
    file: Hashable = None
    """What tells it from another table of its name, and from itself before it was emptied."""
    columns: dict[str, TargetColumn] = field(default_factory=dict)
