"""The follower of files: gives what has come since a position, file by file, each step with the position after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.file.source import lines, parquet
from tailrace.adaptors.file.source.csv_lines import csv_rows, delimiter
from tailrace.adaptors.file.source.file_position import FileProgress, position_of, settled
from tailrace.adaptors.file.source.json_lines import is_object, json_rows
from tailrace.adaptors.file.source.listing import FilesPlace
from tailrace.errors import BadInput
from tailrace.log.record import Mode

PATIENCE = 30.0
"""How many seconds an incomplete Parquet file may go without growing."""

SETTLED = 60.0
"""How many seconds after a file's last change a last line of CSV without its end counts as whole."""

_log = logging.getLogger("tailrace")
Step = tuple[list[pa.RecordBatch], int]
"""Rows, and how far the file is read with them."""


class FileFollower:
    """Follows the files of a place.  `wanted` are the namespaces to follow; the reader adds new ones."""

    def __init__(
        self, place: FilesPlace, known_files: dict[str, FileProgress], wanted: set[str], now: Callable[[], float]
    ) -> None:
        self._place, self._known_files, self._wanted, self._now = place, known_files, wanted, now
        self._offered: set[str] = set()
        self._waiting: dict[Path, tuple[int, float]] = {}

    def run(self, sleep: Callable[[float], None]) -> Iterator[Changes]:
        """The files' changes, without end; one without rows after each look at the files."""
        while True:
            if self._place.settings.follow:
                yield from self._look()
            ended = () if self._place.settings.follow else sorted(self._wanted)
            yield Changes((), position_of(self._known_files), ended=ended)
            sleep(self._place.settings.poll_seconds)

    def _look(self) -> Iterator[Changes]:
        found = list(self._place.files())
        if new := sorted({f.namespace for f in found} - self._wanted - self._offered):
            self._offered.update(new)
            yield Changes((), position_of(self._known_files), appeared=new)
        self._known_files = settled(self._place, self._known_files, [f for f in found if f.namespace in self._wanted])
        for name in sorted(self._known_files):
            yield from self._read(name)

    def _read(self, name: str) -> Iterator[Changes]:
        path = self._place.path(name)
        for rows, read in self._steps(path, self._known_files[name]):
            self._known_files[name] = self._known_files[name].at(path, read)
            yield Changes(rows, position_of(self._known_files), committed_at=int(path.stat().st_mtime * 1000))

    def _steps(self, path: Path, progress: FileProgress) -> Iterator[Step]:
        return self._groups(path, progress) if progress.format == "parquet" else self._lines(path, progress)

    # -- text
    def _lines(self, path: Path, progress: FileProgress) -> Iterator[Step]:
        """The rows of whole lines, and of a last line without its end if it counts as whole."""
        size = path.stat().st_size
        if size <= progress.read:
            return
        between = delimiter(path, progress.format, self._place.settings)
        decode = json_rows if between is None else csv_rows
        start = past_end(path, progress.read)
        for at, data in lines.blocks(path, start, size, delimiter=between, rest=True):
            if lines.last_end(data, between) == len(data) or self._is_whole(path, data, between):
                now = int(self._now() * 1000)
                yield decode(path, at, data, progress.namespace, self._place.settings, Mode.SYNC, now), at + len(data)
            elif path not in self._waiting:
                self._waiting[path] = (size, 0.0)
                _log.warning("%s: the last line has no end, and waits for it; is it complete? follow = false", path)

    def _is_whole(self, path: Path, data: bytes, delimiter: str | None) -> bool:
        """Whether a last line without its end counts as whole: a JSON object at once, a line of CSV once the file has
        not changed for a while."""
        return is_object(data) if delimiter is None else self._now() - path.stat().st_mtime > SETTLED

    # -- Parquet
    def _groups(self, path: Path, progress: FileProgress) -> Iterator[Step]:
        """The rows of a file once it is complete, one row group at a time."""
        if not progress.read and not parquet.is_whole(path):
            self._wait(path)
            return
        for n in range(progress.read, parquet.groups(path)):
            now = int(self._now() * 1000)
            yield list(parquet.rows(path, n, n + 1, progress.namespace, self._place.settings, Mode.SYNC, now)), n + 1

    def _wait(self, path: Path) -> None:
        size = path.stat().st_size
        before, since = self._waiting.get(path, (-1, 0.0))
        if before != size:
            self._waiting[path] = (size, time.monotonic())
        elif time.monotonic() - since > PATIENCE:
            raise BadInput(f"{path} is not a whole Parquet file, nor has it grown for {PATIENCE:.0f} s; remove it")


def past_end(path: Path, read: int) -> int:
    """The offset of the next line: after the end of the last line, if that was read without its end.  `BadInput` if
    that line has grown since."""
    if not read:
        return 0
    with path.open("rb") as file:
        file.seek(read - 1)
        before, after = file.read(1), file.read(2)
    if before == b"\n":
        return read
    if after[:1] not in (b"\n", b"\r"):
        raise BadInput(
            f"{path}, line {lines.line_number(path, read)}: it was whole when it was read, and has grown since; write "
            "each line at once, with its end"
        )
    return read + (2 if after == b"\r\n" else 1)
