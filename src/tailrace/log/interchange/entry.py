"""Entries: the interchange format, records as plain bytes that other systems read and write.

     0  offset u64        8  length u32 = K + D + 8      12  timestamp u64, milliseconds since 1970
    20  attributes u8    21  K u32    25  key    25+K  D u32    29+K  data          big-endian, 29 + K + D bytes

Attributes: mode in bits 0-1, op in bits 2-4, bit 5 the key is null (K = 0), bit 6 the value is null (D = 0).
An entry has no checksum; reading distinguishes a torn end from damage.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import Damaged
from tailrace.log.format.chunk import SCHEMAS
from tailrace.log.record import MAX_TIMESTAMP

NULL_KEY, NULL_DATA = 0x20, 0x40
LAST_OFFSET = 2**63 - 1
FIXED_ENTRY_BYTES = 29
"""Bytes of an entry besides its key and data."""

BATCH_BYTES = 4 * 1024 * 1024
ENTRIES = pa.schema([pa.field("offset", pa.int64(), nullable=False), *SCHEMAS[0]])

_ZEROS = bytes(BATCH_BYTES)
_HEAD = struct.Struct(">QIQBI")
_LENGTH = struct.Struct(">I")
_MARKS = frozenset(mode | op << 2 | nulls for mode in range(3) for op in range(6) for nulls in (0, 0x20, 0x40, 0x60))
_CODES = {1: "B", 4: "I", 8: "Q"}


def encode(batch: pa.RecordBatch) -> pa.Array[Any]:
    """Encode records with their offsets (columns as in ENTRIES) as one entry each, one behind the other."""
    key, data = batch.column("key"), batch.column("value")
    k, d = (pc.fill_null(pc.binary_length(column), 0).cast(pa.uint32()) for column in (key, data))
    marks = pc.bit_wise_or(batch.column("attributes"), _nulls(key, NULL_KEY))
    parts = [
        _big_endian(batch.column("offset")),
        _big_endian(pc.add(pc.add(k, d), pa.scalar(8, pa.uint32()))),
        _big_endian(batch.column("timestamp").view(pa.int64())),
        _big_endian(pc.bit_wise_or(marks, _nulls(data, NULL_DATA))),
        _big_endian(k),
        pc.fill_null(key, b"").cast(pa.large_binary()),
        _big_endian(d),
        pc.fill_null(data, b"").cast(pa.large_binary()),
    ]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def joined(entries: pa.Array[Any]) -> memoryview:
    """The bytes of encoded entries, without a copy."""
    _, places, data = entries.buffers()
    ends = memoryview(places).cast("q")
    return memoryview(data)[ends[entries.offset] : ends[entries.offset + len(entries)]]


def _nulls(column: pa.Array[Any], mark: int) -> pa.Array[Any]:
    return pc.if_else(column.is_null(), pa.scalar(mark, pa.uint8()), pa.scalar(0, pa.uint8()))


def _big_endian(numbers: pa.Array[Any]) -> pa.Array[Any]:
    """Whole numbers as big-endian bytes."""
    width = numbers.type.bit_width // 8
    plain = array(_CODES[width])
    plain.frombytes(numbers.buffers()[1][numbers.offset * width : (numbers.offset + len(numbers)) * width])
    if sys.byteorder == "little":
        plain.byteswap()
    raw = pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(plain)])
    return raw.cast(pa.large_binary())


def decode(
    data: bytes,
    at: int = 0,
    last: int = -1,
    where: str = "bytes",
    most: int = BATCH_BYTES,
    *,
    base: int = 0,
    more: bool = False,
) -> tuple[pa.RecordBatch, int]:
    """The whole entries from position `at` on, about `most` bytes of them, and the position after the last.

    No entries, and a position before the end: the rest is a torn end; or, if there is `more` than these bytes, they
    hold only part of the next entry.  `last` is the offset of the entry before, `base` the position of these bytes in
    `where`.  `Damaged` where bytes cannot be an entry; its message names `where`, position and offset."""
    offsets: list[int] = []
    stamps, marks, keys, values = [], [], [], []
    size, stop = len(data), at + most
    while at < stop and at + FIXED_ENTRY_BYTES <= size:
        offset, length, stamp, mark, k = _HEAD.unpack_from(data, at)
        end = at + 21 + length
        if end > size or k + 8 > length:
            if not more or k + 8 > length:
                _check_torn(data, at, last, where, base)
            break
        middle = at + 25 + k
        d = _LENGTH.unpack_from(data, middle)[0]
        if k + d + 8 != length or not last < offset <= LAST_OFFSET or mark not in _MARKS or stamp > MAX_TIMESTAMP:
            raise damaged(data, at, last, where, base)
        if (mark & NULL_KEY and k) or (mark & NULL_DATA and d):
            raise damaged(data, at, last, where, base)
        offsets.append(offset)
        stamps.append(stamp)
        marks.append(mark & 0x1F)
        keys.append(None if mark & NULL_KEY else data[at + 25 : middle])
        values.append(None if mark & NULL_DATA else data[middle + 4 : end])
        at, last = end, offset
    columns = zip((offsets, stamps, marks, keys, values), ENTRIES.types, strict=True)
    return pa.record_batch([pa.array(values, kind) for values, kind in columns], schema=ENTRIES), at


def declared(data: bytes, at: int = 0) -> tuple[int, int]:
    """The offset of the entry at a position, and how many bytes it says it has."""
    offset, length, *_ = _HEAD.unpack_from(data, at)
    return offset, length + 21


def _check_torn(data: bytes, at: int, last: int, where: str, base: int) -> None:
    """Raise `Damaged` unless bytes that hold no whole entry are the beginning of one, or allocated but never
    written."""
    offset, length, stamp, mark, k = _HEAD.unpack_from(data, at)
    if is_zero(data[at:]):
        return
    middle = at + 25 + k
    wrong = k + 8 > length or not last < offset <= LAST_OFFSET or mark not in _MARKS or stamp > MAX_TIMESTAMP
    if not wrong and middle + 4 <= len(data):
        wrong = k + _LENGTH.unpack_from(data, middle)[0] + 8 != length
    if wrong:
        raise damaged(data, at, last, where, base)


def is_zero(data: bytes) -> bool:
    """Whether all bytes are zero."""
    return data == _ZEROS[: len(data)] if len(data) <= len(_ZEROS) else not any(data)


def damaged(data: bytes, at: int, last: int, where: str, base: int = 0) -> Damaged:
    """The error for a damaged entry, with the field that shows it."""
    offset, length, stamp, mark, k = _HEAD.unpack_from(data, at)
    if not last < offset <= LAST_OFFSET:
        why = f"its offset is {offset}"
    elif mark not in _MARKS:
        why = f"its attributes are {mark:#04x}"
    elif stamp > MAX_TIMESTAMP:
        why = f"its timestamp is {stamp}, after the year 9999"
    else:
        why = f"its length is {length} and its key's {k}, and they do not agree with its data's"
    after = f"after the entry of offset {last}" if last >= 0 else "at the beginning"
    return Damaged(
        f"{where}: the bytes at {base + at}, {after}, are not an entry: {why}; take the file from a copy, or cut it at "
        f"{base + at} to keep what is before",
        where=where,
        position=base + at,
    )
