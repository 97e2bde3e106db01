"""Arrow messages: what a message declares about itself, read before Arrow decodes it and allocates memory for it.

Arrow has no function for this.  A message's metadata is a flatbuffer.  Its tables begin with the distance back to their
vtable, which has its own size, the table's, and then the place of each field, 0 for a missing one:

    Message       1 kind of header   2 header   3 bytes of the body
    RecordBatch   0 rows   2 buffers: (offset, length) each   3 compression
    DictionaryBatch   1 RecordBatch

A compressed buffer begins with its uncompressed length, -1 if it is not compressed after all.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

import pyarrow as pa

Buffer: TypeAlias = pa.Buffer | bytes | memoryview

_DICTIONARY, _RECORDS = 2, 3


class About(NamedTuple):
    """What a message declares: its rows (0 if it has no records), the bytes of its body, and the bytes that its buffers
    need once they are uncompressed (0: they are not compressed)."""

    rows: int
    body: int
    inflated: int
    is_dictionary: bool = False

    @property
    def compressed(self) -> bool:
        """Whether decoding the message takes more memory than the message itself."""
        return self.inflated > 0


def body_length(metadata: Buffer) -> int:
    """The bytes that follow a message's metadata. `struct.error` if these bytes are not a message's metadata."""
    message = _follow(metadata, 0)
    at = _field(metadata, message, 3)
    return _long(metadata, at) if at != message else 0


def about(metadata: Buffer, body: Buffer | None) -> About:
    """What a message declares. `struct.error` if these bytes are not a message."""
    message, length = _follow(metadata, 0), body_length(metadata)
    kind = metadata[_field(metadata, message, 1)]
    if kind not in (_DICTIONARY, _RECORDS):
        return About(0, length, 0)
    batch = _follow(metadata, _field(metadata, message, 2))
    if kind == _DICTIONARY:
        batch = _follow(metadata, _field(metadata, batch, 1))
    at = _field(metadata, batch, 0)
    rows = _long(metadata, at) if at != batch else 0
    if _field(metadata, batch, 3) == batch or body is None:
        return About(rows, length, 0, kind == _DICTIONARY)
    return About(rows, length, sum(_inflated(metadata, batch, memoryview(body))), kind == _DICTIONARY)


def _inflated(metadata: Buffer, batch: int, body: memoryview) -> list[int]:
    """The bytes of each buffer of a compressed batch after decompression."""
    vector = _follow(metadata, _field(metadata, batch, 2))
    out = []
    for n in range(int(struct.unpack_from("<I", metadata, vector)[0])):
        offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * n)
        declared = _long(body, offset) if length >= 8 else 0
        out.append(length if declared < 0 else declared)
    return out


def _long(data: Buffer, at: int) -> int:
    return int(struct.unpack_from("<q", data, at)[0])


def _field(data: Buffer, table: int, number: int) -> int:
    """Where a field of a table is stored; the table's own place if the field is missing."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    slot = 4 + 2 * number
    return table + (int(struct.unpack_from("<H", data, vtable + slot)[0]) if slot < _size(data, vtable) else 0)


def _size(data: Buffer, vtable: int) -> int:
    return int(struct.unpack_from("<H", data, vtable)[0])


def _follow(data: Buffer, at: int) -> int:
    """The place that the reference at this place points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])
