"""Connections: what a SQL sink needs of a driver.  psycopg's connections have this form; other drivers are wrapped in
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


class SqlCursor(Protocol):
    """The rows that a statement returns."""

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""


class SqlConnection(Protocol):
    """One connection.  Outside of `transaction` every statement is a transaction of its own.  Parameters are written as
    %s."""

    @property
    def closed(self) -> bool:
        """Whether the connection was closed or has broken."""

    def execute(self, query: Any, params: Any = None, /) -> SqlCursor:
        """Execute one statement.  In a statement with parameters, a literal percent sign must be written twice."""

    def transaction(self, *, force_rollback: bool = False) -> AbstractContextManager[Any]:
        """Open a transaction for a block: committed at the end of the block, rolled back after an error.  Within
        another transaction it is a savepoint."""

    def close(self) -> None:
        """Close the connection."""


class SqlDatabase(Protocol):
    """The database that the tables are in."""

    where: str
    """Host, port and name of the database for messages, without the password."""

    def open(self) -> Any:
        """Return a new `SqlConnection`, which the caller closes."""

    def connect(self, doing: str = "asking") -> AbstractContextManager[Any]:
        """Open a `SqlConnection` for a block, whose errors are translated to tailrace's."""

    def guarded(self, doing: str, namespace: str = "") -> AbstractContextManager[None]:
        """Translate the driver's errors in a block to tailrace's.  `doing` says in them what failed."""


@contextmanager
def connected(database: SqlDatabase, doing: str) -> Iterator[Any]:
    """Open a connection for a block, whose errors are translated to tailrace's."""
    connection = database.open()
    try:
        with database.guarded(doing):
            yield connection
    finally:
        connection.close()
