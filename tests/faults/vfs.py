"""A SQLite VFS that tells of every write, sync, truncate and delete before it is done, and can make it fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

Told = Callable[[str, Path, Any], None]
_numbers = itertools.count()


class WatchedVFS(apsw.VFS):
    """`told(what, path, details)` is called first; what it raises is what SQLite gets.

    open: whether it creates; write: (position, bytes); sync: None; truncate: size; delete: None.
    """

    def __init__(self, told: Told) -> None:
        self.name = f"watched-{next(_numbers)}"
        self.told = told
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> WatchedFile:
        return WatchedFile(self.told, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.told("delete", Path(filename), None)
        super().xDelete(filename, syncdir)


class WatchedFile(apsw.VFSFile):
    """One open file of a WatchedVFS."""

    def __init__(self, told: Told, name: Any, flags: list[int]) -> None:
        self.path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary")
        self.told = told
        if flags[0] & apsw.SQLITE_OPEN_CREATE and not self.path.exists():
            told("create", self.path, None)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.told("write", self.path, (offset, bytes(data)))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self.told("sync", self.path, None)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        self.told("truncate", self.path, newsize)
        super().xTruncate(newsize)


def io_error(code: int) -> apsw.IOError:
    """What a VFS raises for EIO."""
    error = apsw.IOError("injected")
    error.result, error.extendedresult = apsw.SQLITE_IOERR, code
    return error
