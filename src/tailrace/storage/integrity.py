"""Integrity: looking at a SQLite database and its journal for damage, beside those who use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from tailrace.errors import Damaged
from tailrace.storage.database import Database

MOST = 100
"""Faults that SQLite names at most."""


def check_database(database: Database, told: Callable[[int], object]) -> tuple[list[Damaged], list[str]]:
    """What is damaged in a database, and what else there is to know about it."""
    try:
        faults = database.read(_integrity, database.path)
    except Damaged as error:
        faults = [error]
    told(size_of(database.path))
    return faults, []


def _integrity(cursor: apsw.Cursor, path: Path) -> list[Damaged]:
    rows = cursor.execute(f"PRAGMA integrity_check({MOST})").fetchall()
    return [Damaged(str(text), where=str(path)) for (text,) in rows if text != "ok"]


def size_of(path: Path) -> int:
    """The bytes of a database and its journal."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
