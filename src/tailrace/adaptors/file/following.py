"""Following files: what has come since, file by file, each step with the position after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.file import lines, parquet
from tailrace.adaptors.file.decoding import csv_rows, is_object, json_rows
from tailrace.adaptors.file.listing import Place
from tailrace.adaptors.file.tape import Tape, position_of, settled
from tailrace.errors import BadInput
from tailrace.log.record import Mode

PATIENCE = 30.0
"""Seconds that a Parquet file may stay as it is without its end."""

_log = logging.getLogger("tailrace")
Step = tuple[list[pa.RecordBatch], int]
"""Some rows, and how far the file has been read with them."""


def follow_files(
    place: Place,
    tapes: dict[str, Tape],
    wanted: set[str],
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[Changes]:
    """Changes for ever; an empty one when nothing has come.  `wanted` grows as new namespaces are accepted."""
    incomplete: dict[str, tuple[int, float]] = {}
    offered: set[str] = set()
    while not place.settings.follow:
        yield Changes((), position_of(tapes))
        sleep(place.settings.poll_seconds)
    while True:
        found = list(place.files())
        new = sorted({f.namespace for f in found} - wanted - offered)
        if new:
            offered.update(new)
            yield Changes((), position_of(tapes), appeared=new)
        tapes = settled(place, tapes, [f for f in found if f.namespace in wanted])
        for name in sorted(tapes):
            path = place.path(name)
            for rows, read in _steps(place, path, tapes[name], incomplete, int(now() * 1000)):
                tapes[name] = tapes[name].at(path, read)
                yield Changes(rows, position_of(tapes), committed_at=int(path.stat().st_mtime * 1000))
        yield Changes((), position_of(tapes))
        sleep(place.settings.poll_seconds)


def _steps(place: Place, path: Path, tape: Tape, incomplete: dict[str, tuple[int, float]], now: int) -> Iterator[Step]:
    if tape.format == "parquet":
        return _groups(place, path, tape, incomplete, now)
    return _lines(place, path, tape, now)


def _lines(place: Place, path: Path, tape: Tape, now: int) -> Iterator[Step]:
    """Whole lines; of JSON also a last one that has no end but is whole."""
    size = path.stat().st_size
    if size <= tape.read:
        return
    quoted = tape.format == "csv"
    decode = csv_rows if quoted else json_rows
    start = _past_end(path, tape.read)
    at = start
    for offset, data in lines.blocks(path, start, size, quoted=quoted, rest=True):
        if lines.last_end(data, quoted) != len(data) and (quoted or not is_object(data)):
            break
        at = offset + len(data)
        yield decode(path, offset, data, tape.namespace, place.settings, Mode.SYNC, now), at
    if at == start and start > tape.read:
        yield [], start


def _past_end(path: Path, read: int) -> int:
    """Where the next line begins: past the end of the last one, if that was read before it had its end."""
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


def _groups(place: Place, path: Path, tape: Tape, incomplete: dict[str, tuple[int, float]], now: int) -> Iterator[Step]:
    """A new Parquet file, once it is whole, one row group at a time."""
    if tape.read and tape.length == path.stat().st_size:
        count = parquet.groups(path)
    elif parquet.is_whole(path):
        count = parquet.groups(path)
        incomplete.pop(str(path), None)
    else:
        _wait_for_end(path, incomplete)
        return
    for n in range(tape.read, count):
        yield list(parquet.rows(path, n, n + 1, tape.namespace, place.settings, Mode.SYNC, now)), n + 1


def _wait_for_end(path: Path, incomplete: dict[str, tuple[int, float]]) -> None:
    size = path.stat().st_size
    before, since = incomplete.get(str(path), (-1, 0.0))
    if before != size:
        incomplete[str(path)] = (size, time.monotonic())
    elif time.monotonic() - since > PATIENCE:
        raise BadInput(f"{path} is not a whole Parquet file, and has not grown for {PATIENCE:.0f} s; remove or mend it")
