"""A database: where it is, and the three kinds of connection to it: for SQL, for Arrow, for its log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import connection_pool, errors
from tailrace.adaptors.sql.connection import connected
from tailrace.errors import BadSetting, NotInstalled, NotReady

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGconn

MIN_MAJOR_VERSION = 15
"""The oldest major version that is supported."""

SESSION = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmloption": "content",
    "search_path": "",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "0",
    # A table that hides rows from us must be an error, never a copy without them.
    "row_security": "off",
}
"""Every session reads and writes texts in these forms, whatever the server's defaults are."""

DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "tailrace",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class Database:
    """One database of one server.  Neither its text nor its errors have the password."""

    def __init__(self, uri: str) -> None:
        self._info = _parsed(uri)
        port, name = self._info.get("port", "5432"), self._info.get("dbname") or self._info.get("user", "")
        self.where = f"{self._info.get('host') or self._info.get('hostaddr') or 'localhost'}:{port}/{name}"
        self.user = str(self._info.get("user", ""))

    def __repr__(self) -> str:
        return f"Database({self.where})"

    def connect(self, doing: str = "asking") -> contextlib.AbstractContextManager[Connection[Any]]:
        """A connection for SQL, each statement its own transaction; its errors are tailrace's."""
        return connected(self, doing)

    @contextlib.contextmanager
    def asking(self, doing: str) -> Iterator[Connection[Any]]:
        """The same, perhaps one that this process had open: for tasks, of which one follows the other."""
        with connection_pool.lent_sql(self._conninfo(), self.open) as connection, self.guarded(doing):
            yield connection

    def open(self) -> Connection[Any]:
        """A connection for SQL that the caller closes."""
        psycopg = _driver()
        try:
            return psycopg.connect(self._conninfo(), autocommit=True, prepare_threshold=None)  # type: ignore[no-any-return]
        except psycopg.Error as error:
            raise errors.refused(error, self.where, self._info) from None

    def arrow(self) -> Any:
        """An ADBC connection that the caller closes; it begins transactions by itself."""
        _driver()
        import adbc_driver_postgresql.dbapi as adbc

        try:
            return adbc.connect(self._conninfo())
        except adbc.Error as error:
            raise errors.refused(error, self.where, self._info) from None

    @contextlib.contextmanager
    def lent(self) -> Iterator[Any]:
        """The same for the length of a block, perhaps one that this process had open: what is not committed within is
        committed at its end."""
        with connection_pool.lent(self._conninfo(), self.arrow) as connection:
            yield connection

    def log(self) -> PGconn:
        """A connection that can stream the log; the caller finishes it."""
        _driver()
        from psycopg import pq

        connection = pq.PGconn.connect(self._conninfo(replication="database").encode())
        if connection.status != pq.ConnStatus.OK:
            said = ConnectionError(connection.error_message.decode(errors="replace"))
            connection.finish()
            raise errors.refused(said, self.where, self._info)
        return connection

    @contextlib.contextmanager
    def guarded(self, doing: str, namespace: str = "") -> Iterator[None]:
        """What the drivers raise within, raised as tailrace's errors."""
        psycopg = _driver()
        import adbc_driver_manager

        try:
            yield
        except (psycopg.Error, adbc_driver_manager.Error) as error:
            raise errors.failed(error, self.where, doing, namespace) from None

    def _conninfo(self, **more: str) -> str:
        from psycopg import conninfo

        settings = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        options = f"{self._info.get('options') or ''} {settings}".strip()
        info = {**DEFAULTS, **self._info, "client_encoding": "UTF8", "options": options, **more}
        return conninfo.make_conninfo("", **info)


def _parsed(uri: str) -> dict[str, Any]:
    psycopg = _driver()
    from psycopg import conninfo

    try:
        found = dict(conninfo.conninfo_to_dict(uri))
    except psycopg.Error:  # what libpq says about it has parts of it, and so perhaps the password
        found = None
    if found is None or ("://" in uri and _cut_wrongly(uri, found)):
        raise BadSetting(
            "uri cannot be understood; it looks like postgresql://user:password@host:5432/name, where @ and / in a "
            "password are written %40 and %2F"
        )
    return found


def _cut_wrongly(uri: str, found: dict[str, Any]) -> bool:
    """Whether a part of the password would be taken for the host, the port or the name of the database."""
    host, port, name = (str(found.get(part) or "") for part in ("host", "port", "dbname"))
    return "@" in host[1:] or ("@" in name and name in uri) or bool(port.strip("0123456789,"))


def _driver() -> Any:
    try:
        import adbc_driver_postgresql  # noqa: F401
        import psycopg
    except ImportError as error:
        raise NotInstalled(f"PostgreSQL needs more packages: pip install 'tailrace[postgres]' ({error})") from None
    return psycopg


def check_version(connection: Connection[Any], where: str) -> int:
    """The server's major version, if it is one we know."""
    version = connection.info.server_version // 10000
    if version < MIN_MAJOR_VERSION:
        raise NotReady(
            f"PostgreSQL at {where} is version {version}; {MIN_MAJOR_VERSION} is the oldest that can be used"
        )
    return version
