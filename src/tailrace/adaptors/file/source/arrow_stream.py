"""Arrow streams from untrusted sources: checks how much memory each message needs before Arrow decodes it."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from tailrace.adaptors.file.source.bounded import MEMORY_BYTES, pieces
from tailrace.errors import BadInput, OutOfMemory
from tailrace.log.format.arrow_message import about, body_length

METADATA_BYTES = 16 * 1024 * 1024
MOST_ROWS = 1 << 20
"""A message with more rows than this must have at least one bit for each.  A column of nulls has no bytes, and could
say that it has any number of rows."""


def arrow_batches(stream: IO[bytes], name: str, memory: int = MEMORY_BYTES) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, in small pieces.  `BadInput` if it is damaged or a message needs more than `memory`."""
    checked = Messages(stream, name, memory)
    try:
        for batch in pa.ipc.open_stream(pa.PythonFile(checked, mode="r")):
            batch.validate(full=True)
            yield from pieces(batch)
    except MemoryError as error:
        raise OutOfMemory(f"{name}: there is not enough memory to decode it: {error}") from error
    except (pa.ArrowException, OSError) as error:
        if checked.refused is not None:
            raise checked.refused from None
        raise _damaged(name, " ".join(str(error).split())) from None


class Messages(io.RawIOBase):
    """A file for Arrow to read, which checks each message of a stream before it gives its bytes."""

    def __init__(self, stream: IO[bytes], name: str, memory: int) -> None:
        self._stream, self._name, self._memory = stream, name, memory
        self._dictionaries = 0
        self._message = memoryview(b"")
        self.refused: BadInput | None = None
        """The error of a refused message; None while all were good."""

    def readable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes; fewer than `size` only at the end of the stream."""
        if not self._message:
            self._message = memoryview(self._next())
        size = len(self._message) if size is None or size < 0 else size
        data, self._message = self._message[:size], self._message[size:]
        return bytes(data) if len(data) == size or not data else bytes(data) + self.read(size - len(data))

    def _next(self) -> bytes:
        prefix = self._stream.read(4)
        if prefix == b"\xff\xff\xff\xff":
            prefix += self._stream.read(4)
        if len(prefix) not in (4, 8):
            return prefix
        length = struct.unpack("<i", prefix[-4:])[0]
        if length == 0:
            return prefix
        if not 0 < length <= METADATA_BYTES:
            raise self._refuse(_damaged(self._name, f"a message's metadata has {length:,} bytes"))
        metadata = self._stream.read(length)
        try:
            return prefix + metadata + self._body(metadata)
        except (struct.error, IndexError):
            raise self._refuse(_damaged(self._name, "a message's metadata is none")) from None

    def _body(self, metadata: bytes) -> bytes:
        if not 0 <= body_length(metadata) <= self._memory:
            raise self._refuse(self._too_large(f"a message has {body_length(metadata):,} bytes"))
        body = self._stream.read(body_length(metadata))
        told = about(metadata, body)
        self._dictionaries += max(told.inflated, told.body) if told.is_dictionary else 0
        if max(told.inflated, self._dictionaries) > self._memory:
            needs = max(told.inflated, self._dictionaries)
            raise self._refuse(self._too_large(f"a message needs {needs:,} bytes once uncompressed"))
        if told.rows > max(MOST_ROWS, 8 * max(told.body, told.inflated)):
            raise self._refuse(_damaged(self._name, f"a message says that it has {told.rows:,} rows, in few bytes"))
        return body

    def _too_large(self, why: str) -> BadInput:
        return BadInput(
            f"{self._name}: {why}, and at most {self._memory:,} are decoded at a time; write it again in smaller "
            "record batches, if it is not damaged"
        )

    def _refuse(self, error: BadInput) -> BadInput:
        self.refused = error
        return error


def _damaged(name: str, why: str) -> BadInput:
    return BadInput(f"{name} is no arrow file, or is damaged: {why}")
