"""The reader: copies files in pieces, and then follows them as they grow and new ones come."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.file.source import lines, parquet
from tailrace.adaptors.file.source.csv_lines import csv_rows, delimiter
from tailrace.adaptors.file.source.file_position import FileProgress, is_same, known_files_of, position_of, settled
from tailrace.adaptors.file.source.follower import FileFollower
from tailrace.adaptors.file.source.json_lines import json_rows
from tailrace.adaptors.file.source.listing import FilesPlace, FoundFile
from tailrace.errors import PositionLost
from tailrace.log.record import Mode

SAMPLE = 65536
"""Bytes at the beginning of a file from which the size of its rows is estimated."""


class FileReader(Reader):
    """Reads JSON lines, CSV and Parquet.  The position from `begin` fixes what belongs to the copy: everything that
    exists then.  The reader follows whatever comes later, new files too, so it reads each row once."""

    follows = True
    finite = True

    def __init__(
        self,
        settings: FileSource,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._now, self._sleep = settings, now, sleep
        self._place = FilesPlace.of(settings)
        self._begun: dict[str, FileProgress] | None = None
        self._planned: set[str] = set()

    def check(self) -> None:
        """Raise if the folder or a named file is missing, or a file cannot be read."""
        self._place.check()

    def namespaces(self) -> list[Namespace]:
        """The namespaces of all files, with about how many rows each has."""
        rows: dict[str, int] = {}
        for found in self._place.files():
            with suppress(FileNotFoundError):  # removed since it was listed
                rows[found.namespace] = rows.get(found.namespace, 0) + self._count(found)
        return [Namespace(name, count) for name, count in rows.items()]

    def begin(self, namespaces: Sequence[str]) -> Position:
        """The position with the present extent of each file, which belongs to the copy."""
        self._begun = {}
        for found in self._place.files():
            if found.namespace in namespaces:
                with suppress(FileNotFoundError):  # removed since it was listed
                    self._begun[found.name] = self._measured(found)
        return position_of(self._begun)

    def begun(self, position: Position) -> None:
        """Take what belongs to the copy from a position that `begin` fixed, in this run or an earlier one."""
        self._begun = known_files_of(position)

    def _measured(self, found: FoundFile) -> FileProgress:
        path = self._place.path(found.name)
        if found.format == "parquet":
            if self._settings.follow and not parquet.is_whole(path):
                return FileProgress(found.namespace, found.format)  # the follower waits for it
            end = parquet.groups(path)
        elif self._settings.follow:
            end = lines.whole(path, delimiter=delimiter(path, found.format, self._settings))
        else:
            end = path.stat().st_size
        return FileProgress(found.namespace, found.format, copied=end).at(path, end)

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut the files of a namespace into row groups of Parquet and ranges of bytes of text."""
        self._planned.add(namespace)
        known_files = self._begun
        if known_files is None:
            known_files = {f.name: self._measured(f) for f in self._place.files() if f.namespace == namespace}
        mine = {name: one for name, one in known_files.items() if one.namespace == namespace and one.copied}
        out = [piece for name, progress in mine.items() for piece in self._cut(name, progress, rows)]
        return out or [Piece(namespace)]

    def _cut(self, name: str, progress: FileProgress, rows: int) -> list[Piece]:
        path = self._located(name, progress)
        if progress.format == "parquet":
            ranges = parquet.cuts(path, progress.copied, rows)
        else:
            each = _row_bytes(path)
            between = delimiter(path, progress.format, self._settings)
            cuts = lines.cuts(path, progress.copied, max(1, int(rows * each)), delimiter=between)
            ranges = [(a, b, max(1, int((b - a) / each))) for a, b in cuts]
        return [Piece(progress.namespace, [name, *progress.stored(), a, b], count) for a, b, count in ranges]

    def _located(self, name: str, progress: FileProgress) -> Path:
        """The present path of a file, which may have been renamed.  `PositionLost` if it was changed or is gone."""
        if is_same(self._place.path(name), progress):
            return self._place.path(name)
        for other, moved in settled(self._place, {name: progress}, ()).items():
            if moved is progress:
                return self._place.path(other)
        raise PositionLost(
            f"{self._place.path(name)} was changed or removed while it was being copied, or {socket.gethostname()} has "
            "another folder under this path.  Every machine that runs tasks must have the folder mounted; if the file "
            "itself is gone, what the copy still needs is, too: start a fresh copy under another pipeline's name"
        )

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        if piece.bounds is None:
            return
        name, *stored, start, end = piece.bounds
        progress, now = FileProgress(*stored), int(self._now() * 1000)
        path = self._located(name, progress)
        if progress.format == "parquet":
            yield from parquet.rows(path, start, end, piece.namespace, self._settings, Mode.COPY, now)
            return
        decode = csv_rows if progress.format == "csv" else json_rows
        between = delimiter(path, progress.format, self._settings)
        for at, data in lines.blocks(path, start, end, delimiter=between, rest=True):
            yield from decode(path, at, data, piece.namespace, self._settings, Mode.COPY, now)

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """The changes after a position: lines at the ends of files, and new files."""
        self._planned.update(namespaces)
        self._begun = known_files_of(position)
        return FileFollower(self._place, known_files_of(position), self._planned, self._now).run(self._sleep)

    def _count(self, found: FoundFile) -> int:
        path = self._place.path(found.name)
        if found.format == "parquet":
            return int(pq.read_metadata(path).num_rows) if parquet.is_whole(path) else 0
        return int(path.stat().st_size / _row_bytes(path))


def _row_bytes(path: Path) -> float:
    """About how many bytes a row of a text file has."""
    with path.open("rb") as file:
        sample = file.read(SAMPLE)
    return max(1.0, len(sample) / max(1, sample.count(b"\n")))
