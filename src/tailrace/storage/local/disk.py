"""DiskObjects: objects as files in a folder of this machine.

An object is written under its final name, which is new: its bytes are made durable, then its name.  Nothing refers to
an object before that, so a half-written one is just rubbish that cleaning removes, and no rename is needed.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tailrace.errors import AlreadyThere, BadName, Broken, Closed, Damaged, ObjectMissing, TailraceError
from tailrace.storage.local.files import REAL, Files, SyncFailed, make_folders, sync_names
from tailrace.storage.local.os_errors import FULL, explained
from tailrace.storage.objects import Bytes, ObjectInfo

BYTES_PER_STEP = 1024 * 1024
"""A large object goes to the disk in steps of this many bytes, so that commits do not wait for all of it."""
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DiskObjects:
    """Keeps `Objects`.  Any thread, and any number of processes, may use one folder.

    `files` and `sync_names` are for tests: without `sync_names` the names of new objects may not survive a power cut.
    """

    def __init__(self, folder: str | os.PathLike[str], *, files: Files = REAL, sync_names: bool = True) -> None:
        self._folder = Path(folder)
        self._files = files
        self._sync_names = sync_names
        self._refusal: Callable[[], TailraceError] | None = None
        self._syncs: dict[Path, SharedSync] = {}
        self._making = threading.Lock()
        self._failed_sync: SyncFailed | None = None

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name never used before; when this returns they are durable."""
        path = self._path(name)
        failed_before = self._failed_sync
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
            if (failed := self._failed_sync) is not None and failed is not failed_before:
                raise SyncFailed(*failed.args)
        except BaseException as error:
            self._discard(path)
            if isinstance(error, OSError):
                raise self._explain(error, name) from error
            raise

    def get(self, name: str) -> memoryview:
        """All bytes of an object."""
        return self._read(name, None)[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of several (position, length) ranges of one object; shorter where it ends before."""
        return self._read(name, ranges)

    def _read(self, name: str, ranges: Sequence[tuple[int, int]] | None) -> list[memoryview]:
        """Read a file's bytes.  They are copied, not mapped: a mapping keeps a descriptor, and a sector that cannot be
        read would kill the process that touches it."""
        path = self._path(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISDIR(status.st_mode):
                    raise ObjectMissing(name)
                wanted = ((0, status.st_size),) if ranges is None else ranges
                return [self._read_range(descriptor, name, *one, status.st_size) for one in wanted]
            finally:
                os.close(descriptor)
        except MISSING:
            raise ObjectMissing(name) from None
        except TailraceError:
            raise
        except OSError as error:
            raise self._explain(error, name) from error

    def _read_range(self, descriptor: int, name: str, position: int, length: int, size: int) -> memoryview:
        from pyarrow import allocate_buffer  # loading Arrow takes longer than a command that reads no object

        # Arrow's allocator reuses memory, which the system then need not clear first.
        length = max(0, min(length, size - position))
        data = memoryview(allocate_buffer(length)).cast("B")
        done = 0
        while done < length:
            try:
                count = self._files.read(descriptor, data[done:], position + done)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise Damaged(
                    f"the disk cannot read object {name!r} in {self._folder} from byte {position + done:,} on "
                    "(I/O error); restore it from a copy",
                    where=name,
                    position=position + done,
                ) from error
            if not count:
                break
            done += count
        return data[:done]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects below a folder ("" for all, else ending in '/'), in any order."""
        if prefix and not prefix.endswith("/"):
            raise BadName(f"objects are listed by folder, ending in '/', not {prefix!r}")
        folder = self._path(prefix[:-1]) if prefix else self._usable()
        return self._listed(folder, prefix)

    def _listed(self, folder: Path, prefix: str) -> Iterator[ObjectInfo]:
        try:
            yield from _listed(folder, prefix)
        except OSError as error:
            raise self._explain(error, prefix) from error

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; a missing one is no error."""
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
                pass  # another process has removed the folder since
        with self._making:
            self._sync(self._make, path.parent)
        self._syncs.setdefault(path.parent, SharedSync(lambda: self._sync(self._files.sync_folder, path.parent)))
        return self._files.create(path)

    def _make(self, folder: Path) -> None:
        make_folders(self._files, folder)
        if self._sync_names:
            sync_names(self._files, folder)

    def _sync(self, sync: Callable[[Path], None], folder: Path) -> None:
        """Sync a folder, and note a failure before another thread syncs: the failure fails every put under way, since
        their names may be among those that the system has dropped."""
        try:
            sync(folder)
        except SyncFailed as error:
            self._failed_sync = error
            raise

    def _fill(self, descriptor: int, parts: Sequence[Bytes]) -> None:
        try:
            at = 0
            for some in in_steps(parts):
                self._files.write(descriptor, some)
                size = sum(map(len, some))
                if at or size >= BYTES_PER_STEP:
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
        if error.errno == errno.EIO or (isinstance(error, SyncFailed) and error.errno not in FULL):
            reason = error.strerror or str(error)
            self._refusal = lambda: self._broken(reason)
            return self._refusal()
        return explained(error, f"object {name!r} in {self._folder}")

    def _broken(self, reason: str) -> TailraceError:
        return Broken(f"{self._folder}: the disk failed ({reason}); look at the disk, then open the home again")

    def _closed(self) -> TailraceError:
        return Closed(f"the objects in {self._folder} were closed")


def in_steps(parts: Sequence[Bytes], step: int = BYTES_PER_STEP) -> Iterator[list[memoryview]]:
    """Bytes cut into pieces of this size, as they are written to the disk; at least one piece."""
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
    """A sync that many threads ask for and one thread does for all that asked before it began."""

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
