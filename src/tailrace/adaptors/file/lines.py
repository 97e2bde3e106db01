"""Lines: whole rows of a growing text file, by their byte offsets.

A row ends with its line.  In CSV a line may go on inside quotes: it ends where the quotes before it are even.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tailrace.errors import BadInput

BLOCK = 4 * 1024 * 1024
LONGEST = 256 * 1024 * 1024
"""Bytes that a row may have."""


def last_end(data: bytes, quoted: bool) -> int:
    """The end of the last whole row in some bytes that begin with one; 0 if there is none."""
    end = data.rfind(b"\n") + 1
    while quoted and end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end


def blocks(path: Path, start: int, end: int, *, quoted: bool, rest: bool = False) -> Iterator[tuple[int, bytes]]:
    """The whole rows between two offsets: (offset, bytes) again and again.  With `rest` the last may have no end."""
    with path.open("rb") as file:
        file.seek(start)
        at, data = start, b""
        while at + len(data) < end:
            more = file.read(min(BLOCK, end - at - len(data)))
            data += more
            cut = last_end(data, quoted)
            if cut:
                yield at, data[:cut]
                at, data = at + cut, data[cut:]
            elif len(data) > LONGEST:
                raise BadInput(
                    f"{path}: a row of more than {LONGEST >> 20} MiB at byte {at}; is this the right format?"
                )
            if not more:
                break
        if rest and data:
            yield at, data


def whole(path: Path, *, quoted: bool) -> int:
    """The offset after the last whole row."""
    size = path.stat().st_size
    if not quoted:
        return _last_newline(path, size)
    at = 0
    for offset, data in blocks(path, 0, size, quoted=True):
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


def cuts(path: Path, end: int, size: int, *, quoted: bool) -> list[tuple[int, int]]:
    """Ranges of about `size` bytes that begin and end with whole rows, up to an offset."""
    if quoted:
        return _even_cuts(path, end, size)
    out, at = [], 0
    with path.open("rb") as file:
        while at < end:
            to = min(end, _line_end(file, at + size, end))
            out.append((at, to))
            at = to
    return out


def _even_cuts(path: Path, end: int, size: int) -> list[tuple[int, int]]:
    out, begin = [], 0
    for offset, data in blocks(path, 0, end, quoted=True, rest=True):
        at = 0
        while offset + len(data) - begin >= size:
            near = max(at, begin + size - offset)
            cut = _next_end(data, near)
            if not cut:
                break
            out.append((begin, offset + cut))
            begin, at = offset + cut, cut
    return [*out, (begin, end)] if begin < end else out


def _next_end(data: bytes, near: int) -> int:
    """The first end of a whole row at or after a place; the data begins with a whole row."""
    end = data.find(b"\n", max(0, near - 1)) + 1
    while end and data.count(b'"', 0, end) % 2:
        end = data.find(b"\n", end) + 1
    return end


def _line_end(file: BinaryIO, near: int, end: int) -> int:
    if near >= end:
        return end
    file.seek(near - 1)
    return near - 1 + len(file.readline())


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at an offset, as an editor counts them."""
    count, left = 1, offset
    with path.open("rb") as file:
        while left and (data := file.read(min(BLOCK, left))):
            count += data.count(b"\n")
            left -= len(data)
    return count
