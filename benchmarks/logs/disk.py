"""Plain files: what the disk can do when nothing else is asked of it."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.contract import Pair, timed_each
from benchmarks.load import KEY, VALUE, Load


class Disk:
    """One file; every write is followed by fdatasync."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def append(self, load: Load) -> int:
        """The load's bytes in blocks of 4 MiB."""
        done = 0
        for block in load.blocks:
            done += os.write(self.file, block)
            os.fdatasync(self.file)
        return done // (KEY + VALUE)

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """A write and an fdatasync for each record."""
        return timed_each(self._append_one, pairs, at_once)

    def _append_one(self, key: bytes, value: bytes) -> None:
        os.write(self.file, key + value)
        os.fdatasync(self.file)

    def read(self) -> tuple[int, int]:
        """The file in blocks of 4 MiB."""
        size = 0
        while block := os.pread(self.file, 4 << 20, size):
            size += len(block)
        return size // (KEY + VALUE), size // (KEY + VALUE) * VALUE

    def pairs(self) -> Iterable[Pair]:
        """The file, cut into records."""
        whole = self.path.read_bytes()
        for start in range(0, len(whole), KEY + VALUE):
            yield whole[start : start + KEY], whole[start + KEY : start + KEY + VALUE]

    def count(self) -> int:
        """By the file's size."""
        return os.fstat(self.file).st_size // (KEY + VALUE)


class DiskInPlace(Disk):
    """The same for single appends, over bytes that are there already: no file grows, no metadata changes."""

    SIZE = 64 << 20
    done = 0

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """Like Disk's, somewhere in a file that was written in full before."""
        file = os.open(self.path.with_suffix(".full"), os.O_RDWR | os.O_CREAT)
        try:
            self._fill(file)
            places = iter(range(0, self.SIZE, KEY + VALUE))
            each = timed_each(lambda key, value: _overwrite(file, key + value, next(places)), pairs, at_once)
            self.done += len(each)
            return each
        finally:
            os.close(file)

    def count(self) -> int:
        """Its own tally, since the file never grows."""
        return self.done

    def _fill(self, file: int) -> None:
        if os.fstat(file).st_size < self.SIZE:
            os.write(file, bytes(self.SIZE))
        os.fsync(file)


def _overwrite(file: int, record: bytes, place: int) -> None:
    os.pwrite(file, record, place)
    os.fdatasync(file)


@contextlib.contextmanager
def connect(address: str, kind: type[Disk] = Disk) -> Iterator[Disk]:
    """A new file in the folder."""
    disk = kind(Path(address) / uuid.uuid4().hex)
    try:
        yield disk
    finally:
        os.close(disk.file)
