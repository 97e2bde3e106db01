"""Files: the few things embedded storage asks of the operating system, in one place so that tests can watch them.

Whatever tailrace makes is for its owner alone: folders 0700, files 0600.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.storage.objects import Bytes

MAX_PARTS_PER_WRITE = 1024
"""Parts that one writev takes (IOV_MAX on Linux and macOS)."""
MAX_BYTES_PER_WRITE = 256 * 1024
"""Bytes of one writev.  Linux looks for contiguous free memory of that size, and once memory is fragmented,
looking for a megabyte can take ten times as long as writing it."""


NOT_OURS = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP}
"""Errors of opening or syncing a folder that others made long ago, and that this user may not even be allowed to
read."""


class SyncFailed(OSError):
    """The system could not make the names in a folder durable.

    The system drops what it could not write and says so only once: the next sync of the same folder can succeed without
    it."""


_NOT_PUSHED = {errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP, errno.EPERM}
"""Errors of file systems and containers that cannot push bytes to the disk."""

_START, _AND_WAIT = 2, 7  # SYNC_FILE_RANGE_WRITE; that, and waiting for it
_push: Any = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)  # Linux
if _push is not None:
    _push.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: a plain fsync does not reach the disk


def _write_all(descriptor: int, left: list[memoryview]) -> None:
    while left:
        written = os.writev(descriptor, left)
        while left and written >= left[0].nbytes:
            written -= left.pop(0).nbytes
        if written:
            left[0] = left[0][written:]


class Files:
    """The operating system's files.  Errors are those of the system (OSError)."""

    def create(self, path: Path) -> int:
        """Create a file; returns its descriptor."""
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """Open a small file for reading and writing, and create it if it is missing; returns its descriptor."""
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def write_at(self, descriptor: int, data: bytes, position: int) -> None:
        """Write a few bytes, at most a sector, at a position."""
        os.pwrite(descriptor, data, position)

    def write(self, descriptor: int, parts: Sequence[Bytes]) -> None:
        """Write all parts, one behind the other, without joining them."""
        some: list[memoryview] = []
        size = 0
        for part in parts:
            whole = memoryview(part).cast("B")
            for start in range(0, whole.nbytes, MAX_BYTES_PER_WRITE):
                some.append(whole[start : start + MAX_BYTES_PER_WRITE])
                size += some[-1].nbytes
                if size >= MAX_BYTES_PER_WRITE or len(some) >= MAX_PARTS_PER_WRITE:
                    _write_all(descriptor, some)
                    some, size = [], 0
        _write_all(descriptor, some)

    def read(self, descriptor: int, into: memoryview, position: int) -> int:
        """Read bytes from a position on; returns how many, none at the end."""
        return os.preadv(descriptor, [into], position)

    def push(self, descriptor: int, at: int, size: int) -> None:
        """Start writing these bytes to the disk, and wait for the same number of bytes before them.

        So when another thread syncs, the disk has at most that much of a large file left to write, and it is never
        idle.  This makes nothing durable; `sync` does.  Where the system cannot do it, nothing happens."""
        for first, how in ((at, _START), (at - size, _AND_WAIT)):
            if _push is not None and first >= 0 and _push(descriptor, first, size, how):
                code = ctypes.get_errno()
                if code not in _NOT_PUSHED:
                    raise OSError(code, os.strerror(code))

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes durable."""
        if _FULL_SYNC is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, _FULL_SYNC)

    def close(self, descriptor: int) -> None:
        """Give up a descriptor."""
        os.close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable; `SyncFailed` if the system could not."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(descriptor)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, str(folder)) from error
        finally:
            os.close(descriptor)

    def make_folder(self, folder: Path) -> bool:
        """Make one folder; returns whether it was new."""
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            return False
        return True

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)


REAL = Files()


def make_folders(files: Files, folder: Path) -> None:
    """Make a folder and those above it; `sync_names` makes them durable."""
    if not folder.is_dir():
        make_folders(files, folder.parent)
        files.make_folder(folder)


def sync_names(files: Files, path: Path) -> None:
    """Make the name of a file or folder durable, and those of the folders above it.

    It does so even if another process created them: that process may not have synced them yet."""
    device = path.stat().st_dev
    for folder in path.absolute().parents:
        try:
            files.sync_folder(folder)
        except OSError as error:
            # A read-only file system above ours has no new names; ours, if read-only, became so because its disk
            # failed.
            elsewhere = error.errno == errno.EROFS and folder.stat().st_dev != device
            if error.errno not in NOT_OURS and not elsewhere:
                raise
