"""Picking: which columns of a stored batch to decode, when not all are wanted.  Pure."""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

SMALLEST_COLUMN = "attributes"
"""Decoded when nothing else is, since a batch without columns has no rows: one byte a record."""


def picked(schema: pa.Schema, columns: Set[str]) -> list[int]:
    """The places of these columns, as far as there are such; a compacted chunk's offsets are always among them."""
    found = [n for n, name in enumerate(schema.names) if name in columns or name == "offset"]
    return found or [schema.get_field_index(SMALLEST_COLUMN)]


def picking(schema: pa.Schema, columns: Set[str] | None) -> pa.ipc.IpcReadOptions:
    """What to tell Arrow to get them; None: all."""
    return pa.ipc.IpcReadOptions(included_fields=None if columns is None else picked(schema, columns))
