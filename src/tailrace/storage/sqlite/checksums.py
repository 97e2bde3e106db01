"""Checksums: every page of a database carries one, checked whenever the page is read.

SQLite's own extension cksumvfs, which comes with apsw, does this: the last 8 bytes of a page are a checksum of the
others, in the database and in its journal.  A database declares its checksums by the number of these bytes in its
header and, so that one flipped bit cannot switch them off, by its format.
"""

from __future__ import annotations

import apsw

VFS = "cksmvfs"
CHECKSUM_BYTES = 8


def _load() -> bool:
    """Make all databases that are opened from now on use the extension, which leaves databases without checksums
    alone."""
    if VFS in apsw.vfs_names():
        return True
    try:
        from apsw import sqlite_extra

        connection = apsw.Connection(":memory:")
        try:
            sqlite_extra.load(connection, "cksumvfs")
        finally:
            connection.close()
    except Exception:  # an apsw built without the extension, or imported from a zip file
        return False
    return VFS in apsw.vfs_names()


AVAILABLE = _load()


def ask_for(connection: apsw.Connection) -> None:
    """Switch checksums on for an empty database, from its first page on."""
    if AVAILABLE:
        connection.reserve_bytes("main", CHECKSUM_BYTES)


def are_kept(connection: apsw.Connection) -> bool:
    """Whether this connection writes and checks checksums."""
    return connection.execute("PRAGMA checksum_verification").fetchall() == [("1",)]


def reserved(connection: apsw.Connection) -> int:
    """The number of bytes at the end of each page that, by the database's header, do not belong to SQLite."""
    return int(connection.reserve_bytes("main"))


def is_right(cursor: apsw.Cursor, page: bytes) -> bool:
    """Whether a page's checksum fits its bytes; a page that was never written counts as right."""
    return cursor.execute("SELECT verify_checksum(?)", (page,)).fetchall() != [(0,)] or not any(page)
