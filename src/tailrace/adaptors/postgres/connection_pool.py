"""Connection pool: a task's connections, used again by the next task of the process.

Opening one for Arrow takes as long as copying some ten thousand rows: the driver asks the server for all its types; one
for SQL as long as ten queries.  So one that was given back in order is kept for a while.  It is looked at before it is
lent again, since a server may have gone, and not for long, since a server may have new types.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_IDLE_PER_KIND = 2
"""So many of each kind at once: where a task reads from, and where it writes to."""
MAX_AGE_SECONDS = 60.0
"""Seconds after which one is opened again."""


@dataclass(frozen=True, slots=True)
class IdleConnection:
    """A connection that is not in use, in no transaction; of a process, which may have forked since."""

    process: int
    info: str = field(repr=False)  # it has the password
    connection: Any
    opened: float
    arrow: bool = True


_kept: list[IdleConnection] = []
_lock = threading.Lock()


@contextlib.contextmanager
def lent(info: str, opened: Callable[[], Any]) -> Iterator[Any]:
    """A connection for the length of a block, in a transaction.  After an error it is closed, and so rolled back."""
    found = _taken(info, arrow=True) or IdleConnection(os.getpid(), info, opened(), time.monotonic())
    try:
        yield found.connection
        found.connection.adbc_connection.set_autocommit(True)  # which also ends its transaction
    except BaseException:
        found.connection.close()
        raise
    _keep(found)


@contextlib.contextmanager
def lent_sql(info: str, opened: Callable[[], Any]) -> Iterator[Any]:
    """A connection for SQL for the length of a block, each statement its own transaction.  After an error it is
    closed."""
    found = _taken(info, arrow=False) or IdleConnection(os.getpid(), info, opened(), time.monotonic(), arrow=False)
    try:
        yield found.connection
    except BaseException:
        found.connection.close()
        raise
    _keep(found)


def _taken(info: str, *, arrow: bool) -> IdleConnection | None:
    """One that still answers."""
    asked = (os.getpid(), info, arrow)
    with _lock:
        mine = next((one for one in _kept if (one.process, one.info, one.arrow) == asked), None)
        if mine is None:
            return None
        _kept.remove(mine)
    answers = _answers if arrow else _answers_sql
    if time.monotonic() - mine.opened < MAX_AGE_SECONDS and answers(mine.connection):
        return mine
    mine.connection.close()
    return None


def _answers(connection: Any) -> bool:
    import adbc_driver_manager

    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()
        connection.adbc_connection.set_autocommit(False)
    except adbc_driver_manager.Error:
        return False
    return True


def _answers_sql(connection: Any) -> bool:
    import psycopg

    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def _keep(one: IdleConnection) -> None:
    with _lock:
        _kept.append(one)
        old = [other for other in _kept if other.arrow == one.arrow][:-MAX_IDLE_PER_KIND]
        _kept[:] = [other for other in _kept if other not in old]
    _close(old)


def _close(some: list[IdleConnection]) -> None:
    for one in some:
        if one.process == os.getpid():  # a parent's is the parent's
            with contextlib.suppress(Exception):
                one.connection.close()


@atexit.register
def forget() -> None:
    """Close all that are kept."""
    with _lock:
        old = list(_kept)
        _kept.clear()
    _close(old)
