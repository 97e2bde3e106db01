"""Values: how each type's bytes in a rows event become a value, column by column.

A reader takes the event and where the value begins, and gives the value and where it ends.  What has a calendar or a
decimal point becomes the text that SELECT would give, so that `types.typed` makes the same of both.
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
"""How many bytes hold so many decimal digits."""


def fixed(code: str) -> Read:
    """A number of the width that `struct` knows it by."""
    unpack, width = struct.Struct(code).unpack_from, struct.calcsize(code)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + width

    return read


def integer(width: int, *, signed: bool) -> Read:
    """A number of an odd width."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return int.from_bytes(data[at : at + width], "little", signed=signed), at + width

    return read


def year(data: bytes, at: int) -> tuple[Any, int]:
    """A year; 0 is 0000."""
    return (data[at] + 1900 if data[at] else 0), at + 1


def blob(width: int, decode: Callable[[bytes], Any] | None) -> Read:
    """Bytes after their length, perhaps decoded."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        return (data[start:end] if decode is None else decode(data[start:end])), end

    return read


def padded(size: int) -> Callable[[bytes], bytes]:
    """BINARY(n), whose last zeros the log leaves out."""
    return lambda value: value.ljust(size, b"\0")


def json(width: int) -> Read:
    """MySQL's binary JSON as the text that SELECT gives."""
    return blob(width, json_text)


def enum(width: int, values: Sequence[str]) -> Read:
    """One of some texts by its number; 0 is what was none of them."""
    known = ["", *values]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return known[int.from_bytes(data[at : at + width], "little")], at + width

    return read


def some_of(width: int, values: Sequence[str]) -> Read:
    """Some of up to 64 texts by their bits, joined by commas."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        bits = int.from_bytes(data[at : at + width], "little")
        return ",".join(value for n, value in enumerate(values) if bits >> n & 1), at + width

    return read


def bit(meta: int) -> Read:
    """BIT(n) as a number, BIT(1) as a truth."""
    width, alone = (meta >> 8) + bool(meta & 0xFF), meta == 1

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value = int.from_bytes(data[at : at + width], "big")
        return (bool(value) if alone else value), at + width

    return read


def decimal(precision: int, scale: int) -> Read:
    """A decimal as text: groups of nine digits in four bytes, the first and last shorter; the first bit is the sign."""
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
    """A date as text, also one that no calendar has."""
    value = int.from_bytes(data[at : at + 3], "little")
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}", at + 3


def _fraction(digits: int) -> tuple[int, Callable[[int], str]]:
    """How many bytes a fraction of a second has, and how a number of them is written."""
    width = (digits + 1) // 2
    if not digits:
        return 0, lambda value: ""
    scale = 10 ** (width * 2 - digits)
    return width, lambda value: f".{value // scale:0{digits}d}"


def datetime2(digits: int) -> Read:
    """DATETIME(n) as text: sign, year and month, day, hour, minute, second in 40 bits, then the fraction."""
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
    """TIMESTAMP(n) as text in UTC; 0 is the zero date."""
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
    """TIME(n) as text: sign, hour, minute, second in 24 bits, then the fraction; less than zero is a complement."""
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
    """MariaDB's UUID, whose last zeros the log leaves out."""
    return str(uuid.UUID(bytes=value.ljust(16, b"\0")))


def inet_text(size: int) -> Callable[[bytes], str]:
    """MariaDB's INET4 and INET6, written as the C library does."""
    family = socket.AF_INET if size == 4 else socket.AF_INET6

    def decode(value: bytes) -> str:
        return socket.inet_ntop(family, value.ljust(size, b"\0"))

    return decode


def unknown(kind: int, name: str) -> NotReady:
    """What to say of a type that is not known."""
    return NotReady(f"the binlog has the column {name!r} of type {kind}, which is not known; leave its table out")
