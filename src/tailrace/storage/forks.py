"""Forks: a process made by fork must not touch the databases its parent had open.

SQLite's locks are the process's and are not inherited, but its memory of holding them is.  A child that used such a
connection, or opened the same file anew, would write without any lock.  So both are refused, and the connections are
never closed there either.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from tailrace.errors import HomeError, TailraceError

_open: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
_left_behind: list[Any] = []
_forbidden: set[tuple[int, int]] = set()


def watch(database: Any, path: Path) -> None:
    """Remember an open database: in a child its `_refusal` becomes `refusal`."""
    _open[database] = _identity(path)


def forget(database: Any) -> None:
    """It was closed: children may open it."""
    _open.pop(database, None)


def is_open(path: Path) -> bool:
    """Whether this process has the database open."""
    return _identity(path) in _open.values()


def check(path: Path) -> None:
    """Refuse to open what was open when this process was forked."""
    if _forbidden and _identity(path) in _forbidden:
        raise refusal()


def refusal() -> TailraceError:
    """What every call on an inherited database raises."""
    return HomeError(
        "this process was forked from one that had the home open, and SQLite cannot be shared like that; "
        "open it only after the fork, or start processes by spawn: multiprocessing.get_context('spawn')"
    )


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _in_child() -> None:
    for database, identity in list(_open.items()):
        database._refusal = refusal
        _left_behind.append(database)
        _forbidden.add(identity)


os.register_at_fork(after_in_child=_in_child)
