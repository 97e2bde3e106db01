"""MySQL's binary JSON: decodes the form in the binlog to the text that SELECT gives.

    a byte of kind, then     small and large objects and arrays, literals, integers of 16 to 64 bits, doubles, texts,
                             and opaque values: another type's number, a length and that type's bytes

The texts must be equal character by character, because the whole row is the id in a table without a key.
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal

from tailrace.errors import Damaged

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = 0, 1, 2, 3, 4
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q", 11: "<d"}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_INLINE = {LITERAL, 5, 6}
TEXT, OPAQUE = 12, 15
DEEPEST = 200
"""MySQL itself stops at 100."""


def json_text(data: bytes) -> str:
    """Return the text of a document; "null" for an empty one, which an invalid default leaves."""
    return _value(data[0], data, 1, 0) if data else "null"


def _value(kind: int, data: bytes, at: int, depth: int) -> str:
    if depth > DEEPEST:
        raise Damaged("a JSON value of the binlog is nested deeper than MySQL writes one")
    if kind in (SMALL_OBJECT, LARGE_OBJECT):
        return _container(data, at, depth, large=kind == LARGE_OBJECT, keyed=True)
    if kind in (SMALL_ARRAY, LARGE_ARRAY):
        return _container(data, at, depth, large=kind == LARGE_ARRAY, keyed=False)
    if kind == LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[kind], data, at)
        return double_text(number) if kind == 11 else str(number)
    if kind == TEXT:
        size, at = _size(data, at)
        return text_json(data[at : at + size].decode())
    if kind == OPAQUE:
        size, start = _size(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise Damaged(f"a JSON value of the binlog has the kind {kind}, which there is none of")


def _container(data: bytes, at: int, depth: int, *, large: bool, keyed: bool) -> str:
    """Return the text of an object or array.

    Its bytes have the count and the size; in objects an offset and a length for each key; then for each value its kind
    and the value itself or its offset."""
    width, code = (4, "<I") if large else (2, "<H")
    (count,) = struct.unpack_from(code, data, at)
    first = at + 2 * width
    entries = first + (count * (width + 2) if keyed else 0)
    parts = []
    for n in range(count):
        here = entries + n * (width + 1)
        kind = data[here]
        if kind in _INLINE or (large and kind in (7, 8)):
            value = _value(kind, data, here + 1, depth + 1)
        else:
            (offset,) = struct.unpack_from(code, data, here + 1)
            value = _value(kind, data, at + offset, depth + 1)
        if keyed:
            key_at = first + n * (width + 2)
            (offset,) = struct.unpack_from(code, data, key_at)
            (size,) = struct.unpack_from("<H", data, key_at + width)
            value = f"{text_json(data[at + offset : at + offset + size].decode())}: {value}"
        parts.append(value)
    inside = ", ".join(parts)
    return f"{{{inside}}}" if keyed else f"[{inside}]"


def _size(data: bytes, at: int) -> tuple[int, int]:
    """Read a length of seven bits a byte; return it and the offset after it."""
    size = shift = 0
    while True:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return size, at


def text_json(text: str) -> str:
    """Quote a text as MySQL does, which escapes only what JSON requires."""
    return json.dumps(text, ensure_ascii=False)


def double_text(number: float) -> str:
    """Write a double as MySQL does: the shortest text that reads back as this number, with a point or an exponent."""
    text = repr(number)
    mantissa, _, exponent = text.partition("e")
    if exponent:
        power = int(exponent)
        return f"{mantissa.removesuffix('.0')}e{power}" if power < -15 or power > 14 else _plain(number)
    if abs(number) >= 1e15:
        return _scientific(text)
    return text


def _plain(number: float) -> str:
    return format(Decimal(repr(number)), "f")


def _scientific(text: str) -> str:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, _, part = digits.partition(".")
    digits = (whole + part).rstrip("0")
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits[0]
    return f"{sign}{mantissa}e{len(whole) - 1}"


def _opaque(kind: int, data: bytes) -> str:
    from tailrace.adaptors.mysql.source import values

    if kind == 246:
        text, _ = values.decimal(data[0], data[1])(data, 2)
        return str(text)
    if kind in (10, 12, 7):
        return text_json(_calendar(kind, struct.unpack("<q", data)[0]))
    if kind == 11:
        return text_json(_clock(struct.unpack("<q", data)[0]))
    return text_json(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _calendar(kind: int, packed: int) -> str:
    whole, micros = packed >> 24, packed & 0xFFFFFF
    ym, day, time = whole >> 22, whole >> 17 & 31, whole & 0x1FFFF
    text = f"{ym // 13:04d}-{ym % 13:02d}-{day:02d}"
    if kind == 10:
        return text
    return f"{text} {time >> 12:02d}:{time >> 6 & 63:02d}:{time & 63:02d}.{micros:06d}"


def _clock(packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    return f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
