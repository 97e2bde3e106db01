"""Reading: files are copied in pieces, and then followed as they grow and new ones come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.file import lines, parquet
from tailrace.adaptors.file.csvlines import csv_rows, delimiter
from tailrace.adaptors.file.following import Following
from tailrace.adaptors.file.jsonlines import json_rows
from tailrace.adaptors.file.listing import Found, Place
from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.file.tape import Tape, is_same, position_of, settled, tapes_of
from tailrace.errors import PositionLost
from tailrace.log.record import Mode

SAMPLE = 65536


class FileReader(Reader):
    """Reads JSON lines, CSV and Parquet.  The position fixed by `begin` says what belongs to the copy: all that is
    there then.  Whatever comes later, new files too, is followed; so each row is read once."""

    follows: ClassVar[bool] = True

    def __init__(
        self,
        settings: FileSource,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._now, self._sleep = settings, now, sleep
        self._place = Place.of(settings)
        self._begun: dict[str, Tape] | None = None
        self._planned: set[str] = set()

    def check(self) -> None:
        """See that there are files, and that they can be read."""
        self._place.check()

    def namespaces(self) -> list[Namespace]:
        """Every namespace that a file belongs to, with about how many rows it has."""
        rows: dict[str, int] = {}
        for found in self._place.files():
            rows[found.namespace] = rows.get(found.namespace, 0) + self._count(found)
        return [Namespace(name, count) for name, count in rows.items()]

    def begin(self, namespaces: Sequence[str]) -> Position:
        """All that is there now belongs to the copy."""
        self._begun = {
            found.name: self._measured(found) for found in self._place.files() if found.namespace in namespaces
        }
        return position_of(self._begun)

    def begun(self, position: Position) -> None:
        """What belongs to the copy, as an earlier run has fixed it."""
        self._begun = tapes_of(position)

    def _measured(self, found: Found) -> Tape:
        path = self._place.path(found.name)
        if found.format == "parquet":
            end = parquet.groups(path)
        elif self._settings.follow:
            end = lines.whole(path, delimiter=delimiter(path, found.format, self._settings))
        else:
            end = path.stat().st_size
        return Tape(found.namespace, found.format, copied=end).at(path, end)

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Row groups of Parquet, ranges of bytes of others."""
        self._planned.add(namespace)
        tapes = self._begun
        if tapes is None:
            tapes = {f.name: self._measured(f) for f in self._place.files() if f.namespace == namespace}
        mine = {name: tape for name, tape in tapes.items() if tape.namespace == namespace}
        out = [piece for name, tape in mine.items() for piece in self._cut(name, tape, rows)]
        return out or [Piece(namespace)]

    def _cut(self, name: str, tape: Tape, rows: int) -> list[Piece]:
        path = self._located(name, tape)
        if tape.format == "parquet":
            ranges = parquet.cuts(path, tape.copied, rows)
        else:
            size = max(1, int(rows * _row_bytes(path)))
            between = delimiter(path, tape.format, self._settings)
            ranges = [(a, b, None) for a, b in lines.cuts(path, tape.copied, size, delimiter=between)]
        return [Piece(tape.namespace, [name, *tape.stored(), a, b], count) for a, b, count in ranges]

    def _located(self, name: str, tape: Tape) -> Path:
        """Where a file is now; it may have been renamed since."""
        if is_same(self._place.path(name), tape):
            return self._place.path(name)
        for other, moved in settled(self._place, {name: tape}, ()).items():
            if moved is tape:
                return self._place.path(other)
        raise PositionLost(
            f"{self._place.path(name)} was changed or removed while it was being copied; what the copy still needs of "
            "it is gone: start a fresh copy under another pipeline's name"
        )

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of one piece."""
        if piece.bounds is None:
            return
        name, *stored, start, end = piece.bounds
        tape, now = Tape(*stored), int(self._now() * 1000)
        path = self._located(name, tape)
        if tape.format == "parquet":
            yield from parquet.rows(path, start, end, piece.namespace, self._settings, Mode.COPY, now)
            return
        decode = csv_rows if tape.format == "csv" else json_rows
        between = delimiter(path, tape.format, self._settings)
        for at, data in lines.blocks(path, start, end, delimiter=between, rest=True):
            yield from decode(path, at, data, piece.namespace, self._settings, Mode.COPY, now)

    def follow(self, position: Position, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        """What comes after a position: lines at the end of files, and new files."""
        self._planned.update(namespaces)
        self._begun = tapes_of(position)
        return Following(self._place, tapes_of(position), self._planned, self._now).run(self._sleep)

    def _count(self, found: Found) -> int:
        path = self._place.path(found.name)
        if found.format == "parquet":
            return int(pq.read_metadata(path).num_rows) if parquet.is_whole(path) else 0
        return int(path.stat().st_size / _row_bytes(path))


def _row_bytes(path: Path) -> float:
    """About how many bytes a row has."""
    with path.open("rb") as file:
        sample = file.read(SAMPLE)
    return max(1.0, len(sample) / max(1, sample.count(b"\n")))
