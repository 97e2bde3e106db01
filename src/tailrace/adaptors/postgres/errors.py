"""Errors of PostgreSQL and its drivers, translated to tailrace's, with what to do about them.

`Unavailable` may pass by itself: no connection, a restart, no memory, a lock.  `NotReady` does not: a password, a
right, a setting, a missing table.  `Rejected` is about the data.
"""

from __future__ import annotations

from typing import Any

from tailrace.errors import NotReady, Rejected, TailraceError, Unavailable

PASSING = ("08", "40", "53", "57", "58", "55P03", "55006", "25006", "XX")
"""The first characters of SQLSTATEs that may pass: connection, rollback, resources, operator, system, locks, standby,
internal."""
ABOUT_DATA = ("22", "23", "44")
"""The first characters of SQLSTATEs about data: exceptions, constraints, check options."""

CONNECTING = (
    ("password authentication failed", "check user and password in the uri"),
    ("no password supplied", "put the password into the uri: postgresql://user:password@host/name"),
    ("no pg_hba.conf entry", "let this host in by a line in the server's pg_hba.conf"),
    ("start walsender", "as a superuser: ALTER ROLE {user} REPLICATION;"),
    ("start WAL sender", "as a superuser: ALTER ROLE {user} REPLICATION;"),
    ("does not support SSL", "use sslmode=prefer in the uri, or switch TLS on in the server"),
    ("certificate verify failed", "give the server's root certificate by sslrootcert= in the uri"),
    ("permission denied for database", "GRANT CONNECT ON DATABASE {dbname} TO {user};"),
    ("is not permitted to log in", "ALTER ROLE {user} LOGIN;"),
    ("does not exist", "create it, or name another user in the uri"),
)
"""Parts of the messages of refused connections, to which libpq gives no SQLSTATE, each with advice.  Any other refusal
is taken to pass."""


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error; "" if it has none, as when there was no connection."""
    return getattr(error, "sqlstate", None) or ""


def first_line(error: BaseException) -> str:
    """What happened, without the drivers' decorations."""
    text = str(error)
    for mark in ("FATAL:  ", "ERROR:  ", " failed: "):
        if mark in text:
            text = text.rsplit(mark, 1)[1]
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def refused(error: BaseException, where: str, info: dict[str, Any]) -> TailraceError:
    """Return the error for a connection that could not be opened."""
    text = first_line(error)
    if "database" in text and "does not exist" in text:
        return NotReady(f"PostgreSQL at {where}: {text}; create it, or name another one in the uri")
    for said, helps in CONNECTING:
        if said in text:
            return NotReady(f"PostgreSQL at {where}: {text}; {helps.format(**_filled(info))}")
    return Unavailable(
        f"PostgreSQL at {where} cannot be reached: {text}; is it running there, and are host and port in the uri right?"
    )


def _filled(info: dict[str, Any]) -> dict[str, Any]:
    return {"user": "NAME", "dbname": "NAME"} | {k: v for k, v in info.items() if k in ("user", "dbname")}


def failed(error: BaseException, where: str, doing: str, namespace: str = "") -> TailraceError:
    """Return the error for a statement that failed."""
    state, text = sqlstate(error), first_line(error)
    said = f"PostgreSQL at {where}, {doing}: {text}"
    if state == "53400":
        return NotReady(f"{said}; raise the setting it names, and restart the server")
    kind = type(error).__name__
    if state.startswith(ABOUT_DATA) or (not state and kind == "DataError"):
        return Rejected(said, namespace=namespace)
    if state.startswith(PASSING) or (not state and kind in ("OperationalError", "InterfaceError", "InternalError")):
        return Unavailable(said)
    return NotReady(f"{said}{f' (SQLSTATE {state})' if state else ''}{_hint(error, state)}")


def _hint(error: BaseException, state: str) -> str:
    given = getattr(getattr(error, "diag", None), "message_hint", None)
    if given:
        return f"; {given}"
    return "; grant the right, or use another user" if state == "42501" else ""
