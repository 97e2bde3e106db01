"""Codec: turns an item into msgpack bytes and back, so that every type of value survives.

MessagePack has null, bool, 64-bit whole numbers, text, bytes, arrays and maps.  The rest are extensions:

    1  set         the members, sorted, as a msgpack array
    2  Decimal     its digits as ASCII text
    3  wide int    two's complement, big-endian (beyond 64 bits)

Sorting gives an unchanged set the same bytes again.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from decimal import Decimal
from typing import Any

from msgspec.msgpack import Decoder, Encoder, Ext

from tailrace.storage.tables import Item, Value

SET, DECIMAL, WIDE = 1, 2, 3
_COUNT_BYTES = {0xDC: 3, 0xDD: 5}
"""How many bytes the count of a packed list takes, by the list's first byte, if that byte does not contain the count
itself."""

COUNTED_PER_BYTE = 4
"""The size that a table counts for an item is below this multiple of its packed bytes."""

_LEAVES = frozenset({type(None), bool, int, str, bytes})
_LEAVES_BUT_INT = _LEAVES - {int}


def pack(item: Item, rare: Container[str] | None = None) -> bytes:
    """The bytes of an item.  `rare` names the attributes whose values msgpack does not know, if the caller knows which:
    the others need not be examined."""
    try:
        return _encode(_plain(item, _LEAVES) if rare is None else _partly(item, rare) if rare else item)
    except OverflowError:
        return _encode(_plain(item, _LEAVES_BUT_INT))


def _partly(item: Item, rare: Container[str]) -> dict[str, Any]:
    return {name: _plain(value, _LEAVES) if name in rare else value for name, value in item.items()}


def packed_size(value: Value) -> float:
    """A quick estimate of a value's packed bytes; infinity if there is none."""
    try:
        return len(_encode(value))
    except (OverflowError, TypeError):
        return math.inf


def unpack(body: bytes) -> dict[str, Value]:
    """The item of some bytes."""
    return _decode(body)


def _plain(value: Value, leaves: frozenset[type]) -> Any:
    """A value in types that msgpack knows.  Whole numbers are examined only after one turned out to be too wide, which
    is rare."""
    kind = type(value)
    if kind is list:
        return [v if type(v) in leaves else _plain(v, leaves) for v in value]
    if kind is dict:
        return {k: v if type(v) in leaves else _plain(v, leaves) for k, v in value.items()}
    return value if kind in leaves else _rare(value, leaves)


def members(packed: bytes) -> memoryview:
    """The packed members of a list, one after the other, without their count."""
    data = memoryview(packed)
    return data[_COUNT_BYTES.get(data[0], 1) :]


def _rare(value: Value, leaves: frozenset[type]) -> Any:
    match value:
        case frozenset() | set():
            return Ext(SET, _encode([v if type(v) in leaves else _plain(v, leaves) for v in sorted(value)]))
        case Decimal():
            return Ext(DECIMAL, str(value).encode())
        case int() if not -(2**63) <= value < 2**64:
            return Ext(WIDE, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
        case tuple():
            return _plain(list(value), leaves)
        case Mapping():
            return _plain(dict(value), leaves)
    return value


def _extension(code: int, data: memoryview) -> Value:
    match code:
        case 1:
            return frozenset(_decode_members(data))
        case 2:
            return Decimal(bytes(data).decode())
        case 3:
            return int.from_bytes(data, "big", signed=True)
    raise ValueError(f"no kind of value has the number {code}")


_encode = Encoder().encode
_decode = Decoder(dict[str, Any], ext_hook=_extension).decode
_decode_members = Decoder(list[Any], ext_hook=_extension).decode
