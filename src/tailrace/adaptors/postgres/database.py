"""A database: where it is, and the three kinds of connections to it: for SQL, for Arrow, and for its log."""

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
    # If row security hides rows, reading must fail: the copy would lack them.
    "row_security": "off",
}
"""Settings of every session, so that it reads and writes texts in these forms, whatever the server's defaults are."""

DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "tailrace",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class Database:
    """One database of a server.  Neither its text nor its errors contain the password."""

    def __init__(self, uri: str) -> None:
        self._info = _parsed(uri)
        port, name = self._info.get("port", "5432"), self._info.get("dbname") or self._info.get("user", "")
        self.where = f"{self._info.get('host') or self._info.get('hostaddr') or 'localhost'}:{port}/{name}"
        self.user = str(self._info.get("user", ""))

    def __repr__(self) -> str:
        return f"Database({self.where})"

    def connect(self, doing: str = "asking") -> contextlib.AbstractContextManager[Connection[Any]]:
        """Open a connection for SQL for a block; each statement is a transaction of its own.  Its errors are translated
        to tailrace's."""
        return connected(self, doing)

    @contextlib.contextmanager
    def asking(self, doing: str) -> Iterator[Connection[Any]]:
        """Lend a connection for SQL for a block, perhaps one that an earlier task of this process opened.  Its errors
        are translated to tailrace's."""
        with connection_pool.lent_sql(self._conninfo(), self.open) as connection, self.guarded(doing):
            yield connection

    def open(self) -> Connection[Any]:
        """Return a new connection for SQL, which the caller closes."""
        psycopg = _driver()
        try:
            return psycopg.connect(self._conninfo(), autocommit=True, prepare_threshold=None)  # type: ignore[no-any-return]
        except psycopg.Error as error:
            raise errors.refused(error, self.where, self._info) from None

    def arrow(self) -> Any:
        """Return a new ADBC connection, which begins transactions by itself.  The caller closes it."""
        _driver()
        import adbc_driver_postgresql.dbapi as adbc

        try:
            return adbc.connect(self._conninfo())
        except adbc.Error as error:
            raise errors.refused(error, self.where, self._info) from None

    @contextlib.contextmanager
    def lent(self) -> Iterator[Any]:
        """Lend an ADBC connection for a block, perhaps one that an earlier task of this process opened.  The end of the
        block commits."""
        with connection_pool.lent(self._conninfo(), self.arrow) as connection:
            yield connection

    def log(self) -> PGconn:
        """Return a new connection that can stream the log.  The caller calls `finish` on it."""
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
        """Translate the drivers' errors in a block to tailrace's."""
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
    except psycopg.Error:  # libpq's message quotes parts of the uri, perhaps the password
        found = None
    if found is None or ("://" in uri and _cut_wrongly(uri, found)):
        raise BadSetting(
            "uri cannot be understood; it looks like postgresql://user:password@host:5432/name, where @ and / in a "
            "password are written %40 and %2F"
        )
    return found


def _cut_wrongly(uri: str, found: dict[str, Any]) -> bool:
    """Whether libpq would take a part of the password for the host, the port or the name of the database."""
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
    """Return the server's major version.  Raises `NotReady` if it is too old."""
    version = connection.info.server_version // 10000
    if version < MIN_MAJOR_VERSION:
        raise NotReady(
            f"PostgreSQL at {where} is version {version}; {MIN_MAJOR_VERSION} is the oldest that can be used"
        )
    return version
