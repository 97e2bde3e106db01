"""Operating system errors: turns them into tailrace's, for a full disk, no file descriptor left, and all other
causes."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import apsw

from tailrace.errors import DiskFull, StorageError, TooManyFiles, Unavailable

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}

_SHARED_MEMORY = {
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMMAP,
}
"""SQLite could not open or grow its shared memory file, which holds nothing durable."""


def explained(error: OSError, what: str) -> StorageError:
    """The error that a caller gets; `what` names the thing that was not stored, read or opened."""
    if error.errno in FULL:
        return DiskFull(f"disk full: {what}, and nothing was written; free some space")
    if error.errno in NO_DESCRIPTOR:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return TooManyFiles(
            f"{what}: no file descriptor is left, this process may have {limit} at once; raise the limit "
            "(`ulimit -n 4096`), or open fewer files, homes and connections; nothing was written"
        )
    return Unavailable(f"{what}: {error.strerror or error}")


def shortage(error: apsw.Error, connection: apsw.Connection | None, path: Path) -> StorageError | None:
    """The error for a file that SQLite could not open or map because the disk is full or no descriptor is left; None
    for other causes.

    SQLite tries a second time to open a file, for reading only, which hides the first error.  So this function asks the
    system whether a descriptor and an inode are left."""
    if not isinstance(error, apsw.CantOpenError) and getattr(error, "extendedresult", 0) not in _SHARED_MEMORY:
        return None
    code = connection.system_errno if connection is not None else 0
    for found in (code, _no_descriptor(), _no_inode(path.parent)):
        if found in FULL | NO_DESCRIPTOR:
            return explained(OSError(found, os.strerror(found)), str(path))
    return None


def _no_descriptor() -> int:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or 0
    return 0


def _no_inode(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return errno.ENOSPC if status.f_files and not status.f_favail else 0
