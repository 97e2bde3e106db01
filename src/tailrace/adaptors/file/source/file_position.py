"""Positions of files: how far each file has been read, and whether it is still the same file.

    position = {name: [namespace, format, copied, read, length, check, end]}

`copied`: so much was there when the copy began, and belongs to it; `read`: so much has been read by now, copy included.
Both are bytes of text files and row groups of Parquet.  `length` and `check` tell a file from another of the same name:
for text the crc32 of its first bytes, at most 1,024 of those read; for Parquet its size and the crc32 of its end.
`end` is the crc32 of the last bytes of text read, at most 64; -1: not known.

    it has grown             it is read on from where it was
    it was renamed           it is read on under its new name, and what has its old name now is a new file
    it begins otherwise, or is too short to tell     it is a new file, as rotation leaves one: read from its start
    it begins the same, but lacks what was read      it was restored from an older copy, or edited: refused
    it is gone               it is forgotten
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tailrace.adaptors.file.settings import Format
from tailrace.adaptors.file.source.listing import FilesPlace, FoundFile
from tailrace.errors import PositionLost

HEAD, END = 1024, 64
_log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class FileProgress:
    """How far one file has been read."""

    namespace: str
    format: Format
    copied: int = 0
    read: int = 0
    length: int = 0
    check: int = 0
    end: int = -1

    def stored(self) -> list[Any]:
        """As it is kept in a position."""
        return [self.namespace, self.format, self.copied, self.read, self.length, self.check, self.end]

    def at(self, path: Path, read: int) -> FileProgress:
        """The same, read up to here."""
        if self.format == "parquet":
            length, check = footer(path)
        elif self.length == HEAD:
            length, check = self.length, self.check
        else:
            length, check = min(HEAD, read), head(path, min(HEAD, read))
        end = -1 if self.format == "parquet" else ending(path, read)
        return replace(self, read=read, length=length, check=check, end=end)


def known_files_of(position: Mapping[str, Any] | None) -> dict[str, FileProgress]:
    """The files that a position knows."""
    return {name: FileProgress(*stored) for name, stored in (position or {}).items()}


def position_of(known_files: Mapping[str, FileProgress]) -> dict[str, Any]:
    """A position that knows some files."""
    return {name: progress.stored() for name, progress in known_files.items()}


def head(path: Path, length: int) -> int:
    """The check of a text file's first bytes; -1 if it has fewer."""
    with path.open("rb") as file:
        data = file.read(length)
    return zlib.crc32(data) if len(data) == length else -1


def ending(path: Path, read: int) -> int:
    """The check of the last bytes of a text file that were read."""
    with path.open("rb") as file:
        file.seek(max(0, read - END))
        return zlib.crc32(file.read(min(END, read)))


def footer(path: Path) -> tuple[int, int]:
    """A Parquet file's size and the check of its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - HEAD))
        return size, zlib.crc32(file.read())


def is_same(path: Path, progress: FileProgress) -> bool:
    """Whether this is the file that was read so far."""
    try:
        if progress.format == "parquet":
            return not progress.read or footer(path) == (progress.length, progress.check)
        return head(path, progress.length) == progress.check and _has_read(path, progress)
    except FileNotFoundError:
        return False


def _has_read(path: Path, progress: FileProgress) -> bool:
    """Whether all that was read is still there."""
    return path.stat().st_size >= progress.read and progress.end in (-1, ending(path, progress.read))


def is_older(path: Path, progress: FileProgress) -> bool:
    """Whether a text file begins as it did, and lacks what was read of it: from an older copy, or edited."""
    try:
        whole = progress.format != "parquet" and progress.length == HEAD and head(path, HEAD) == progress.check
        return whole and not _has_read(path, progress)
    except FileNotFoundError:
        return False


def settled(
    place: FilesPlace, known_files: Mapping[str, FileProgress], files: Iterable[FoundFile]
) -> dict[str, FileProgress]:
    """The known_files of the files that are there now: of those known, by the names they now have, and of new ones."""
    present = {found.name: found for found in files}
    out = {name: progress for name, progress in known_files.items() if is_same(place.path(name), progress)}
    for name, progress in known_files.items():
        if name in out:
            continue
        renamed = _renamed(place, name, progress, {*out, *known_files} - {name})
        if renamed is not None:
            out[renamed] = progress
        elif is_older(place.path(name), progress):
            raise PositionLost(
                f"{place.path(name)} is not what was read up to byte {progress.read:,}: it begins the same, and then "
                "lacks some of that.  It was restored from an older copy, or edited.  Put back the file that was read; "
                "or give this one a name of its own, under which it is read from its start"
            )
        elif place.path(name).exists():
            _log.warning("%s is another file than it was, or was cut: it is read from its start", place.path(name))
    for name, found in present.items():
        out.setdefault(name, FileProgress(found.namespace, found.format))
    return out


def _renamed(place: FilesPlace, name: str, progress: FileProgress, taken: set[str]) -> str | None:
    """The name that a file now has, beside its old one; a file of which nothing was read need not be found."""
    path = place.path(name)
    if not progress.length or not path.parent.is_dir():
        return None
    for other in sorted(path.parent.iterdir()):
        relative = str(other.relative_to(place.root))
        named_alike = other.name.startswith(path.stem) and other.is_file()
        if named_alike and relative not in taken and is_same(other, progress):
            return relative if relative != name else None
    return None
