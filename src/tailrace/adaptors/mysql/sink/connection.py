"""Connections of the sink: PyMySQL's in the form that adaptors.sql asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tailrace.adaptors.mysql.database import Database, ask, close, driver, flavor_of
from tailrace.adaptors.mysql.errors import ABOUT_DATA, code_of
from tailrace.adaptors.sql.connection import connected

SESSION = (
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    # Strict: what does not fit is an error.  Without NO_ZERO_DATE, for a source that has such dates.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    # Rows of one transaction of the source arrive in another order, and what a key did there comes as rows of its own.
    "SET SESSION foreign_key_checks = 0, default_storage_engine = 'InnoDB'",
)


class Refused(Exception):
    """An error of the server about the data; has the driver's arguments."""


class SinkConnection:
    """One connection.  Outside `transaction` every statement is a transaction of its own."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.flavor = raw, flavor_of(raw)
        self._depth = 0

    @property
    def closed(self) -> bool:
        """Whether it was given up, or broke."""
        return not self.raw.open

    def execute(self, query: str, params: Any = None, /) -> Any:
        """Carry out one statement; what the server says of the data is `Refused`."""
        cursor = self.raw.cursor()
        try:
            cursor.execute(query, params)
        except driver().Error as error:
            if code_of(error) in ABOUT_DATA:
                raise Refused(*error.args) from None
            raise
        return cursor

    @contextlib.contextmanager
    def transaction(self, *, force_rollback: bool = False) -> Iterator[None]:
        """Commits at the end of the block, or rolls back after an error; within another one it is a savepoint."""
        point = f"tailrace_{self._depth}"
        self.execute(f"SAVEPOINT {point}" if self._depth else "START TRANSACTION")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            # A deadlock has rolled back everything already; a broken connection cannot be asked.
            with contextlib.suppress(driver().Error, OSError):
                self.execute(f"ROLLBACK TO SAVEPOINT {point}" if self._depth else "ROLLBACK")
            raise
        self._depth -= 1
        if force_rollback:
            self.execute(f"ROLLBACK TO SAVEPOINT {point}" if self._depth else "ROLLBACK")
        else:
            self.execute(f"RELEASE SAVEPOINT {point}" if self._depth else "COMMIT")

    def close(self) -> None:
        """Give it up."""
        close(self.raw)


class SinkDatabase:
    """Where the tables are."""

    def __init__(self, uri: str) -> None:
        self.database = Database(uri)
        self.where, self.name = self.database.where, self.database.name

    def open(self, **more: Any) -> SinkConnection:
        """A connection that the caller closes."""
        raw = self.database.open(**more)
        try:
            with self.guarded("connecting"):
                for sql in SESSION:
                    ask(raw, sql)
                isolation = "transaction_isolation" if flavor_of(raw) == "mysql" else "tx_isolation"
                if ask(raw, "SELECT @@global.binlog_format")[0][0] != "STATEMENT":  # which needs the other one
                    ask(raw, f"SET SESSION {isolation} = 'READ-COMMITTED'")
        except BaseException:
            close(raw)
            raise
        return SinkConnection(raw)

    def connect(self, doing: str = "asking") -> contextlib.AbstractContextManager[SinkConnection]:
        """A connection for a block, whose errors are tailrace's."""
        return connected(self, doing)

    @contextlib.contextmanager
    def guarded(self, doing: str, namespace: str = "") -> Iterator[None]:
        """A block in which what the driver raises is raised as tailrace's errors."""
        with self.database.guarded(doing, namespace):
            try:
                yield
            except Refused as error:
                raise driver().DataError(*error.args) from None
