"""Projection: which columns of a stored batch to decode, when a reader does not want all of them. Pure."""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

SMALLEST_COLUMN = "attributes"
"""The column that is decoded when a reader wants none.  A batch without columns would have no rows, and this column has
only one byte per record."""


def picked(schema: pa.Schema, columns: Set[str]) -> list[int]:
    """The indices of those columns that the batch has; a compacted chunk's offsets are always included."""
    found = [n for n, name in enumerate(schema.names) if name in columns or name == "offset"]
    return found or [schema.get_field_index(SMALLEST_COLUMN)]


def picking(schema: pa.Schema, columns: Set[str] | None) -> pa.ipc.IpcReadOptions:
    """The option that makes Arrow decode only these columns; None: Arrow decodes all."""
    return pa.ipc.IpcReadOptions(included_fields=None if columns is None else picked(schema, columns))
