"""Disk: the operations on files and folders that the writer needs, in one class so that tests can interrupt them."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Broken, NotReady, TailraceError, Unavailable
from tailrace.storage.local.files import REAL as FILES
from tailrace.storage.local.files import SyncFailed
from tailrace.storage.local.os_errors import NO_DESCRIPTOR
from tailrace.storage.local.os_errors import explained as short_of

NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


class Disk:
    """The operating system's disk.  `make_folder`, `sync`, `replace` and `move` are durable when they return."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and the missing folders above it."""
        if not folder.is_dir():
            self.make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            FILES.sync_folder(folder.parent)

    def sync(self, path: Path) -> None:
        """Make a file's bytes, or a folder's names, durable."""
        if path.is_dir():
            FILES.sync_folder(path)
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            FILES.sync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a small file's bytes atomically."""
        new = path.with_name(f".{path.name}.new")
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            FILES.sync(file.fileno())
        new.replace(path)
        FILES.sync_folder(path.parent)

    def move(self, old: Path, new: Path) -> None:
        """Rename a file or folder.  The new parent folder must exist."""
        os.rename(old, new)
        FILES.sync_folder(new.parent)
        FILES.sync_folder(old.parent)

    def remove(self, path: Path) -> None:
        """Remove a folder with its contents if it exists.  Errors are ignored."""
        shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Hold a lock among all processes of this machine, and wait for it.  The system releases the lock of a process
        that dies."""
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


REAL = Disk()


def check_writable(folder: Path) -> None:
    """Raise if a folder cannot be written into, or not be made.  Leaves nothing behind."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    with tempfile.TemporaryFile(dir=there) as probe:
        probe.write(b"?")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise the operating system's errors as tailrace's: `Unavailable`, `NotReady`, or `Broken` for a failed disk."""
    try:
        yield
    except TailraceError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(f"disk full: {path} takes nothing more; free some space") from error
        if error.errno in NO_DESCRIPTOR:
            raise short_of(error, str(path)) from error
        if isinstance(error, SyncFailed) or error.errno == errno.EIO:
            # The system reports this once and drops the bytes: another attempt would succeed without them.
            raise Broken(f"{path}: the disk failed ({error.strerror}); look at the disk, then run again") from error
        if error.errno in NOT_ALLOWED:
            raise NotReady(f"{error.filename or path}: {error.strerror}; give this user the right to it") from error
        raise Unavailable(f"{error.filename or path}: {error.strerror or error}") from error
