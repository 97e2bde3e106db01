"""Tasks: what a member remembers of a unit from when it takes the unit until it releases it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tailrace.coordination.lease import HeldLease
from tailrace.coordination.source import UnitReader
from tailrace.errors import PositionLost
from tailrace.storage.tables import Item

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Task(Generic[R]):
    """A unit that this member holds."""

    unit: str
    held: HeldLease
    item: Item
    seen: int
    reader: UnitReader[R] | None = None
    queue: deque[R] = field(default_factory=deque)
    last: R | None = None
    """The last record that was handled and is not committed yet."""
    records: int = 0
    leaving: bool = False
    """Whether the unit is over this member's share: it is released once what was handled is committed."""
    caught_up: bool = False
    asked: float = -1.0
    """When it was last read, on the monotonic clock."""
    progress: float = 0.0
    """When the unit last made progress, or was found to be at its end, by this host's clock."""
    handling: tuple[float, R, int] | None = None
    """The record that a handler is working on: since when, on the monotonic clock; the record; `seen` at that time."""
    error: str = ""
    lost: PositionLost | None = None
    """Why the unit cannot be read further, until an operator decides where to continue."""
    failures: int = 0
    not_before: float = 0.0
    """When the worker may try the unit again after a failure, on the monotonic clock."""
    due: float = 0.0
    pause: float = 0.0
