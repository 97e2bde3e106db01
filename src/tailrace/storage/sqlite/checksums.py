"""Checksums: every page of a database carries one, checked whenever the page is read.

SQLite's own extension cksumvfs does it, which apsw brings: the last 8 bytes of a page are a checksum of the others, in
the database and in its journal.  A database says that it has them by the number of such bytes in its header and,
so that one flipped bit cannot switch them off, by its format.
"""

from __future__ import annotations

import apsw

VFS = "cksmvfs"
CHECKSUM_BYTES = 8


def _load() -> bool:
    """Have all databases opened from now on go through it; those without checksums are left alone by it."""
    if VFS in apsw.vfs_names():
        return True
    try:
        from apsw import sqlite_extra

        connection = apsw.Connection(":memory:")
        try:
            sqlite_extra.load(connection, "cksumvfs")
        finally:
            connection.close()
    except Exception:  # an apsw built without it, or kept in a zip
        return False
    return VFS in apsw.vfs_names()


AVAILABLE = _load()


def ask_for(connection: apsw.Connection) -> None:
    """Have a database that is still empty made with checksums."""
    if AVAILABLE:
        connection.reserve_bytes("main", CHECKSUM_BYTES)


def are_kept(connection: apsw.Connection) -> bool:
    """Whether this connection writes and checks them."""
    return connection.execute("PRAGMA checksum_verification").fetchall() == [("1",)]


def reserved(connection: apsw.Connection) -> int:
    """The bytes at the end of a page that the database's header says are not SQLite's."""
    return int(connection.reserve_bytes("main"))


def is_right(cursor: apsw.Cursor, page: bytes) -> bool:
    """Whether a page's checksum is that of its bytes; a page that was never written is."""
    return cursor.execute("SELECT verify_checksum(?)", (page,)).fetchall() != [(0,)] or not any(page)
