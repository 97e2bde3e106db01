"""Connections: waiting for other processes' writes, switching to WAL, and reading all rows of a query."""

from __future__ import annotations

import random
import time
from typing import Any

import apsw


def fetch(on: apsw.Cursor | apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return on.execute(sql, bindings).fetchall()


class BusyHandler:
    """SQLite's busy handler: waits a little, again and again, for at most `patience` seconds in all."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._end = now + self._seconds
        time.sleep(random.uniform(0.0002, 0.002))
        return now < self._end


def begin_wal(connection: apsw.Connection, patience: float) -> None:
    """Switch to WAL.  Several processes may open a new database at the same time, and here SQLite's busy handler is not
    called."""
    wait = BusyHandler(patience)
    for tries in range(1_000_000):
        try:
            if fetch(connection, "PRAGMA journal_mode=WAL") == [("wal",)]:
                return
        except apsw.BusyError:
            pass
        if not wait(tries):
            raise apsw.BusyError("locked while switching to WAL")
