"""Overflow: batches of one large transaction, on disk where they are too many for memory."""

from __future__ import annotations

import mmap
import tempfile
from typing import IO

import pyarrow as pa

MAX_BYTES_IN_MEMORY = 64 * 1024 * 1024


class Overflow:
    """A list of batches.  What is beyond `memory` bytes is in a file, and is mapped when the list is taken."""

    def __init__(self, memory: int = MAX_BYTES_IN_MEMORY) -> None:
        self._memory = memory
        self._held: list[pa.RecordBatch | tuple[int, int]] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def __bool__(self) -> bool:
        return bool(self._held)

    def append(self, batch: pa.RecordBatch) -> None:
        """One more."""
        self._size += batch.nbytes
        self._held.append(batch if self._size <= self._memory else self._written(batch))

    def _written(self, batch: pa.RecordBatch) -> tuple[int, int]:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        start = self._file.tell()
        with pa.ipc.new_stream(self._file, batch.schema) as writer:
            writer.write_batch(batch)
        return start, self._file.tell() - start

    def take(self) -> list[pa.RecordBatch]:
        """All of them, and begin again."""
        held, self._held, self._size = self._held, [], 0
        if self._file is None:
            return [batch for batch in held if isinstance(batch, pa.RecordBatch)]
        self._file.flush()
        # The mapping outlives the file, which has no name, for as long as a batch needs it.
        whole = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        self._file.close()
        self._file = None
        return [entry if isinstance(entry, pa.RecordBatch) else _mapped(whole, *entry) for entry in held]

    def close(self) -> None:
        """Forget everything."""
        self._held, self._size = [], 0
        if self._file is not None:
            self._file.close()
            self._file = None


def _mapped(whole: pa.Buffer, start: int, size: int) -> pa.RecordBatch:
    return pa.ipc.open_stream(whole.slice(start, size)).read_next_batch()
