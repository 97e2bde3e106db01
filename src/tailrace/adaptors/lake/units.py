"""Units: the rows of one namespace that a task staged, as a stretch of an object."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pyarrow as pa


class Unit(msgspec.Struct, frozen=True):
    """An Arrow stream in an object; its rows, and how many of them leave a document there or take one away."""

    namespace: str
    object: str
    start: int
    length: int
    rows: int
    upserts: int = 0
    deletes: int = 0


@dataclass(slots=True)
class Share:
    """What one task staged: its units, and which columns each namespace has in them."""

    units: list[Unit] = field(default_factory=list)
    schemas: dict[str, list[pa.Schema]] = field(default_factory=dict)
