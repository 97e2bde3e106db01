"""Connections of the sink: PyMySQL's connections behind the interface that adaptors.sql expects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tailrace.adaptors.mysql.database import Database, ask, close, driver, flavor_of
from tailrace.adaptors.mysql.errors import ABOUT_DATA, code_of
from tailrace.adaptors.sql.connection import connected

SESSION = (
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    # Strict: a value that does not fit is an error.  Without NO_ZERO_DATE, because a source may have zero dates.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    # A batch is merged in another order than the source's transactions, and the source sends the rows that its foreign
    # keys changed as changes of their own.
    "SET SESSION foreign_key_checks = 0, default_storage_engine = 'InnoDB'",
)


class Refused(Exception):
    """An error of the server about the data, with the arguments of the driver's exception."""


class SinkConnection:
    """One connection of the sink.  Outside `transaction` every statement commits by itself."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.flavor = raw, flavor_of(raw)
        self._depth = 0

    @property
    def closed(self) -> bool:
        """Whether the connection was closed or lost."""
        return not self.raw.open

    def execute(self, query: str, params: Any = None, /) -> Any:
        """Execute one statement and return its cursor; raise `Refused` for the server's errors about data."""
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
        """Commit at the end of the block, or roll back after an error or with `force_rollback`.

        Within another transaction it is a savepoint."""
        point = f"tailrace_{self._depth}"
        self.execute(f"SAVEPOINT {point}" if self._depth else "START TRANSACTION")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            # After a deadlock the server has rolled back already; on a broken connection ROLLBACK cannot be sent.
            with contextlib.suppress(driver().Error, OSError):
                self.execute(f"ROLLBACK TO SAVEPOINT {point}" if self._depth else "ROLLBACK")
            raise
        self._depth -= 1
        if force_rollback:
            self.execute(f"ROLLBACK TO SAVEPOINT {point}" if self._depth else "ROLLBACK")
        else:
            self.execute(f"RELEASE SAVEPOINT {point}" if self._depth else "COMMIT")

    def close(self) -> None:
        """Close the connection in any state."""
        close(self.raw)


class SinkDatabase:
    """The database of the sink, from which the writer gets its connections."""

    def __init__(self, uri: str) -> None:
        self.database = Database(uri)
        self.where, self.name = self.database.where, self.database.name

    def open(self, **more: Any) -> SinkConnection:
        """Open a connection with the sink's session settings; the caller closes it."""
        raw = self.database.open(**more)
        try:
            with self.guarded("connecting"):
                for sql in SESSION:
                    ask(raw, sql)
                isolation = "transaction_isolation" if flavor_of(raw) == "mysql" else "tx_isolation"
                # With STATEMENT the server accepts InnoDB writes only at REPEATABLE READ.
                if ask(raw, "SELECT @@global.binlog_format")[0][0] != "STATEMENT":
                    ask(raw, f"SET SESSION {isolation} = 'READ-COMMITTED'")
        except BaseException:
            close(raw)
            raise
        return SinkConnection(raw)

    def connect(self, doing: str = "asking") -> contextlib.AbstractContextManager[SinkConnection]:
        """Return a context manager that opens a connection for a block and raises tailrace's errors."""
        return connected(self, doing)

    @contextlib.contextmanager
    def guarded(self, doing: str, namespace: str = "") -> Iterator[None]:
        """Translate the driver's errors in a block into tailrace's."""
        with self.database.guarded(doing, namespace):
            try:
                yield
            except Refused as error:
                raise driver().DataError(*error.args) from None
