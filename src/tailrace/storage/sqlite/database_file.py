"""Database file: creates the file of a database, and checks its version, stamp and length before use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from tailrace.errors import Damaged, HomeError
from tailrace.storage.local.files import Files, make_folders, sync_names
from tailrace.storage.sqlite import checksums
from tailrace.storage.sqlite.connection import fetch
from tailrace.storage.sqlite.journal import PAGE_BYTES

OLDEST_SQLITE = "3.51.3"
"""Every version before this one can corrupt a WAL database that two connections write."""

APPLICATION = int.from_bytes(b"tail", "big")
FORMAT = 2
"""1: without checksums; 2: every page has one."""
_STAMP = "SELECT * FROM pragma_application_id(), pragma_user_version()"


def check_sqlite(version: str) -> None:
    """Refuse a SQLite that can lose data."""
    if [int(n) for n in version.split(".")] < [int(n) for n in OLDEST_SQLITE.split(".")]:
        raise HomeError(
            f"SQLite {version} can corrupt a database that several processes write; tailrace needs {OLDEST_SQLITE} "
            f"or newer, which comes with apsw: pip install 'apsw>={OLDEST_SQLITE}'"
        )


def create_file(path: Path, files: Files) -> None:
    """Create an empty file where there is none, and make its name durable."""
    make_folders(files, path.parent)
    if not path.exists():
        with suppress(FileExistsError):
            files.close(files.create(path))
    if path.stat().st_size == 0:  # before SQLite syncs the folder, since it would swallow a failure
        sync_names(files, path)


def truncation(path: Path) -> Damaged | None:
    """The error for a database that was cut within a page; None if it is whole.

    Checksums do not notice it: SQLite reads zeros for the missing bytes.  While there is a journal, it may still have
    the last page."""
    journal, size = path.with_name(path.name + "-wal"), path.stat().st_size
    if size % PAGE_BYTES == 0 or (journal.exists() and journal.stat().st_size):
        return None
    return Damaged(f"{path} is cut at byte {size:,}; restore it from a copy", where=str(path), position=size)


def check_format(connection: apsw.Connection, path: Path, files: Files) -> None:
    """Stamp a new database; refuse one of another application, of a newer format, or with a damaged header."""
    application, version = fetch(connection, _STAMP)[0]
    if (application, version) == (0, 0):
        application, version = _stamp(connection, path, files)
    if application != APPLICATION:
        raise HomeError(f"{path} is a database of another application; is this the path you meant?")
    if version > FORMAT:
        raise HomeError(f"{path} was written by a newer tailrace (format {version}); this one reads up to {FORMAT}")
    if version < 1 or (version > 1 and checksums.reserved(connection) != checksums.CHECKSUM_BYTES):
        raise Damaged(f"the header of {path} is damaged; restore it from a copy", where=str(path), position=0)
    if version > 1 and not checksums.are_kept(connection):
        raise HomeError(
            f"{path} has checksums, which this installation of apsw cannot keep; "
            "pip install --force-reinstall --only-binary apsw apsw"
        )


def _stamp(connection: apsw.Connection, path: Path, files: Files) -> tuple[Any, ...]:
    """Stamp a new database as tailrace's.  Its name is made durable first, so that a process which finds the stamp can
    rely on it."""
    sync_names(files, path)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if fetch(connection, "SELECT count(*) FROM sqlite_schema") == [(0,)]:
            version = FORMAT if checksums.are_kept(connection) else 1
            fetch(connection, f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={version}")
        return fetch(connection, _STAMP)[0]
    finally:
        connection.execute("COMMIT")
