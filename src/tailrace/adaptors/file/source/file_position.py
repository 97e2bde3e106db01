"""Positions of files: how far each file has been read, and whether it is still the same file.

    position = {name: [namespace, format, copied, read, length, check, end]}

`copied` is how much the file had when the copy began, which belongs to the copy; `read` is how much has been read by
now, with the copy.  Both count bytes of a text file and row groups of a Parquet file.  `length` and `check` tell the
file from another of the same name: for text the crc32 of its first bytes, at most 1,024 of those read; for Parquet its
size and the crc32 of its end.  `end` is the crc32 of the last bytes read of a text file, at most 64; -1 if unknown.

    the file has grown                                     it is read on from where it was
    the file was renamed                                   it is read on under its new name; a file with the old name is
                                                           a new file
    it begins otherwise, or too little of it was read      it is a new file, such as rotation makes: read from its start
    it begins the same, but lacks what was read            it was restored from an older copy, or edited: refused
    the file is gone                                       it is forgotten
"""

from __future__ import annotations

import logging
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from tailrace.adaptors.file.settings import Format
from tailrace.adaptors.file.source.listing import FilesPlace, FoundFile
from tailrace.errors import PositionLost

HEAD, END = 1024, 64
"""Bytes at the beginning of a file, and before the place that it was read to, whose checksums recognize the file."""
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
        """The progress as a position has it."""
        return [self.namespace, self.format, self.copied, self.read, self.length, self.check, self.end]

    def at(self, path: Path, read: int) -> FileProgress:
        """The progress after the file was read up to `read`, with the checks of the file as it is now."""
        if self.format == "parquet":
            length, check = footer(path)
        elif self.length == HEAD:
            length, check = self.length, self.check
        else:
            length, check = min(HEAD, read), head(path, min(HEAD, read))
        end = -1 if self.format == "parquet" else ending(path, read)
        return replace(self, read=read, length=length, check=check, end=end)


def known_files_of(position: Mapping[str, Any] | None) -> dict[str, FileProgress]:
    """The progress of the files of a position, by name."""
    return {name: FileProgress(*stored) for name, stored in (position or {}).items()}


def position_of(known_files: Mapping[str, FileProgress]) -> dict[str, Any]:
    """The position with these files."""
    return {name: progress.stored() for name, progress in known_files.items()}


def head(path: Path, length: int) -> int:
    """The crc32 of a text file's first bytes; -1 if it has fewer."""
    with path.open("rb") as file:
        data = file.read(length)
    return zlib.crc32(data) if len(data) == length else -1


def ending(path: Path, read: int) -> int:
    """The crc32 of the last bytes of a text file before the offset `read`."""
    with path.open("rb") as file:
        file.seek(max(0, read - END))
        return zlib.crc32(file.read(min(END, read)))


def footer(path: Path) -> tuple[int, int]:
    """The size of a Parquet file, and the crc32 of its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - HEAD))
        return size, zlib.crc32(file.read())


def is_same(path: Path, progress: FileProgress) -> bool:
    """Whether a path has the file that was read so far."""
    try:
        if progress.format == "parquet":
            now = footer(path)
            return not progress.read or now == (progress.length, progress.check)
        return head(path, progress.length) == progress.check and _has_read(path, progress)
    except FileNotFoundError:
        return False


def _has_read(path: Path, progress: FileProgress) -> bool:
    """Whether a text file still has what was read, as far as its size and the last bytes tell."""
    return path.stat().st_size >= progress.read and progress.end in (-1, ending(path, progress.read))


def is_older(path: Path, progress: FileProgress) -> bool:
    """Whether a text file begins as before but lacks what was read: it was restored from an older copy, or edited."""
    try:
        whole = progress.format != "parquet" and progress.length == HEAD and head(path, HEAD) == progress.check
        return whole and not _has_read(path, progress)
    except FileNotFoundError:
        return False


def settled(
    place: FilesPlace, known_files: Mapping[str, FileProgress], files: Iterable[FoundFile]
) -> dict[str, FileProgress]:
    """The progress of the files that exist now: of known ones under their present names, and of new ones.
    `PositionLost` if a file lacks what was read of it."""
    present = {found.name: found for found in files}
    out = {name: progress for name, progress in known_files.items() if is_same(place.path(name), progress)}
    folders: dict[Path, list[str]] = {}
    for name, progress in known_files.items():
        if name in out:
            continue
        others = (other for other in _renamed(place, name, progress, folders) if other not in out)
        renamed = next((other for other in others if other not in known_files), None)
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


def _renamed(place: FilesPlace, name: str, progress: FileProgress, folders: dict[Path, list[str]]) -> Iterator[str]:
    """The other names under which a file may be now: those in its folder that begin alike and have what was read of it.

    `folders` keeps the sorted names of each folder: thousands of files may go at once."""
    path = place.path(name)
    if not progress.length:
        return
    if path.parent not in folders:
        folders[path.parent] = _names(path.parent)
    names = folders[path.parent]
    others = (names[n] for n in range(bisect_left(names, path.stem), len(names)))
    for other in takewhile(lambda other: other.startswith(path.stem), others):
        if other != path.name and (path.parent / other).is_file() and is_same(path.parent / other, progress):
            yield str((path.parent / other).relative_to(place.root))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
