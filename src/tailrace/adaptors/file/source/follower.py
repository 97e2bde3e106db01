"""The follower of files: gives what has come since a position, with the position after it.

A position has all files.  So what has come to many small files is given together: with a position for each of them, ten
thousand new files would take as many positions of ten thousand files.

Files come, go and get other names at any time, also between the look that found a file and the opening of its path.  A
file that is gone by then, or whose path has another file, is left to the next look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.file.source import lines, parquet
from tailrace.adaptors.file.source.csv_lines import csv_rows, delimiter
from tailrace.adaptors.file.source.file_position import FileProgress, is_same, position_of, settled
from tailrace.adaptors.file.source.json_lines import is_object, json_rows
from tailrace.adaptors.file.source.listing import FilesPlace
from tailrace.adaptors.rows.overflow import Overflow
from tailrace.errors import BadInput
from tailrace.log.record import Mode

PATIENCE = 30.0
"""How many seconds an incomplete Parquet file may go without growing."""

SETTLED = 60.0
"""How many seconds after a file's last change a last line of CSV without its end counts as whole."""

MOST_STEPS, MOST_BYTES, MOST_SECONDS = 1000, 8 * 1024 * 1024, 0.5
"""The most steps that are given together, about how many bytes of rows, and how long the first of them waits."""

_log = logging.getLogger("tailrace")
Rows = Sequence[pa.RecordBatch]
Step = tuple[Rows, int]
"""Rows, and how far the file is read with them.  Very many rows are no list: they are in a temporary file."""


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
        given = _Given()
        try:
            for name in sorted(self._known_files):
                for rows, progress, changed_at in self._read(name):
                    if given.steps and not isinstance(rows, list):
                        yield given.taken(position_of(self._known_files))
                    self._known_files[name] = progress
                    given.add(rows, changed_at)
                    if given.enough():
                        yield given.taken(position_of(self._known_files))
        except Exception:
            if given.steps:  # one bad file does not keep back the others
                yield given.taken(position_of(self._known_files))
            raise
        if given.steps:
            yield given.taken(position_of(self._known_files))

    def _read(self, name: str) -> Iterator[tuple[Rows, FileProgress, int]]:
        """What has come to a file, step by step, with the progress after it and the time of the file's last change."""
        path = self._place.path(name)
        try:
            file = path.stat().st_ino
            for rows, read in self._steps(path, self._known_files[name]):
                progress, status = self._known_files[name].at(path, read), path.stat()
                if status.st_ino != file:
                    return
                yield rows, progress, int(status.st_mtime * 1000)
        except FileNotFoundError:
            return

    def _steps(self, path: Path, progress: FileProgress) -> Iterator[Step]:
        return self._groups(path, progress) if progress.format == "parquet" else self._lines(path, progress)

    # -- text
    def _lines(self, path: Path, progress: FileProgress) -> Iterator[Step]:
        """The rows of whole lines, and of a last line without its end if it counts as whole."""
        size = path.stat().st_size
        if size <= progress.read or not is_same(path, progress):
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
        groups = parquet.groups(path)
        if progress.read < groups and not is_same(path, progress):
            return
        for n in range(progress.read, groups):
            now = int(self._now() * 1000)
            with closing(Overflow(MOST_BYTES)) as rows:
                for batch in parquet.rows(path, n, n + 1, progress.namespace, self._place.settings, Mode.SYNC, now):
                    rows.append(batch)
                yield rows.take(), n + 1

    def _wait(self, path: Path) -> None:
        size = path.stat().st_size
        before, since = self._waiting.get(path, (-1, 0.0))
        if before != size:
            self._waiting[path] = (size, time.monotonic())
        elif time.monotonic() - since > PATIENCE:
            raise BadInput(f"{path} is not a whole Parquet file, nor has it grown for {PATIENCE:.0f} s; remove it")


class _Given:
    """Rows that are given together."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._rows: Rows = []
        self.steps = self._bytes = self._changed_at = 0
        self._since = 0.0

    def add(self, rows: Rows, changed_at: int) -> None:
        """Add the rows of a step, of a file that was changed at this time.  Rows that are no list must be the first."""
        self._since = self._since if self.steps else time.monotonic()
        self._rows = [*self._rows, *rows] if self.steps else rows
        self.steps += 1
        self._bytes += sum(batch.nbytes for batch in rows) if isinstance(rows, list) else MOST_BYTES
        self._changed_at = max(self._changed_at, changed_at)

    def enough(self) -> bool:
        """Whether the rows must be given now."""
        waited = time.monotonic() - self._since
        return self.steps >= MOST_STEPS or self._bytes >= MOST_BYTES or waited >= MOST_SECONDS

    def taken(self, position: dict[str, Any]) -> Changes:
        """Return the rows with the position after them, and start collecting the next ones."""
        changes = Changes(self._rows, position, committed_at=self._changed_at)
        self._clear()
        return changes


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
