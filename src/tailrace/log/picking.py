"""Picking: which columns of a stored batch to decode, when not all are wanted.  Pure."""

from __future__ import annotations

import struct
from collections.abc import Set

import pyarrow as pa

LEAST = "attributes"
"""Decoded when nothing else is, since a batch without columns has no rows: one byte a record."""


def picked(schema: pa.Schema, columns: Set[str]) -> list[int]:
    """The places of these columns, as far as there are such; a compacted chunk's offsets are always among them."""
    found = [n for n, name in enumerate(schema.names) if name in columns or name == "offset"]
    return found or [schema.get_field_index(LEAST)]


def picking(schema: pa.Schema, columns: Set[str] | None) -> pa.ipc.IpcReadOptions:
    """What to tell Arrow to get them; None: all."""
    return pa.ipc.IpcReadOptions(included_fields=None if columns is None else picked(schema, columns))


def compressed(message: pa.Message) -> bool:
    """Whether a record batch message has compressed buffers, and so is uncompressed when it is decoded.

    Arrow knows and does not say.  A flatbuffer's table begins with the distance back to its vtable, which has its own
    size, the table's, and then where each field is, 0 if it is not there: field 2 of a Message is its header, field 3
    of a RecordBatch is its compression."""
    data = message.metadata
    batch = _follow(data, _field(data, _follow(data, 0), 2))
    return _field(data, batch, 3) != batch


def _field(data: pa.Buffer, table: int, number: int) -> int:
    """The place of a field of a table; the table's own if it has no such field."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    return table + (struct.unpack_from("<H", data, vtable + slot)[0] if slot < _size(data, vtable) else 0)


def _size(data: pa.Buffer, vtable: int) -> int:
    return int(struct.unpack_from("<H", data, vtable)[0])


def _follow(data: pa.Buffer, at: int) -> int:
    """Where a reference at a place points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])
