"""A recorder of everything an embedded home does to the disk, and of what it was answered meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.storage.calls import Store
from tailrace.storage.local.disk import DiskObjects
from tailrace.storage.local.files import Files
from tailrace.storage.objects import Bytes
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tests.faults.vfs import WatchedVFS


class Op(NamedTuple):
    """One thing that happened, in the order of the run.

    create, mkdir, delete, sync, sync_folder: nothing more; write: (position, bytes); truncate: the new size;
    attempt, acknowledge: a note of the workload.  Paths are relative to the home.
    """

    what: str
    path: str
    details: Any = None


class Recorder:
    """What a workload is given: a folder, storage in it that is watched, and a place to note what it was answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ops: list[Op] = []
        self.files = RecordingFiles(self._note)
        self._lock = threading.Lock()
        self._unsynced_names: set[str] = set()
        self.sqlite_syncs_wal_names = True
        """SQLite does not look at the answer of that sync: without it the home must be as durable."""
        self._vfs = WatchedVFS(self._sqlite)
        self.vfs = self._vfs.name

    def store(self, *, durable: bool = True, sync_names: bool = True) -> Store:
        """A watched table and objects, laid out as in a home."""
        database = SqliteDatabase(self.folder / "tailrace.db", files=self.files, vfs=self.vfs, durable=durable)
        objects = DiskObjects(self.folder / "objects", files=self.files, sync_names=sync_names)
        return Store(SqliteTable(database), objects)

    def attempt(self, note: Hashable) -> None:
        """Say that something is about to be asked for: from now on it may be found after a power cut."""
        self._note("attempt", self.folder, note)

    def acknowledge(self, note: Hashable) -> None:
        """Say that it was answered: from now on it must be found."""
        self._note("acknowledge", self.folder, note)

    def stop(self) -> None:
        """Forget the VFS; everything opened through it must be closed."""
        self._vfs.unregister()

    def _sqlite(self, what: str, path: Path, details: Any) -> None:
        if what == "create":
            self._unsynced_names.add(path.name)
        self._note(what, path, details)
        # SQLite's unix VFS syncs the folder of a new journal or WAL together with its first sync.
        if what == "sync" and path.name in self._unsynced_names:
            self._unsynced_names.discard(path.name)
            if self.sqlite_syncs_wal_names or not path.name.endswith("-wal"):
                self._note("sync_folder", path.parent, None)

    def _note(self, what: str, path: Path, details: Any = None) -> None:
        path = path.absolute()
        if path == self.folder or self.folder in path.parents:
            with self._lock:
                self.ops.append(Op(what, str(path.relative_to(self.folder)), details))


class RecordingFiles(Files):
    """Files that tell first.  `skip` names what is told and acknowledged but not noted: a bug to be caught."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._names = threading.Lock()
        self._open: dict[int, tuple[Path, int]] = {}
        self.skip: set[str] = set()

    def create(self, path: Path) -> int:
        with self._names:  # so that the names are noted in the order they were given
            descriptor = super().create(path)
            self._note("create", path)
        self._open[descriptor] = path, 0
        return descriptor

    def open(self, path: Path) -> int:
        with self._names:
            new = not path.exists()
            descriptor = super().open(path)
            if new:
                self._note("create", path)
        self._open[descriptor] = path, 0
        return descriptor

    def write_at(self, descriptor: int, data: bytes, position: int) -> None:
        self._note("write", self._open[descriptor][0], (position, data))
        super().write_at(descriptor, data, position)

    def write(self, descriptor: int, parts: Sequence[Bytes]) -> None:
        path, position = self._open[descriptor]
        for part in parts:
            self._note("write", path, (position, bytes(part)))
            position += memoryview(part).nbytes
        self._open[descriptor] = path, position
        super().write(descriptor, parts)

    def sync(self, descriptor: int) -> None:
        if descriptor in self._open and "sync" not in self.skip:
            self._note("sync", self._open[descriptor][0])
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        super().close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        self._note("sync_folder", folder)
        super().sync_folder(folder)

    def make_folder(self, folder: Path) -> bool:
        with self._names:
            made = super().make_folder(folder)
            if made:
                self._note("mkdir", folder)
            return made

    def remove(self, path: Path) -> None:
        with self._names:
            if path.exists():
                self._note("delete", path)
            super().remove(path)
