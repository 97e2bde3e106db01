"""Values: functions that read the values of each column type from a rows event.

Each takes the event and the offset of the value, and returns the value and the offset after it.  Dates, times and
decimals become the text that SELECT would give, so that `types.typed` makes the same value of both.
"""

from __future__ import annotations

import datetime
import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.adaptors.mysql.source.json_binary import json_text
from tailrace.errors import NotReady

Read = Callable[[bytes, int], tuple[Any, int]]
_EPOCH = datetime.datetime(1970, 1, 1)
_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""The number of bytes that hold 0, 1, 2, … 9 decimal digits."""


def fixed(code: str) -> Read:
    """Return the function that reads a number with a format of `struct`."""
    unpack, width = struct.Struct(code).unpack_from, struct.calcsize(code)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + width

    return read


def integer(width: int, *, signed: bool) -> Read:
    """Return the function that reads an integer of a width that `struct` does not have."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return int.from_bytes(data[at : at + width], "little", signed=signed), at + width

    return read


def year(data: bytes, at: int) -> tuple[Any, int]:
    """Read a YEAR; the byte 0 is the year 0000."""
    return (data[at] + 1900 if data[at] else 0), at + 1


def blob(width: int, decode: Callable[[bytes], Any] | None) -> Read:
    """Return the function that reads bytes after a length of `width` bytes, and passes them to `decode` if given."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        return (data[start:end] if decode is None else decode(data[start:end])), end

    return read


def padded(size: int) -> Callable[[bytes], bytes]:
    """Return the decoder of BINARY(n): it restores the zeros at the end, which the binlog leaves out."""
    return lambda value: value.ljust(size, b"\0")


def json(width: int) -> Read:
    """Return the function that reads binary JSON as the text that SELECT gives."""
    return blob(width, json_text)


def enum(width: int, values: Sequence[str]) -> Read:
    """Return the function that reads an ENUM as its text; number 0, an invalid value, is ""."""
    known = ["", *values]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return known[int.from_bytes(data[at : at + width], "little")], at + width

    return read


def some_of(width: int, values: Sequence[str]) -> Read:
    """Return the function that reads a SET as its texts, joined by commas."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        bits = int.from_bytes(data[at : at + width], "little")
        return ",".join(value for n, value in enumerate(values) if bits >> n & 1), at + width

    return read


def bit(meta: int) -> Read:
    """Return the function that reads BIT(n) as a number, BIT(1) as a boolean."""
    width, alone = (meta >> 8) + bool(meta & 0xFF), meta == 1

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value = int.from_bytes(data[at : at + width], "big")
        return (bool(value) if alone else value), at + width

    return read


def decimal(precision: int, scale: int) -> Read:
    """Return the function that reads a DECIMAL as text.

    Its bytes hold nine digits in four; the first and the last group may be shorter.  The first bit is the sign."""
    whole, odd = divmod(precision - scale, 9)
    widths = [_DIGITS[odd]] * bool(odd) + [4] * whole
    part, rest = divmod(scale, 9)
    places = [(4, 9)] * part + [(_DIGITS[rest], rest)] * bool(rest)
    size = sum(widths) + sum(width for width, _ in places)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        raw = data[at : at + size]
        negative = not raw[0] & 0x80
        flipped = bytes([raw[0] ^ 0x80]) + raw[1:]
        if negative:
            flipped = bytes(byte ^ 0xFF for byte in flipped)
        start, number = 0, 0
        for width in widths:
            number = number * 1_000_000_000 + int.from_bytes(flipped[start : start + width], "big")
            start += width
        text = f"-{number}" if negative else str(number)
        if places:
            text += "."
            for width, digits in places:
                text += f"{int.from_bytes(flipped[start : start + width], 'big'):0{digits}d}"
                start += width
        return text, at + size

    return read


def date(data: bytes, at: int) -> tuple[Any, int]:
    """Read a DATE as text, also one that no calendar has."""
    value = int.from_bytes(data[at : at + 3], "little")
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}", at + 3


def _fraction(digits: int) -> tuple[int, Callable[[int], str]]:
    """Return the number of bytes of a fraction of a second, and the function that writes the fraction as text."""
    width = (digits + 1) // 2
    if not digits:
        return 0, lambda value: ""
    scale = 10 ** (width * 2 - digits)
    return width, lambda value: f".{value // scale:0{digits}d}"


def datetime2(digits: int) -> Read:
    """Return the function that reads DATETIME(n) as text.

    Its bytes hold sign, year and month, day, hour, minute and second in 40 bits, then the fraction."""
    width, written = _fraction(digits)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        end = at + 5 + width
        ym, day, time = value >> 22, value >> 17 & 31, value & 0x1FFFF
        text = (
            f"{ym // 13:04d}-{ym % 13:02d}-{day:02d} {time >> 12:02d}:{time >> 6 & 63:02d}:{time & 63:02d}"
            f"{written(int.from_bytes(data[at + 5 : end], 'big'))}"
        )
        return text, end

    return read


def timestamp2(digits: int) -> Read:
    """Return the function that reads TIMESTAMP(n) as text in UTC; 0 is the zero date."""
    width, written = _fraction(digits)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        end = at + 4 + width
        fraction = written(int.from_bytes(data[at + 4 : end], "big"))
        if not seconds:
            return f"0000-00-00 00:00:00{fraction}", end
        return f"{_EPOCH + datetime.timedelta(seconds=seconds)}{fraction}", end

    return read


def time2(digits: int) -> Read:
    """Return the function that reads TIME(n) as text.

    Its bytes hold sign, hour, minute and second in 24 bits, then the fraction; a negative time is a complement."""
    width, written = _fraction(digits)
    bits = 8 * width
    zero = 0x800000 << bits

    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + 3 + width
        value = int.from_bytes(data[at:end], "big") - zero
        sign, value = ("-", -value) if value < 0 else ("", value)
        time = value >> bits
        text = f"{sign}{time >> 12 & 1023:02d}:{time >> 6 & 63:02d}:{time & 63:02d}{written(value & (1 << bits) - 1)}"
        return text, end

    return read


def uuid_text(value: bytes) -> str:
    """Decode MariaDB's UUID; restore the zeros at the end, which the binlog leaves out."""
    return str(uuid.UUID(bytes=value.ljust(16, b"\0")))


def inet_text(size: int) -> Callable[[bytes], str]:
    """Return the decoder of MariaDB's INET4 (size 4) and INET6 (size 16); it writes addresses as the C library does."""
    family = socket.AF_INET if size == 4 else socket.AF_INET6

    def decode(value: bytes) -> str:
        return socket.inet_ntop(family, value.ljust(size, b"\0"))

    return decode


def unknown(kind: int, name: str) -> NotReady:
    """Return the error for a column of an unknown type."""
    return NotReady(f"the binlog has the column {name!r} of type {kind}, which is not known; leave its table out")
