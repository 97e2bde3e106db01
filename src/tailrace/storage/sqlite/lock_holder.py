"""The process that holds SQLite's write lock, for the error of a writer that has waited too long.

A process holds the lock from the beginning of a commit to the end of its fsync, and at no other time.  A process that
is stopped or hangs just then keeps all other writers waiting: the lock cannot be taken from it, since it may go on at
any moment.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_WRITE_LOCK = 120
"""The byte of the shared memory file that a writer locks."""

_LOCK = re.compile(r"POSIX +ADVISORY +WRITE +(\d+) +\S+:(\d+) +(\d+) +(\d+|EOF)")


def holder(database: Path, proc: Path = Path("/proc")) -> str | None:
    """The process that holds the lock, what it is doing, and what to do about it; None if that is not known.

    It reads only the system's list of locks: opening and closing the file would give up this process's own locks."""
    try:
        inode = os.stat(f"{database}-shm").st_ino
        locks = (proc / "locks").read_text()
    except OSError:
        return None
    for pid, found, first, last in _LOCK.findall(locks):
        if int(found) == inode and int(first) <= _WRITE_LOCK and (last == "EOF" or int(last) >= _WRITE_LOCK):
            return _named(proc / pid, int(pid))
    return None


def _named(process: Path, pid: int) -> str | None:
    try:
        name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    state = rest.split()[0]
    if state in "Tt":
        return (
            f"process {pid} ({name}), which is stopped in the middle of a commit; `kill -CONT {pid}` lets it go on, "
            f"`kill -9 {pid}` ends it, and what it was committing never happened"
        )
    return f"process {pid} ({name})"
