"""Tapes: how far each file has been read, and whether it is still the same file.

    position = {name: [namespace, format, copied, read, length, check]}

`copied`: so much was there when the copy began, and belongs to it; `read`: so much has been read by now, copy included.
Both are bytes of text files and row groups of Parquet.  `length` and `check` tell a file from another of the same name:
for text the crc32 of its first bytes, at most 1,024 of those read; for Parquet its size and the crc32 of its end.

    it has grown             it is read on from where it was
    it was renamed           it is read on under its new name, and what has its old name now is a new file
    it is shorter, or begins otherwise    it is a new file, read from its start
    it is gone               it is forgotten
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tailrace.adaptors.file.listing import Found, Place
from tailrace.adaptors.file.settings import Format

HEAD = 1024
_log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class Tape:
    """How far one file has been read."""

    namespace: str
    format: Format
    copied: int = 0
    read: int = 0
    length: int = 0
    check: int = 0

    def stored(self) -> list[Any]:
        """As it is kept in a position."""
        return [self.namespace, self.format, self.copied, self.read, self.length, self.check]

    def at(self, path: Path, read: int) -> Tape:
        """The same, read up to here."""
        if self.format == "parquet":
            length, check = footer(path)
        elif self.length == HEAD:
            length, check = self.length, self.check
        else:
            length, check = min(HEAD, read), head(path, min(HEAD, read))
        return replace(self, read=read, length=length, check=check)


def tapes_of(position: Mapping[str, Any] | None) -> dict[str, Tape]:
    """The tapes that a position holds."""
    return {name: Tape(*stored) for name, stored in (position or {}).items()}


def position_of(tapes: Mapping[str, Tape]) -> dict[str, Any]:
    """A position that holds some tapes."""
    return {name: tape.stored() for name, tape in tapes.items()}


def head(path: Path, length: int) -> int:
    """The check of a text file's first bytes; -1 if it has fewer."""
    with path.open("rb") as file:
        data = file.read(length)
    return zlib.crc32(data) if len(data) == length else -1


def footer(path: Path) -> tuple[int, int]:
    """A Parquet file's size and the check of its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - HEAD))
        return size, zlib.crc32(file.read())


def is_same(path: Path, tape: Tape) -> bool:
    """Whether this is the file that a tape is about."""
    try:
        if tape.format == "parquet":
            return not tape.read or footer(path) == (tape.length, tape.check)
        return path.stat().st_size >= tape.read and head(path, tape.length) == tape.check
    except FileNotFoundError:
        return False


def settled(place: Place, tapes: Mapping[str, Tape], files: Iterable[Found]) -> dict[str, Tape]:
    """The tapes of the files that are there now: of those known, by the names they now have, and of new ones."""
    present = {found.name: found for found in files}
    out = {name: tape for name, tape in tapes.items() if is_same(place.path(name), tape)}
    for name, tape in tapes.items():
        if name in out:
            continue
        renamed = _renamed(place, name, tape, {*out, *tapes} - {name})
        if renamed is not None:
            out[renamed] = tape
        elif place.path(name).exists():
            _log.warning("%s is another file than it was, or was cut: it is read from its start", place.path(name))
    for name, found in present.items():
        out.setdefault(name, Tape(found.namespace, found.format))
    return out


def _renamed(place: Place, name: str, tape: Tape, taken: set[str]) -> str | None:
    """The name that a file now has, beside its old one; a file of which nothing was read need not be found."""
    path = place.path(name)
    if not tape.length or not path.parent.is_dir():
        return None
    for other in sorted(path.parent.iterdir()):
        relative = str(other.relative_to(place.root))
        named_alike = other.name.startswith(path.stem) and other.is_file()
        if named_alike and relative not in taken and is_same(other, tape):
            return relative if relative != name else None
    return None
