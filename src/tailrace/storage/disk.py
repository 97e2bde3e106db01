"""DiskObjects: objects as files in a folder of this machine.

An object is written under its final name, which is new: its bytes are made durable, then its name.  Nothing refers to
an object before that, so a half-written one is only rubbish that cleaning removes, and no rename is needed.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tailrace.errors import AlreadyThere, BadName, Broken, Closed, DiskFull, ObjectMissing, TailraceError, Unavailable
from tailrace.storage.files import REAL, Files, make_folders, sync_names
from tailrace.storage.objects import Bytes, ObjectInfo

STEP = 1024 * 1024
"""A large object goes to the disk in steps of so many bytes, so that whoever commits meanwhile does not wait for it."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DiskObjects:
    """Keeps `Objects`.  Any thread, and any number of processes, may use one folder.

    `files` and `sync_names` are for tests: without the latter the names of new objects may not survive a power cut.
    """

    def __init__(self, folder: str | os.PathLike[str], *, files: Files = REAL, sync_names: bool = True) -> None:
        self._folder = Path(folder)
        self._files = files
        self._sync_names = sync_names
        self._refusal: Callable[[], TailraceError] | None = None
        self._syncs: dict[Path, SharedSync] = {}

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name never used before; when this returns they are durable."""
        path = self._path(name)
        try:
            descriptor = self._create(path)
        except FileExistsError:
            raise AlreadyThere(f"there is an object {name!r} already; a name is used once") from None
        except OSError as error:
            raise self._explain(error, name) from error
        try:
            self._fill(descriptor, parts)
            if self._sync_names:
                self._syncs[path.parent].sync()
        except BaseException as error:
            self._discard(path)
            if isinstance(error, OSError):
                raise self._explain(error, name) from error
            raise

    def get(self, name: str) -> memoryview:
        """All bytes of an object, mapped, not copied."""
        path = self._path(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISDIR(status.st_mode):
                    raise ObjectMissing(name)
                size = status.st_size
                return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b"")
            finally:
                os.close(descriptor)
        except MISSING:
            raise ObjectMissing(name) from None
        except OSError as error:
            raise self._explain(error, name) from error

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of several (position, length) ranges of one object; shorter where it ends before."""
        whole = self.get(name)
        return [whole[position : position + length] for position, length in ranges]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects below a folder ("" for all, else ending in '/'), in any order."""
        if prefix and not prefix.endswith("/"):
            raise BadName(f"objects are listed by folder, ending in '/', not {prefix!r}")
        folder = self._path(prefix[:-1]) if prefix else self._usable()
        return _listed(folder, prefix)

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is no error."""
        for name in names:
            path = self._path(name)
            try:
                self._files.remove(path)
            except MISSING:
                continue
            except OSError as error:
                raise self._explain(error, name) from error

    def close(self) -> None:
        """Refuse further calls.  Bytes handed out stay readable."""
        self._refusal = self._refusal or self._closed

    def _usable(self) -> Path:
        if self._refusal is not None:
            raise self._refusal()
        return self._folder

    def _path(self, name: str) -> Path:
        if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
            raise BadName(f"an object's name is a path below its folder, without '.' and '..', not {name!r}")
        return self._usable() / name

    def _create(self, path: Path) -> int:
        if path.parent in self._syncs:
            try:
                return self._files.create(path)
            except FileNotFoundError:
                pass  # somebody has removed the folder since
        make_folders(self._files, path.parent)
        if self._sync_names:
            sync_names(self._files, path.parent)
        self._syncs.setdefault(path.parent, SharedSync(lambda: self._files.sync_folder(path.parent)))
        return self._files.create(path)

    def _fill(self, descriptor: int, parts: Sequence[Bytes]) -> None:
        try:
            at = 0
            for some in in_steps(parts):
                self._files.write(descriptor, some)
                size = sum(map(len, some))
                if at or size >= STEP:
                    self._files.push(descriptor, at, size)
                at += size
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)

    def _discard(self, path: Path) -> None:
        try:
            self._files.remove(path)
        except OSError:
            return  # left to cleaning, as after a crash

    def _explain(self, error: OSError, name: str) -> TailraceError:
        if error.errno in FULL:
            return DiskFull(f"disk full: object {name!r} in {self._folder} was not stored; free some space")
        if error.errno == errno.EIO:
            self._refusal = self._broken
            return self._broken()
        return Unavailable(f"object {name!r} in {self._folder}: {error.strerror or error}")

    def _broken(self) -> TailraceError:
        return Broken(f"{self._folder}: the disk failed (I/O error); look at the disk, then open the home again")

    def _closed(self) -> TailraceError:
        return Closed(f"the objects in {self._folder} were closed")


def in_steps(parts: Sequence[Bytes], step: int = STEP) -> Iterator[list[memoryview]]:
    """Bytes in pieces of so many, the last of fewer; at least one."""
    some: list[memoryview] = []
    size = 0
    for part in parts:
        left = memoryview(part).cast("B")
        while left.nbytes:
            if size >= step:
                yield some
                some, size = [], 0
            some.append(left[: step - size])
            size += some[-1].nbytes
            left = left[some[-1].nbytes :]
    yield some


class SharedSync:
    """A sync that many threads ask for and one does: it serves all who asked before it began."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._asking, self._turn = threading.Lock(), threading.Lock()
        self._asked = self._done = 0

    def sync(self) -> None:
        """Return after a sync that began after this call did."""
        with self._asking:
            self._asked += 1
            mine = self._asked
        with self._turn:
            if self._done < mine:
                covers = self._asked
                self._sync()
                self._done = covers


def _listed(folder: Path, prefix: str) -> Iterator[ObjectInfo]:
    try:
        entries = os.scandir(folder)
    except MISSING:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _listed(folder / entry.name, f"{prefix}{entry.name}/")
            else:
                try:
                    yield ObjectInfo(prefix + entry.name, entry.stat().st_size)
                except FileNotFoundError:
                    continue  # deleted meanwhile
