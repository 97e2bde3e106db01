"""Lines: finds whole rows of a growing text file by their byte offsets.

A row ends with its line, but in CSV a value in quotes may contain line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

from tailrace.errors import BadInput

BLOCK = 4 * 1024 * 1024
"""Bytes that one read of a text file returns, at most."""
LONGEST = 64 * 1024 * 1024
"""The most bytes of a row.  Decoded, it can need some twenty times as many."""


def row_ends(data: bytes, delimiter: str | None) -> Iterator[int]:
    """The end of each whole row in bytes that begin with a row.  With a delimiter they are CSV."""
    if delimiter is None or b'"' not in data:
        at = 0
        while at := data.find(b"\n", at) + 1:
            yield at
        return
    row, at = _row(delimiter), 0
    while match := row.match(data, at):
        at = match.end()
        yield at


@cache
def _row(delimiter: str) -> re.Pattern[bytes]:
    """The pattern of a whole row: values, in quotes or not, with delimiters between them, and the line end.  A quote in
    the middle of a value is an ordinary character."""
    between = re.escape(delimiter).encode()
    value = rb'(?>"[^"]*+(?:""[^"]*+)*+"[^D\n]*+|[^"D\n][^D\n]*+|)'.replace(b"D", between)
    return re.compile(value + rb"(?:" + between + value + rb")*+\n")


def last_end(data: bytes, delimiter: str | None) -> int:
    """The end of the last whole row in bytes that begin with a row; 0 if there is none."""
    if delimiter is None or b'"' not in data:
        return data.rfind(b"\n") + 1
    return max(row_ends(data, delimiter), default=0)


def blocks(
    path: Path, start: int, end: int, *, delimiter: str | None, rest: bool = False
) -> Iterator[tuple[int, bytes]]:
    """The whole rows between two offsets, as blocks of (offset, bytes).  With `rest` the last block may have a row
    without its end."""
    with path.open("rb") as file:
        file.seek(start)
        at, data = start, b""
        while at + len(data) < end:
            # Twice as much each time a row is not whole yet: so its bytes are searched and copied twice at most.
            more = file.read(min(max(BLOCK, len(data)), end - at - len(data)))
            data += more
            cut = last_end(data, delimiter)
            if cut:
                yield at, data[:cut]
                at, data = at + cut, data[cut:]
            elif len(data) > LONGEST:
                raise too_long(path, at)
            if not more:
                break
        if rest and data:
            yield at, data


def too_long(path: Path, at: int) -> BadInput:
    """The error for a row of a text file with more bytes than `LONGEST`."""
    return BadInput(f"{path}: a row of more than {LONGEST >> 20} MiB at byte {at}; is this the right format?")


def whole(path: Path, *, delimiter: str | None) -> int:
    """The offset after the last whole row of a file."""
    size = path.stat().st_size
    if delimiter is None:
        return _last_newline(path, size)
    at = 0
    for offset, data in blocks(path, 0, size, delimiter=delimiter):
        at = offset + len(data)
    return at


def _last_newline(path: Path, size: int) -> int:
    with path.open("rb") as file:
        at = size
        while at > 0:
            begin = max(0, at - BLOCK)
            file.seek(begin)
            found = file.read(at - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            at = begin
    return 0


def cuts(path: Path, end: int, size: int, *, delimiter: str | None) -> list[tuple[int, int]]:
    """Cut the bytes before `end` into ranges of whole rows with about `size` bytes each."""
    if delimiter is not None:
        return _row_cuts(path, end, size, delimiter)
    out, at = [], 0
    with path.open("rb") as file:
        while at < end:
            to = min(end, _line_end(path, file, at + size, end))
            out.append((at, to))
            at = to
    return out


def _row_cuts(path: Path, end: int, size: int, delimiter: str) -> list[tuple[int, int]]:
    out, begin = [], 0
    for offset, data in blocks(path, 0, end, delimiter=delimiter, rest=True):
        for cut in row_ends(data, delimiter):
            if offset + cut - begin >= size:
                out.append((begin, offset + cut))
                begin = offset + cut
    return [*out, (begin, end)] if begin < end else out


def _line_end(path: Path, file: BinaryIO, near: int, end: int) -> int:
    """The first line end from an offset on.  Never holds the whole line in memory."""
    at = near - 1
    file.seek(at)
    while at < end and (data := file.read(BLOCK)):
        if (found := data.find(b"\n")) >= 0:
            return at + found + 1
        if (at := at + len(data)) - near > LONGEST:
            raise too_long(path, near)
    return end


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at an offset; the first line is 1."""
    count, left = 1, offset
    with path.open("rb") as file:
        while left and (data := file.read(min(BLOCK, left))):
            count += data.count(b"\n")
            left -= len(data)
    return count
