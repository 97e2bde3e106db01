"""Watermark: how many frames of a WAL were committed, in a file of its own beside it.

    <database>-mark    "tailmark", the WAL's salts (8 bytes), frames (4), crc32 of these (4); zeros: nothing is known

SQLite cannot tell a WAL that was cut short from one that was never longer.  Its shared memory file could, but it is not
always copied with a home, and after a power cut it says nothing.  So after each commit, once it is durable, the writer
notes the length of the WAL.  It does not sync the note, which would double the cost of a commit: the note survives a
kill, and it survives a power cut unless the commit was made in the last half minute or so.  It may be too low, but is
never too high.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.storage.local.files import Files

WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
"""Bytes of a WAL's header, and of a frame's before its page."""

_MAGIC = b"tailmark"
_SIZE = 24
"""Bytes of the watermark's file."""


class CommittedFrames(NamedTuple):
    """How many frames were committed, of a WAL with these salts."""

    frames: int
    salts: bytes


def path_of(database: Path) -> Path:
    """The path of a database's watermark."""
    return database.with_name(database.name + "-mark")


def read(database: Path) -> CommittedFrames | None:
    """What a watermark says; None if it says nothing."""
    try:
        data = path_of(database).read_bytes()[:_SIZE]
    except OSError:
        return None
    if len(data) < _SIZE or data[:8] != _MAGIC or struct.unpack_from(">I", data, 20)[0] != zlib.crc32(data[:20]):
        return None
    return CommittedFrames(struct.unpack_from(">I", data, 16)[0], data[8:16])


def clear(database: Path, files: Files) -> None:
    """Durably forget the note about a WAL that SQLite has removed since: the next WAL is empty at first."""
    if read(database) is not None:
        descriptor = files.open(path_of(database))
        try:
            files.write_at(descriptor, bytes(_SIZE), 0)
            files.sync(descriptor)
        finally:
            files.close(descriptor)


class Watermark:
    """Writes the watermark.  The database's only writer uses it; its WAL exists, and stays until the writer is
    closed."""

    def __init__(self, database: Path, files: Files) -> None:
        self._files = files
        self._wal = os.open(database.with_name(database.name + "-wal"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._mark = files.open(path_of(database))
        except BaseException:
            os.close(self._wal)
            raise
        self._header = b""
        self.frames = 0
        """How many frames the WAL has after the commit under way; 0 if the commit changed nothing."""

    def begin(self) -> None:
        """Called when a transaction has begun: until it ends no other process writes the WAL."""
        self.frames, self._header = 0, b""
        with suppress(OSError):
            self._header = os.pread(self._wal, WAL_HEADER_BYTES, 0)

    def committed(self) -> None:
        """Note that the commit is durable.  Another process may have begun the next commit already, at the start of the
        WAL: then it is unclear to which commit the frames belong, and nothing is noted."""
        if not self.frames:
            return
        with suppress(OSError):  # the former note stays true, and the commit is durable without a new one
            header = self._header or os.pread(self._wal, WAL_HEADER_BYTES, 0)
            first = bool(self._header) or header[12:16] == bytes(4)  # the WAL has never restarted
            page = struct.unpack_from(">I", header, 8)[0]
            frame = os.pread(
                self._wal, FRAME_HEADER_BYTES, WAL_HEADER_BYTES + (self.frames - 1) * (FRAME_HEADER_BYTES + page)
            )
            if first and frame[8:16] == header[16:24]:
                data = _MAGIC + header[16:24] + struct.pack(">I", self.frames)
                self._files.write_at(self._mark, data + struct.pack(">I", zlib.crc32(data)), 0)

    def close(self) -> None:
        """Close the watermark's files."""
        os.close(self._wal)
        self._files.close(self._mark)
