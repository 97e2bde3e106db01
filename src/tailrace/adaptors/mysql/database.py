"""A database: its address, and connections to it that raise tailrace's errors in place of the driver's."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tailrace.adaptors.mysql import errors
from tailrace.errors import BadSetting, NotInstalled, NotReady

if TYPE_CHECKING:
    from pymysql.connections import Connection

OLDEST = {"mysql": (8, 0), "mariadb": (10, 6)}
"""The oldest supported version of each flavor."""
SESSION = (
    "SET NAMES utf8mb4",
    (
        "SET SESSION time_zone = '+00:00', sql_mode = 'NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES', autocommit = 1, "
        "transaction_isolation = 'REPEATABLE-READ', net_write_timeout = 3600, net_read_timeout = 3600, "
        "wait_timeout = 28800, lock_wait_timeout = 60"
    ),
)
"""Statements at the start of every session, which fix how values are written, whatever the server's defaults are."""
MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
KNOWN = {"ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "connect-timeout"}
LONGEST_TIMEOUT = 365 * 24 * 3600
"""The longest time in seconds that PyMySQL waits for a connection."""


class Database:
    """One server, or one database of a server.  Neither its repr nor its errors contain the password."""

    def __init__(self, uri: str) -> None:
        self._given = _parsed(uri)
        self.name = str(self._given["database"])
        self.where = f"{self._given['host']}:{self._given['port']}" + (f"/{self.name}" if self.name else "")
        self.user = f"'{self._given['user']}'@'%'"
        """The user as GRANT names it; the host is known once a connection was made."""

    def __repr__(self) -> str:
        return f"Database({self.where})"

    @contextlib.contextmanager
    def connect(self, doing: str = "asking", namespace: str = "") -> Iterator[Connection[Any]]:
        """Open a connection in autocommit mode for a block, and close it after the block.

        The driver's errors in the block are raised as tailrace's; `doing` and `namespace` go into their texts."""
        connection = self.open()
        try:
            with self.guarded(doing, namespace):
                yield connection
        finally:
            close(connection)

    def open(self, **more: Any) -> Connection[Any]:
        """Open a connection that the caller closes; `more` are arguments of PyMySQL's `connect`."""
        pymysql = driver()
        try:
            connection = pymysql.connect(**{**self._given, **more}, charset="utf8mb4", autocommit=None)
        except (pymysql.Error, OSError, RuntimeError) as error:
            raise errors.refused(error, self.where, self.user, self.name) from None
        try:
            with self.guarded("connecting"):
                for sql in _session(connection):
                    ask(connection, sql)
                user, host = ask(connection, "SELECT CURRENT_USER()")[0][0].rsplit("@", 1)
        except BaseException:
            close(connection)
            raise
        self.user = f"'{user}'@'{host}'"
        return connection

    @contextlib.contextmanager
    def guarded(self, doing: str, namespace: str = "") -> Iterator[None]:
        """Translate the driver's errors in a block into tailrace's."""
        pymysql = driver()
        try:
            yield
        except (pymysql.Error, OSError) as error:
            raise errors.failed(error, self.where, doing, self.user, namespace) from None


def _session(connection: Any) -> tuple[str, ...]:
    if flavor_of(connection) == "mysql":
        return (*SESSION, "SET SESSION information_schema_stats_expiry = 0")
    return tuple(sql.replace("transaction_isolation", "tx_isolation") for sql in SESSION)


def close(connection: Any) -> None:
    """Close a connection in any state, without a word to the server."""
    connection._force_close()


def ask(connection: Any, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Execute a statement over a connection to MySQL and return all of its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def flavor_of(connection: Any) -> str:
    """Return "mysql" or "mariadb", by the server's version text."""
    return "mariadb" if "mariadb" in connection.get_server_info().lower() else "mysql"


def check_version(connection: Any, where: str) -> str:
    """Return the server's flavor; raise `NotReady` if its version is older than the oldest that is supported."""
    flavor, text = flavor_of(connection), connection.get_server_info()
    numbers = text.removeprefix("5.5.5-").split("-")[0].split(".")
    version = tuple(int(number) for number in numbers[:2])
    if version < OLDEST[flavor]:
        oldest = ".".join(map(str, OLDEST[flavor]))
        raise NotReady(f"MySQL at {where} is version {text}; the oldest that is supported is {flavor} {oldest}")
    return flavor


def _parsed(uri: str) -> dict[str, Any]:
    try:
        parts = urlsplit(uri)
        host, port, options = parts.hostname, parts.port or 3306, dict(parse_qsl(parts.query))
    except ValueError:
        parts, host, port, options = urlsplit(""), None, 0, {}
    name = unquote(parts.path.removeprefix("/"))
    if parts.scheme not in ("mysql", "mariadb") or not host or "@" in name or "@" in host or "/" in name:
        raise BadSetting(
            "uri cannot be understood; it looks like mysql://user:password@host:3306/name, where @ and / in a password "
            "are written %40 and %2F"
        )
    for option in options:
        if option not in KNOWN:
            raise BadSetting.unknown("uri", option, KNOWN)
    return {
        "host": host,
        "port": port,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": name,
        "connect_timeout": _seconds(options.get("connect-timeout", "10")),
        **_tls(options),
    }


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= LONGEST_TIMEOUT:
        raise BadSetting(f"uri: connect-timeout is a whole number of seconds, 1 to {LONGEST_TIMEOUT}, not {text!r}")
    return int(text)


def _tls(options: dict[str, str]) -> dict[str, Any]:
    mode = options.get("ssl-mode", "VERIFY_CA" if "ssl-ca" in options else "PREFERRED").upper().replace("-", "_")
    if mode not in MODES:
        raise BadSetting.unknown("uri ssl-mode", mode, MODES)
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    if mode == "PREFERRED":
        return {}
    try:
        context = ssl.create_default_context(cafile=options.get("ssl-ca"))
        context.check_hostname = mode == "VERIFY_IDENTITY"
        context.verify_mode = ssl.CERT_NONE if mode == "REQUIRED" else ssl.CERT_REQUIRED
        if "ssl-cert" in options:
            context.load_cert_chain(options["ssl-cert"], options.get("ssl-key"))
    except OSError as error:
        raise BadSetting(f"uri: a certificate of ssl-ca, ssl-cert or ssl-key cannot be read: {error}") from None
    return {"ssl": context}


def driver() -> Any:
    """Import and return PyMySQL; raise `NotInstalled` if it is missing."""
    try:
        import pymysql
    except ImportError as error:
        raise NotInstalled(f"MySQL needs more packages: pip install 'tailrace[mysql]' ({error})") from None
    return pymysql
