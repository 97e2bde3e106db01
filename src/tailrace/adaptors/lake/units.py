"""Units: batches of rows of one namespace that a task staged, each a range of bytes of an object."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pyarrow as pa


class Unit(msgspec.Struct, frozen=True):
    """An Arrow stream at a range of an object, and how many rows it has, documents it puts and documents it deletes."""

    namespace: str
    object: str
    start: int
    length: int
    rows: int
    upserts: int = 0
    deletes: int = 0


@dataclass(slots=True)
class Share:
    """A task's staged share: its units, and the schemas that each namespace has in them."""

    units: list[Unit] = field(default_factory=list)
    schemas: dict[str, list[pa.Schema]] = field(default_factory=dict)
