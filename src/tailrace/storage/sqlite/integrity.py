"""Integrity: looks for damage in a SQLite database and its journal while they are in use.

SQLite checks every page first.  The files are read only to name the damaged bytes, and through SQLite's file layer: a
process that opens and closes a database's file itself gives up its locks on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from tailrace.errors import Damaged
from tailrace.storage.sqlite import checksums
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.journal import PAGE_BYTES
from tailrace.storage.sqlite.watermark import FRAME_HEADER_BYTES, WAL_HEADER_BYTES

MAX_FAULTS = 100
"""The most faults that SQLite names."""


def check_database(database: SqliteDatabase, told: Callable[[int], object]) -> tuple[list[Damaged], list[str]]:
    """The damage in a database, and other remarks about it."""
    kept: bool = database.read(_are_kept)
    notes = [] if kept else [f"{database.path} has no checksums, being of an earlier tailrace; a copy of the home has"]
    try:
        faults = database.read(_integrity, database.path)
    except Damaged as error:
        faults = [error]
    if kept and faults:
        faults = database.read(_wrong_pages, database.path) or faults
    told(size_of(database.path))
    return faults, notes


def _are_kept(cursor: apsw.Cursor) -> bool:
    return checksums.are_kept(cursor.connection)


def _integrity(cursor: apsw.Cursor, path: Path) -> list[Damaged]:
    rows = cursor.execute(f"PRAGMA integrity_check({MAX_FAULTS})").fetchall()
    return [Damaged(str(text), where=str(path)) for (text,) in rows if text != "ok"]


def _wrong_pages(cursor: apsw.Cursor, path: Path) -> list[Damaged]:
    """The pages whose checksums differ, in the database and in its journal."""
    out = []
    wal = path.with_name(path.name + "-wal")
    for file, first, step in (
        (path, 0, PAGE_BYTES),
        (wal, WAL_HEADER_BYTES + FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + PAGE_BYTES),
    ):
        for at, page in _pages(file, first, step, apsw.SQLITE_OPEN_MAIN_DB if file == path else apsw.SQLITE_OPEN_WAL):
            if not checksums.is_right(cursor, page):
                text = f"{file}: the checksum of the page from byte {at:,} to {at + PAGE_BYTES - 1:,} differs"
                out.append(Damaged(f"{text}; restore it from a copy", where=str(file), position=at))
    return out[:MAX_FAULTS]


def _pages(path: Path, first: int, step: int, kind: int) -> Iterator[tuple[int, bytes]]:
    if not path.exists():
        return
    file = apsw.VFSFile("unix", str(path), [kind | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        for at in range(first, file.xFileSize() - PAGE_BYTES + 1, step):
            yield at, file.xRead(PAGE_BYTES, at)
    finally:
        file.xClose()


def size_of(path: Path) -> int:
    """The bytes of a database and its journal."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
