"""Segments: files of entries, named by their first offset, `%020d.log`.

A segment has up to 1 GiB and is written whole: under another name, made durable, then renamed.  Only the last segment
of a partition may have a torn end.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tailrace.errors import AlreadyThere, Damaged, DiskFull, StorageError, TooLarge
from tailrace.log.interchange.entry import (
    BATCH_BYTES,
    FIXED_ENTRY_BYTES,
    damaged,
    declared,
    decode,
    encode,
    is_zero,
    joined,
)
from tailrace.storage.local.files import REAL, Files, make_folders

SEGMENT_BYTES = 1 << 30


@dataclass(slots=True)
class Exported:
    """What was written of one partition: offsets from `first` up to `next`."""

    partition: int
    first: int
    next: int
    records: int = 0
    segments: int = 0
    bytes: int = 0


def segment_name(first: int) -> str:
    """The name of the segment that begins with this offset."""
    return f"{first:020d}.log"


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Translate the operating system's errors about a segment's file into tailrace's."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
        raise kind(f"{what}: {error.strerror or error}") from error


class SegmentWriter:
    """Writes the segments of one partition.  Use it in a `with` block; a segment that was not closed is removed."""

    def __init__(
        self, folder: Path, partition: int, first: int, limit: int = SEGMENT_BYTES, files: Files = REAL
    ) -> None:
        self._folder, self._limit, self._files = folder, limit, files
        self.done = Exported(partition, first, first)
        self._path, self._size = folder, 0
        self._descriptor: int | None = None

    def __enter__(self) -> SegmentWriter:
        with explained(f"cannot write to {self._folder}"):
            make_folders(self._files, self._folder.absolute())
            if any(self._folder.glob("*.log")):
                raise AlreadyThere(f"{self._folder} has segments already; choose another folder, or remove them")
            for rest in self._folder.glob("*.part"):
                self._files.remove(rest)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._files.remove(self._part)

    def add(self, batch: pa.RecordBatch) -> None:
        """The next records, with their offsets."""
        entries, offsets = encode(batch), batch.column("offset")
        if not self.done.records:
            self.done.first = offsets[0].as_py()
        places = memoryview(entries.buffers()[1]).cast("q")
        at = 0
        while at < len(entries):
            if self._descriptor is None:
                self._open(offsets[at].as_py())
            fit = bisect_right(places, places[at] + self._limit - self._size) - 1
            upto = max(fit, at + (self._size == 0))  # an entry over the limit has a segment of its own
            self._write(joined(entries.slice(at, upto - at)))
            if upto < len(entries):
                self.close()
            at = upto
        self.done.records += len(entries)
        self.done.next = offsets[-1].as_py() + 1

    @property
    def _part(self) -> Path:
        return self._path.with_suffix(".part")

    def _open(self, first: int) -> None:
        self._path, self._size = self._folder / segment_name(first), 0
        with explained(f"cannot write {self._part}"):
            self._descriptor = self._files.create(self._part)

    def _write(self, data: memoryview) -> None:
        assert self._descriptor is not None
        with explained(f"cannot write {self._part}"):
            self._files.write(self._descriptor, [data])
        self._size += len(data)

    def close(self) -> None:
        """Complete the segment that is being written: make it durable and rename it to its final name."""
        if self._descriptor is None:
            return
        with explained(f"cannot write {self._part}"):
            self._files.sync(self._descriptor)
            self._files.close(self._descriptor)
            self._descriptor = None
            self._part.rename(self._path)
            self._files.sync_folder(self._folder)
        self.done.segments += 1
        self.done.bytes += self._size


def read_segments(paths: list[Path], torn: list[str], max_entry_bytes: int = SEGMENT_BYTES) -> Iterator[pa.RecordBatch]:
    """The entries of a partition's segments, in order.  A torn end of the last segment is cut, and noted in `torn`.

    `TooLarge` where an entry claims more bytes than are allowed: no memory is allocated for it."""
    last = -1
    for path in paths:
        with explained(f"cannot read {path}"), path.open("rb", buffering=0) as file:
            source = _SegmentSource(file.fileno(), str(path), os.fstat(file.fileno()).st_size, max_entry_bytes)
            at = 0
            while (batch := source.next(at, last)).num_rows:
                if at == 0:
                    _check_first(path, batch.column(0)[0].as_py())
                yield batch
                at, last = source.at, batch.column(0)[-1].as_py()
            if at < source.size:
                _cut(path, at, source.size, last, torn, is_last=path == paths[-1])


@dataclass(slots=True)
class _SegmentSource:
    """A segment that is read block by block."""

    descriptor: int
    where: str
    size: int
    max_entry_bytes: int
    at: int = 0

    def next(self, at: int, last: int) -> pa.RecordBatch:
        """The entries from a position on, about a block of them; none at the end, whole or torn."""
        data = self._read(at, BATCH_BYTES)
        batch, used = decode(data, 0, last, self.where, base=at, more=at + len(data) < self.size)
        if not batch.num_rows and at + len(data) < self.size:
            if is_zero(data):
                self._check_zero(at, last)
                return batch
            data = self._read(at, self._declared(data, at))
            batch, used = decode(data, 0, last, self.where, base=at, more=at + len(data) < self.size)
        self.at = at + used
        return batch

    def _read(self, at: int, length: int) -> bytes:
        parts = []
        while length > 0 and (part := os.pread(self.descriptor, length, at)):
            parts.append(part)
            at, length = at + len(part), length - len(part)
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _declared(self, data: bytes, at: int) -> int:
        """The declared size of an entry that does not fit into a block."""
        offset, size = declared(data)
        if size > self.max_entry_bytes + FIXED_ENTRY_BYTES:
            raise TooLarge(
                f"{self.where}: the entry of offset {offset}, at {at}, says that it has {size:,} bytes, over the "
                f"topic's max_record_bytes of {self.max_entry_bytes:,}; "
                "`tailrace topic set NAME max_record_bytes=…` allows more"
            )
        return size

    def _check_zero(self, at: int, last: int) -> None:
        """Raise `Damaged` unless the rest of the file is zeros, allocated but never written."""
        here = at
        while data := self._read(here, BATCH_BYTES):
            if not is_zero(data):
                raise damaged(bytes(FIXED_ENTRY_BYTES), 0, last, self.where, at)
            here += len(data)


def _check_first(path: Path, offset: int) -> None:
    if path.name != segment_name(offset):
        raise Damaged(
            f"{path}: its first entry, at 0, has the offset {offset}, and its name says another",
            where=str(path),
            position=0,
        )


def _cut(path: Path, at: int, size: int, last: int, torn: list[str], *, is_last: bool) -> None:
    after = f"after the entry of offset {last}" if last >= 0 else "before any entry"
    what = f"{path}: torn at {at}, {after}; the last {size - at} bytes are no whole entry"
    if not is_last:
        raise Damaged(f"{what}, and more segments follow; take the file from a copy", where=str(path), position=at)
    torn.append(what)
