"""Checkpointer: moves what commits have written from the WAL into the database, off the commits' path.

Each commit reports the length of the WAL; from `CHECKPOINT_BYTES` bytes on a background thread copies it, mostly while
commits continue.  It copies what they added meanwhile in a short step between two commits; the next commit then begins
at the start of the WAL.  So the WAL stays about this long, and its blocks are overwritten in place, which makes a
commit's fsync cheaper than that of a growing file.  The thread never waits for a reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw

from tailrace.errors import TailraceError

CHECKPOINT_BYTES = 8 * 1024 * 1024


class Checkpointer:
    """One background thread, started when it is first needed.

    `connect` opens a connection, `between` runs a function between two commits of this process, and `failed` gets the
    errors, except "busy".
    """

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        between: Callable[[Callable[[apsw.Cursor], None]], None],
        failed: Callable[[apsw.Error], object],
        page: int,
    ) -> None:
        self._connect, self._between, self._failed = connect, between, failed
        self._limit = self._next = CHECKPOINT_BYTES // page
        self._wanted = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def after_commit(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """SQLite's WAL hook: called after each commit with the length of the WAL in pages."""
        if pages < self._limit:
            self._next = self._limit
        elif pages >= self._next and not self._stopped:
            # While a long read holds the WAL, it grows on: the next attempt comes only when it is this much longer.
            self._next = pages + self._limit
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tailrace-checkpointer", daemon=True)
                self._thread.start()
            self._wanted.set()
        return apsw.SQLITE_OK

    def stop(self) -> None:
        """End the thread; a checkpoint under way is finished."""
        self._stopped = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while self._wanted.wait() and not self._stopped:
            self._wanted.clear()
            try:
                connection = connection or self._connect()
                self._checkpoint(connection)
            except apsw.BusyError:
                continue
            except apsw.Error as error:
                self._failed(error)
            except TailraceError:
                continue  # closed meanwhile, or explained already
        if connection is not None:
            connection.close()

    def _checkpoint(self, connection: apsw.Connection) -> None:
        connection.execute(
            "PRAGMA schema_version"
        ).fetchall()  # SQLite does not checkpoint on a connection that has not read yet
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

        def finish(cursor: apsw.Cursor) -> None:
            cursor.execute("BEGIN IMMEDIATE")  # other processes are waiting, too
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                cursor.execute("ROLLBACK")

        self._between(finish)
