"""Database: one SQLite file, shared by threads and processes; it owns the connections and names their troubles.

One connection writes (see committer), a few read, and a background thread checkpoints.  A commit is durable when it is
answered (WAL, synchronous=FULL).  Trouble that may cost durability (EIO) breaks the handle for good; a full disk does
not.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tailrace.errors import Broken, Closed, Damaged, DiskFull, HomeError, TailraceError, Unavailable
from tailrace.storage import checksums, forks
from tailrace.storage.checkpointer import Checkpointer
from tailrace.storage.committer import Committer, Statement
from tailrace.storage.files import REAL, Files, make_folders, sync_names
from tailrace.storage.journal import PAGE, check_journal
from tailrace.storage.recent import Known
from tailrace.storage.tables import Key

T = TypeVar("T")

OLDEST_SQLITE = "3.51.3"
"""Every version before can corrupt a WAL database that two connections write."""

APPLICATION = int.from_bytes(b"tail", "big")
FORMAT = 2
"""1: without checksums; 2: every page has one."""

IDLE_READERS = 8
YOUNG = 10
"""So often a new database is opened anew; real damage is still there then."""

_PASSING = {apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_NOMEM, apsw.SQLITE_IOERR_LOCK}


_STAMP = "SELECT * FROM pragma_application_id(), pragma_user_version()"

_opening = threading.Lock()


def fetch(on: apsw.Cursor | apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return on.execute(sql, bindings).fetchall()


def check_sqlite(version: str) -> None:
    """Refuse a SQLite that can lose data."""
    if [int(n) for n in version.split(".")] < [int(n) for n in OLDEST_SQLITE.split(".")]:
        raise HomeError(
            f"SQLite {version} can corrupt a database that several processes write; tailrace needs {OLDEST_SQLITE} "
            f"or newer, which comes with apsw: pip install 'apsw>={OLDEST_SQLITE}'"
        )


class Database:
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
        self._committer = Committer(self._writer, self.explain, self._refused, 60 + patience)
        self._checkpointer = Checkpointer(self._connect, self._committer.between, self.explain, PAGE)
        self._writer.set_wal_hook(self._checkpointer.after_commit)

    def _open_patiently(self, files: Files) -> None:
        """While other processes make the same database, a page may be met before its checksum is known."""
        for tries in range(YOUNG):
            try:
                self._open(files)
            except Damaged as error:
                cause = error.__cause__
                if getattr(cause, "extendedresult", 0) != apsw.SQLITE_IOERR_DATA or tries == YOUNG - 1:
                    raise
                time.sleep(0.05)
            else:
                return

    def _open(self, files: Files) -> None:
        try:
            _make(self.path, files)
            forks.check(self.path)
            if not forks.is_open(self.path):
                check_journal(self.path)
            if self.path.with_name(self.path.name + "-journal").exists():
                self._undo()
            cut = _cut(self.path)
            if self.path.stat().st_size == 0:
                self._make(checksums.ask_for)
            self._writer = self._connect()
            _begin_wal(self._writer, self._patience)
            _check_format(self._writer, self.path, files)
            if cut is not None:
                raise cut
        except (apsw.Error, OSError) as error:
            raise self._cannot_open(error) from error
        forks.watch(self, self.path)

    def _undo(self) -> None:
        """Before it has a WAL, a database has a rollback journal.  One that is left tells of a making that was cut:
        whoever reads undoes it, and the database can be made again."""
        connection = self._connect()
        try:
            fetch(connection, "PRAGMA schema_version")
        finally:
            connection.close()

    def _make(self, prepare: Callable[[apsw.Connection], None]) -> None:
        """Make the database.  A connection that was there before it does not know about its checksums: it is given up,
        whoever made it."""
        connection = self._connect()
        try:
            prepare(connection)
            connection.execute(f"PRAGMA page_size={PAGE}").fetchall()
            _begin_wal(connection, self._patience)
        finally:
            connection.close()

    def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Answer `work(cursor, *arguments)` when its changes are durable; other threads' may share the commit."""
        if self._refusal is not None:
            raise self._refusal()
        return self._committer.run(work, *arguments)

    def change(self, judge: Callable[..., tuple[T, list[Statement]]], *arguments: Any) -> T:
        """As `write`, quicker: `judge(cursor, *arguments)` raises before it changes anything, or answers what is to be
        executed too."""
        if self._refusal is not None:
            raise self._refusal()
        return self._committer.change(judge, *arguments)

    def recent(self, table: str) -> dict[Key, Known]:
        """The items of a table that were changed last, for who judges."""
        return self._committer.recent.of(table)

    def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Answer `work(cursor, *arguments)`; it sees everything answered before."""
        if self._refusal is not None:
            raise self._refusal()
        try:
            connection = self._reader()
            cursor = connection.cursor()
            try:
                answer = work(cursor, *arguments)
            finally:
                cursor.close()  # a query not read to its end would hold its snapshot
        except apsw.Error as error:
            raise self.explain(error) from error
        self._keep(connection)
        return answer

    def data_version(self) -> int:
        """A number that is another one after a commit by anybody, this process or another; cheap to ask for."""
        if self._refusal is not None:
            raise self._refusal()
        try:
            with self._lock:
                self._watch = self._watch or self._connect()
                return int(fetch(self._watch, "PRAGMA data_version")[0][0])
        except apsw.Error as error:
            raise self.explain(error) from error

    def explain(self, error: apsw.Error) -> TailraceError:
        """The error a caller gets for one of SQLite's; what may have cost durability breaks this handle."""
        match error:
            case apsw.BusyError() | apsw.ProtocolError():
                return Unavailable(f"{self.path} is locked by another process, for {self._patience:g} s now; try again")
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
            case apsw.IOError() if getattr(error, "extendedresult", 0) not in _PASSING:
                self._refusal = self._broken
                return self._broken()
        return Unavailable(f"{self.path}: {error}")

    def join(self) -> None:
        """Count one more user of this database."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Count one user less; the last one closes the database."""
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        if last:
            self.close()

    def close(self) -> None:
        """Give up all connections; calls after this raise `Closed`."""
        with self._lock:
            before = self._refusal
            if before is not None and before != self._broken:
                return
            self._refusal = self._closed
        self._checkpointer.stop()
        self._drain()
        if self._watch is not None:
            self._watch.close()
        self._committer.close(checkpoint=before is None)
        forks.forget(self)

    def connect(self) -> apsw.Connection:
        """A connection of one's own, to be closed by whoever asked for it."""
        if self._refusal is not None:
            raise self._refusal()
        return self._connect()

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self._vfs)
        connection.set_busy_handler(_Patience(self._patience))
        connection.wal_autocheckpoint(0)
        # fullfsync: on macOS a plain fsync does not reach the disk.
        level = "FULL" if self._durable else "OFF"
        connection.execute(f"PRAGMA synchronous={level}; PRAGMA fullfsync=1; PRAGMA checkpoint_fullfsync=1").fetchall()
        return connection

    def _reader(self) -> apsw.Connection:
        with suppress(IndexError):
            return self._idle.pop()
        return self._connect()

    def _keep(self, connection: apsw.Connection) -> None:
        if len(self._idle) < IDLE_READERS:
            self._idle.append(connection)
        if self._refusal is not None:
            self._drain()

    def _drain(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _refused(self) -> TailraceError | None:
        return None if self._refusal is None else self._refusal()

    def _closed(self) -> TailraceError:
        return Closed(f"{self.path} was closed")

    def _broken(self) -> TailraceError:
        return Broken(f"{self.path}: the disk failed (I/O error); look at the disk, then open the home again")

    def _cannot_open(self, error: Exception) -> TailraceError:
        match error:
            case apsw.NotADBError():
                return HomeError(f"{self.path} is not a database; is this the path you meant?")
            case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError() | PermissionError():
                return HomeError(f"cannot open {self.path}: {error}; check the permissions of the file and its folder")
            case OSError():
                return HomeError(f"cannot open {self.path}: {error}")
            case apsw.Error():
                return self.explain(error)
        raise error


class _Patience:
    """SQLite's busy handler: wait a little, again and again, until it has been too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._end = now + self._seconds
        time.sleep(random.uniform(0.0002, 0.002))
        return now < self._end


def _make(path: Path, files: Files) -> None:
    make_folders(files, path.parent)
    if not path.exists():
        with suppress(FileExistsError):
            files.close(files.create(path))


def _cut(path: Path) -> Damaged | None:
    """Says that a database was cut within a page, which no checksum tells: SQLite reads zeros for what is missing.

    While there is a journal its last page may be still to come from there."""
    journal, size = path.with_name(path.name + "-wal"), path.stat().st_size
    if size % PAGE == 0 or (journal.exists() and journal.stat().st_size):
        return None
    return Damaged(f"{path} is cut at byte {size:,}; restore it from a copy", where=str(path), position=size)


def _begin_wal(connection: apsw.Connection, patience: float) -> None:
    """Several processes may open a new database at once, and SQLite does not wait for its turn here."""
    wait = _Patience(patience)
    for tries in range(1_000_000):
        try:
            if fetch(connection, "PRAGMA journal_mode=WAL") == [("wal",)]:
                return
        except apsw.BusyError:
            pass
        if not wait(tries):
            raise apsw.BusyError("locked while switching to WAL")


def _check_format(connection: apsw.Connection, path: Path, files: Files) -> None:
    application, version = fetch(connection, _STAMP)[0]
    if (application, version) == (0, 0):
        application, version = _stamp(connection, path, files)
    if application != APPLICATION:
        raise HomeError(f"{path} is a database of another application; is this the path you meant?")
    if version > FORMAT:
        raise HomeError(f"{path} was written by a newer tailrace (format {version}); this one reads up to {FORMAT}")
    if version < 1 or (version > 1 and checksums.reserved(connection) != checksums.BYTES):
        raise Damaged(f"the header of {path} is damaged; restore it from a copy", where=str(path), position=0)
    if version > 1 and not checksums.are_kept(connection):
        raise HomeError(
            f"{path} has checksums, which this installation of apsw cannot keep; "
            "pip install --force-reinstall --only-binary apsw apsw"
        )


def _stamp(connection: apsw.Connection, path: Path, files: Files) -> tuple[Any, ...]:
    """Say whose a new database is.  Before that its name is made durable: who finds the stamp can rely on it."""
    sync_names(files, path)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if fetch(connection, "SELECT count(*) FROM sqlite_schema") == [(0,)]:
            version = FORMAT if checksums.are_kept(connection) else 1
            fetch(connection, f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={version}")
        return fetch(connection, _STAMP)[0]
    finally:
        connection.execute("COMMIT")
