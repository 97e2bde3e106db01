"""Database: one SQLite file, shared by threads and processes; it owns the connections and explains their errors.

One connection writes (see committer), a few read, and a background thread checkpoints.  A commit is durable when it is
answered (WAL, synchronous=FULL).  An error that may cost durability (EIO) breaks the handle for good; a full disk does
not.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tailrace.errors import Broken, Closed, Damaged, DiskFull, HomeError, TailraceError, Unavailable
from tailrace.storage import forks
from tailrace.storage.local.files import REAL, Files, SyncFailed
from tailrace.storage.local.os_errors import FULL, NO_DESCRIPTOR, explained, shortage
from tailrace.storage.sqlite import checksums, watermark
from tailrace.storage.sqlite.checkpointer import Checkpointer
from tailrace.storage.sqlite.committer import SqliteCommitter, Statement
from tailrace.storage.sqlite.connection import BusyHandler, begin_wal, fetch
from tailrace.storage.sqlite.database_file import check_format, check_sqlite, create_file, truncation
from tailrace.storage.sqlite.journal import PAGE_BYTES, check_journal
from tailrace.storage.sqlite.lock_holder import holder
from tailrace.storage.sqlite.recent_items import RecentItem
from tailrace.storage.sqlite.watermark import Watermark
from tailrace.storage.tables import Key

T = TypeVar("T")

MAX_IDLE_READERS = 8
"""The most connections for reading that stay open while no thread reads."""
ATTEMPTS_TO_OPEN = 10
"""How often to try to open a database that another process is still creating; the last attempt reports real damage."""

_HARMLESS_IO_ERRORS = {
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMMAP,
    apsw.SQLITE_IOERR_NOMEM,
    apsw.SQLITE_IOERR_LOCK,
}
"""I/O errors that cast no doubt on what has been written."""

_opening = threading.Lock()


class SqliteDatabase:
    """One SQLite file.  Any thread may call; a process made by fork may not.

    `patience` is how long to wait for another process's write, in seconds.  `files`, `vfs` and `durable` are for
    tests: a database that is not durable answers before the disk has it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        patience: float = 10.0,
        clock: Callable[[], float] = time.time,
        files: Files = REAL,
        vfs: str | None = None,
        durable: bool = True,
    ) -> None:
        check_sqlite(apsw.sqlite_lib_version())
        self.path, self.clock = Path(path), clock
        self._patience, self._vfs, self._durable = patience, vfs, durable
        self._refusal: Callable[[], TailraceError] | None = None
        self._lock = threading.Lock()
        self._idle: list[apsw.Connection] = []
        self._watch: apsw.Connection | None = None
        self._users = 0
        with _opening:
            self._open_patiently(files)
        self._writer.create_scalar_function("tailrace_now", lambda *_: int(clock() * 1000), 0)
        self._committer = SqliteCommitter(
            self._writer,
            lambda error: self.explain(error, self._writer),
            self._refused,
            60 + patience,
            self._watermark,
        )
        self._checkpointer = Checkpointer(self._connect, self._committer.between, self.explain, PAGE_BYTES)
        self._writer.set_wal_hook(self._after_commit)

    def _after_commit(self, connection: apsw.Connection, name: str, pages: int) -> int:
        if self._watermark is not None:
            self._watermark.frames = pages
        return self._checkpointer.after_commit(connection, name, pages)

    def _open_patiently(self, files: Files) -> None:
        """Open the database; try again while another process is creating it: until then a page may be read before its
        checksum is there."""
        for tries in range(ATTEMPTS_TO_OPEN):
            try:
                self._open(files)
            except Damaged as error:
                cause = error.__cause__
                if getattr(cause, "extendedresult", 0) != apsw.SQLITE_IOERR_DATA or tries == ATTEMPTS_TO_OPEN - 1:
                    raise
                time.sleep(0.05)
            else:
                return

    def _open(self, files: Files) -> None:
        try:
            create_file(self.path, files)
            forks.check(self.path)
            if not forks.is_open(self.path):
                check_journal(self.path)
                if not self.path.with_name(self.path.name + "-wal").exists():
                    watermark.clear(self.path, files)
            if self.path.with_name(self.path.name + "-journal").exists():
                self._undo()
            cut = truncation(self.path)
            if self.path.stat().st_size == 0:
                self._make(checksums.ask_for)
            self._writer = self._connect()
            with self._closed_if_failing(self._writer):
                begin_wal(self._writer, self._patience)
                # Now there is a WAL, and no process removes it while it is open.  SQLite syncs its name with the first
                # commit, but ignores the result.
                files.sync_folder(self.path.parent)
                check_format(self._writer, self.path, files)
                if cut is not None:
                    raise cut
                self._watermark = Watermark(self.path, files) if self._durable else None
                self._file = forks.identity(self.path)
        except TailraceError:
            raise
        except (apsw.Error, OSError) as error:
            raise self._cannot_open(error) from error
        forks.watch_database(self, self.path)

    def _undo(self) -> None:
        """Undo a creation that was cut off.  A database without a WAL yet has a rollback journal; SQLite applies a
        leftover one when it reads, and then the database can be created again."""
        connection = self._connect()
        with self._closed_if_failing(connection):
            fetch(connection, "PRAGMA schema_version")
        connection.close()

    def _make(self, prepare: Callable[[apsw.Connection], None]) -> None:
        """Create the database, and close the connection: it was opened before the database had checksums, and ignores
        them."""
        connection = self._connect()
        with self._closed_if_failing(connection):
            prepare(connection)
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}").fetchall()
            begin_wal(connection, self._patience)
        connection.close()

    @contextmanager
    def _closed_if_failing(self, connection: apsw.Connection) -> Iterator[None]:
        """Close a connection that fails, but first find out from it whether the system was short of something."""
        try:
            yield
        except BaseException as error:
            short = shortage(error, connection, self.path) if isinstance(error, apsw.Error) else None
            connection.close()
            if short is not None:
                raise short from error
            raise

    def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return `work(cursor, *arguments)` when its changes are durable; other threads may share the commit."""
        if self._refusal is not None:
            raise self._refusal()
        return self._committer.run(work, *arguments)

    def change(self, judge: Callable[..., tuple[T, list[Statement]]], *arguments: Any) -> T:
        """As `write`, but quicker: `judge(cursor, *arguments)` raises before it changes anything, or returns statements
        for the committer to execute."""
        if self._refusal is not None:
            raise self._refusal()
        return self._committer.change(judge, *arguments)

    def recent(self, table: str) -> dict[Key, RecentItem]:
        """The items of a table that were changed last, for work that judges writes."""
        return self._committer.recent.of(table)

    def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return `work(cursor, *arguments)`, which sees every write answered before."""
        if self._refusal is not None:
            raise self._refusal()
        connection: apsw.Connection | None = None
        try:
            connection = self._reader()
            cursor = connection.cursor()
            try:
                answer = work(cursor, *arguments)
            finally:
                cursor.close()  # a query not read to its end would hold its snapshot
        except apsw.Error as error:
            raise self.explain(error, connection) from error
        self._keep(connection)
        return answer

    def data_version(self) -> int:
        """A number that changes with every commit, by this process or another; cheap to read."""
        if self._refusal is not None:
            raise self._refusal()
        try:
            with self._lock:
                self._watch = self._watch or self._connect()
                return int(fetch(self._watch, "PRAGMA data_version")[0][0])
        except apsw.Error as error:
            raise self.explain(error) from error

    def explain(self, error: apsw.Error, connection: apsw.Connection | None = None) -> TailraceError:
        """The error that a caller gets for one of SQLite's; one that may have cost durability breaks this handle."""
        if short := shortage(error, connection, self.path):
            return short
        match error:
            case apsw.BusyError() | apsw.ProtocolError():
                by = holder(self.path) or "another process"
                return Unavailable(f"{self.path} has been locked for {self._patience:g} s, by {by}; try again")
            case apsw.FullError():
                return DiskFull(f"disk full: {self.path} cannot grow and nothing was written; free some space")
            case apsw.CorruptError() | apsw.NotADBError():
                return Damaged(f"{self.path} is damaged: {error}; restore it from a copy", where=str(self.path))
            case apsw.IOError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
                return Damaged(
                    f"{self.path} is damaged: the checksum of a page differs; `tailrace scrub` names it; restore it "
                    "from a copy",
                    where=str(self.path),
                )
            case apsw.ConnectionClosedError() | apsw.CursorClosedError():
                return self._closed()
            case apsw.IOError() if getattr(error, "extendedresult", 0) not in _HARMLESS_IO_ERRORS:
                self._refusal = self._broken
                return self._broken()
        return Unavailable(f"{self.path}: {error}")

    def join(self) -> None:
        """Count one more user of this database."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Count one user fewer; the last one closes the database."""
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        if last:
            self.close()

    def close(self) -> None:
        """Give up all connections; calls after this raise `Closed`."""
        with self._lock:
            self._refused()
            before = self._refusal
            if before not in (None, self._broken, self._gone):
                return
            self._refusal = self._closed
        self._checkpointer.stop()
        self._drain()
        if self._watch is not None:
            self._watch.close()
        self._committer.close(checkpoint=before is None)
        forks.forget(self)

    def left_behind(self) -> None:
        """Refuses all calls: this is a forked child's copy."""
        self._refusal = forks.refusal

    def connect(self) -> apsw.Connection:
        """A connection for the caller alone; the caller closes it."""
        if self._refusal is not None:
            raise self._refusal()
        return self._connect()

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self._vfs)
        connection.set_busy_handler(BusyHandler(self._patience))
        connection.wal_autocheckpoint(0)
        # fullfsync: on macOS a plain fsync does not reach the disk.
        level = "FULL" if self._durable else "OFF"
        with self._closed_if_failing(connection):
            fetch(connection, f"PRAGMA synchronous={level}; PRAGMA fullfsync=1; PRAGMA checkpoint_fullfsync=1")
        return connection

    def _reader(self) -> apsw.Connection:
        with suppress(IndexError):
            return self._idle.pop()
        return self._connect()

    def _keep(self, connection: apsw.Connection) -> None:
        if len(self._idle) < MAX_IDLE_READERS:
            self._idle.append(connection)
        if self._refusal is not None:
            self._drain()

    def _drain(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _refused(self) -> TailraceError | None:
        """The error that every call raises from now on, if there is one.

        Writes to a file that was removed succeed and are lost; closing it would remove the WAL of a file that has taken
        its place."""
        if self._refusal is None and not self._is_there():
            self._refusal = self._gone
        return None if self._refusal is None else self._refusal()

    def _is_there(self) -> bool:
        """Whether the open file is still the one under its name."""
        try:
            return forks.identity(self.path) == self._file
        except FileNotFoundError:
            return False
        except OSError:  # a folder that cannot be read at the moment proves nothing
            return True

    def _gone(self) -> TailraceError:
        return Broken(
            f"{self.path} was removed, moved or replaced while it was open, and nothing more is written to it; put it "
            "back, or restore the home from a copy, then open it again"
        )

    def _closed(self) -> TailraceError:
        return Closed(f"{self.path} was closed")

    def _broken(self, reason: str = "I/O error") -> TailraceError:
        return Broken(f"{self.path}: the disk failed ({reason}); look at the disk, then open the home again")

    def _cannot_open(self, error: Exception) -> TailraceError:
        match error:
            case SyncFailed() | OSError(errno=errno.EIO):
                return self._broken(error.strerror or str(error))
            case apsw.NotADBError():
                return HomeError(f"{self.path} is not a database; is this the path you meant?")
            case OSError(errno=code) if code in FULL | NO_DESCRIPTOR:
                return explained(error, str(self.path))
            case apsw.CantOpenError() if short := shortage(error, None, self.path):
                return short
            case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError() | PermissionError():
                return HomeError(f"cannot open {self.path}: {error}; check the permissions of the file and its folder")
            case OSError():
                return HomeError(f"cannot open {self.path}: {error}")
            case apsw.Error():
                return self.explain(error)
        raise error
