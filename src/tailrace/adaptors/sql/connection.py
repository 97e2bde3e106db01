"""Connections: what a SQL sink needs of a driver.  psycopg's has this form; other drivers are wrapped in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


class SqlCursor(Protocol):
    """The rows of a statement."""

    def fetchone(self) -> Any:
        """The next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""


class SqlConnection(Protocol):
    """One connection.  Outside `transaction` every statement is a transaction of its own.  Values are given as %s."""

    @property
    def closed(self) -> bool:
        """Whether it was given up, or broke."""

    def execute(self, query: Any, params: Any = None, /) -> SqlCursor:
        """Carry out one statement.  With values, a percent sign in it is written twice."""

    def transaction(self, *, force_rollback: bool = False) -> AbstractContextManager[Any]:
        """Commits at the end of the block, or rolls back after an error; within another one it is a savepoint."""

    def close(self) -> None:
        """Give it up."""


class SqlDatabase(Protocol):
    """Where the tables are."""

    where: str
    """As people call it, without a password."""

    def open(self) -> Any:
        """A `SqlConnection` that the caller closes."""

    def connect(self, doing: str = "asking") -> AbstractContextManager[Any]:
        """A `SqlConnection` for a block, whose errors are tailrace's."""

    def guarded(self, doing: str, namespace: str = "") -> AbstractContextManager[None]:
        """A block in which what the driver raises is raised as tailrace's errors."""


@contextmanager
def connected(database: SqlDatabase, doing: str) -> Iterator[Any]:
    """A connection for a block, whose errors are tailrace's."""
    connection = database.open()
    try:
        with database.guarded(doing):
            yield connection
    finally:
        connection.close()
