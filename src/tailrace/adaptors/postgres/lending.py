"""Lending: Arrow connections of this process, used again by its next task.

Opening one takes as long as copying some ten thousand rows: the driver asks the server for all its types.  So one that
was given back in order is kept for a while.  It is looked at before it is lent again, since a server may have gone, and
not for long, since a server may have new types.
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

KEPT = 2
"""So many at once: where a task reads from, and where it writes to."""
AGE = 60.0
"""Seconds after which one is opened anew."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A connection that nobody uses, in no transaction; of a process, which may have forked since."""

    process: int
    info: str = field(repr=False)  # it has the password
    connection: Any
    opened: float


_kept: list[Kept] = []
_lock = threading.Lock()


@contextlib.contextmanager
def lent(info: str, opened: Callable[[], Any]) -> Iterator[Any]:
    """A connection for the length of a block, in a transaction.  After an error it is closed, and so rolled back."""
    found = _taken(info) or Kept(os.getpid(), info, opened(), time.monotonic())
    try:
        yield found.connection
        found.connection.adbc_connection.set_autocommit(True)  # which also ends its transaction
    except BaseException:
        found.connection.close()
        raise
    _keep(found)


def _taken(info: str) -> Kept | None:
    """One that still answers."""
    with _lock:
        mine = next((one for one in _kept if (one.process, one.info) == (os.getpid(), info)), None)
        if mine is None:
            return None
        _kept.remove(mine)
    if time.monotonic() - mine.opened < AGE and _answers(mine.connection):
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


def _keep(one: Kept) -> None:
    with _lock:
        _kept.append(one)
        old = [_kept.pop(0) for _ in range(len(_kept) - KEPT)]
    _close(old)


def _close(some: list[Kept]) -> None:
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
