"""Connection pool: the connections of a task, which the next task of the same process uses again.

Opening an ADBC connection takes as long as copying some ten thousand rows, because the driver asks the server for all
its types; opening one for SQL takes as long as ten queries.  So the pool keeps a connection that was returned without
an error.  It checks the connection before it lends it again, since the server may have gone, and closes old
connections, since the server may have new types.
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
"""The most idle ADBC connections, and the most idle connections for SQL: one for the database that a task reads, one
for the database that it writes."""
MAX_AGE_SECONDS = 60.0
"""Seconds after which a connection is closed rather than lent again."""


@dataclass(frozen=True, slots=True)
class IdleConnection:
    """An idle connection, in no transaction.  `process` is the process that opened it: this one may be a fork."""

    process: int
    info: str = field(repr=False)  # contains the password
    connection: Any
    opened: float
    arrow: bool = True


_kept: list[IdleConnection] = []
_lock = threading.Lock()


@contextlib.contextmanager
def lent(info: str, opened: Callable[[], Any]) -> Iterator[Any]:
    """Lend an ADBC connection for a block, in a transaction that is committed at the end.  After an error the
    connection is closed, which rolls the transaction back."""
    found = _taken(info, arrow=True) or IdleConnection(os.getpid(), info, opened(), time.monotonic())
    try:
        yield found.connection
        found.connection.adbc_connection.set_autocommit(True)  # also commits the transaction
    except BaseException:
        found.connection.close()
        raise
    _keep(found)


@contextlib.contextmanager
def lent_sql(info: str, opened: Callable[[], Any]) -> Iterator[Any]:
    """Lend a connection for SQL for a block; each statement is a transaction of its own.  After an error the connection
    is closed."""
    found = _taken(info, arrow=False) or IdleConnection(os.getpid(), info, opened(), time.monotonic(), arrow=False)
    try:
        yield found.connection
    except BaseException:
        found.connection.close()
        raise
    _keep(found)


def _taken(info: str, *, arrow: bool) -> IdleConnection | None:
    """Take a connection out of the pool that still answers; None if there is none."""
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
        if one.process == os.getpid():  # after a fork, the parent still uses its own
            with contextlib.suppress(Exception):
                one.connection.close()


@atexit.register
def forget() -> None:
    """Close all idle connections."""
    with _lock:
        old = list(_kept)
        _kept.clear()
    _close(old)
