"""Forks: keep a forked process from using what its parent had open.

SQLite's locks belong to the process, and a child does not inherit them; but it inherits SQLite's belief that it holds
them.  A child that used such a connection, or opened the same file again, would write without any lock.  Connections to
servers would be shared with the parent, and the threads that commit, beat and fetch do not exist in the child.  So a
child cannot use what was open, nor does it close SQLite's connections."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any, Protocol

from tailrace.errors import HomeError, TailraceError


class Inherited(Protocol):
    """Something that a child inherits as a copy and must not use."""

    def left_behind(self) -> None:
        """Called in the forked child, which has one thread.  It must not wait for a lock: the thread that held it does
        not exist in the child."""


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_databases: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
_kept: list[Any] = []
_forbidden: set[tuple[int, int]] = set()
_threads_of: set[int] = set()
"""The process that started a library's threads."""


def watch(inherited: Inherited) -> None:
    """Have `left_behind` called in every child that is forked while this exists."""
    _watched.add(inherited)


def watch_database(database: Inherited, path: Path) -> None:
    """As `watch`; children may not open this file either."""
    watch(database)
    _databases[database] = identity(path)


def forget(database: Inherited) -> None:
    """Note that the database was closed: children may open it."""
    _watched.discard(database)
    _databases.pop(database, None)


def is_open(path: Path) -> bool:
    """Whether this process has the database open."""
    return identity(path) in _databases.values()


def check(path: Path) -> None:
    """Refuse to open a database that was open when this process was forked."""
    if _forbidden and identity(path) in _forbidden:
        raise refusal()


def check_threads() -> None:
    """Refuse to use a library that started its own threads before the fork: calls to it would wait for ever."""
    _threads_of.add(os.getpid())
    if len(_threads_of) > 1:
        raise refusal()


def refusal() -> TailraceError:
    """The error that every call on something inherited from the parent of a fork raises."""
    return HomeError(
        "this process was forked from one that had the home open, and connections, locks and threads do not survive "
        "that; open it only after the fork, or start processes by spawn: multiprocessing.get_context('spawn')"
    )


def identity(path: Path) -> tuple[int, int]:
    """The identity of a file, whatever its name: a forked child may not open a database that its parent has open."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _in_child() -> None:
    _forbidden.update(_databases.values())
    _kept.extend(_databases)  # garbage-collecting one would close its connections
    for inherited in list(_watched):
        inherited.left_behind()


os.register_at_fork(after_in_child=_in_child)
