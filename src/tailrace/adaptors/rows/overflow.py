"""Overflow: a list of batches of one large transaction, which keeps in a file what is too much for memory."""

from __future__ import annotations

import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, overload

import pyarrow as pa

from tailrace.errors import StorageError, Unavailable
from tailrace.storage.local.os_errors import explained

MAX_BYTES_IN_MEMORY = 64 * 1024 * 1024


def temporary_file_failed(error: OSError) -> StorageError:
    """The error for a temporary file that the system refuses: a run waits until there is room, and reads the
    transaction again from the source."""
    return explained(
        error, f"a part of a large transaction, in a temporary file in {tempfile.tempdir or 'the folder TMPDIR'}"
    )


class Overflow:
    """A list of batches.  Batches beyond the first `memory` bytes go to a temporary file, and `take` returns a sequence
    that reads each of them when it is accessed.  (The file is not memory-mapped, because a bad sector would then end
    the process.)"""

    def __init__(self, memory: int = MAX_BYTES_IN_MEMORY) -> None:
        self._memory = memory
        self._held: list[pa.RecordBatch | tuple[int, int]] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def __bool__(self) -> bool:
        return bool(self._held)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        self._size += batch.nbytes
        self._held.append(batch if self._size <= self._memory else self._written(batch))

    def _written(self, batch: pa.RecordBatch) -> tuple[int, int]:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            start = self._file.tell()
            with pa.ipc.new_stream(self._file, batch.schema) as writer:
                writer.write_batch(batch)
            return start, self._file.tell() - start
        except OSError as error:
            raise temporary_file_failed(error) from error

    def take(self) -> Sequence[pa.RecordBatch]:
        """Return all batches and empty the list."""
        held, file = self._held, self._file
        self._held, self._size, self._file = [], 0, None
        if file is None:
            return [batch for batch in held if isinstance(batch, pa.RecordBatch)]
        try:
            file.flush()
        except OSError as error:
            raise temporary_file_failed(error) from error
        return _Spilled(held, file)

    def close(self) -> None:
        """Discard all batches, and delete the file."""
        self._held, self._size = [], 0
        if self._file is not None:
            with suppress(OSError):  # it writes what it still holds, even if the disk is full
                self._file.close()
            self._file = None


class LazyBatches(Sequence[pa.RecordBatch]):
    """A sequence whose batches are obtained when they are accessed; a subclass says how, and how many there are."""

    @abstractmethod
    def at(self, index: int) -> pa.RecordBatch:
        """Obtain one batch, by its number from 0."""

    @overload
    def __getitem__(self, index: int) -> pa.RecordBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[pa.RecordBatch]: ...
    def __getitem__(self, index: Any) -> Any:
        found = range(len(self))[index]
        return [self.at(n) for n in found] if isinstance(found, range) else self.at(found)


class _Spilled(LazyBatches):
    """Batches of which some are in a file.  The file has no name, and is deleted with the last reference to this
    sequence."""

    def __init__(self, held: list[pa.RecordBatch | tuple[int, int]], file: IO[bytes]) -> None:
        self._held, self._file = held, file
        weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return len(self._held)

    def at(self, index: int) -> pa.RecordBatch:
        """Return the batch that is held, or read it from the file."""
        entry = self._held[index]
        return entry if isinstance(entry, pa.RecordBatch) else self._read(*entry)

    def _read(self, start: int, size: int) -> pa.RecordBatch:
        try:
            self._file.seek(start)
            data = self._file.read(size)
        except OSError as error:
            raise temporary_file_failed(error) from error
        if len(data) != size:
            raise Unavailable(
                f"a temporary file in {tempfile.gettempdir()} with a part of a large transaction was cut: of {size:,} "
                f"bytes at {start:,} {len(data):,} are there; the transaction is read again from the source"
            )
        return pa.ipc.open_stream(data).read_next_batch()
