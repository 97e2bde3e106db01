"""The log stream: PostgreSQL's replication protocol on one connection."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.source.position import lsn_number, lsn_text

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_STATUS = struct.Struct(">cQQQqB").pack
_EPOCH = 946_684_800
"""2000-01-01, from which PostgreSQL counts microseconds, in seconds since 1970."""
OPTIONS = {"proto_version": "2", "streaming": "on"}
"""Options of the stream.  The server sends large transactions in parts before they are committed, and prepared ones
only when they are."""


class Server(NamedTuple):
    """A server as it identifies itself: its system identifier, its timeline, and how far its log is flushed."""

    system: str
    timeline: int
    flushed: int


class LogStream:
    """A connection for replication and, once it is started, the stream of a slot's changes.  Messages are bytes that
    begin with b"w" (data) or b"k" (keepalive)."""

    def __init__(self, database: Database) -> None:
        self._connection: PGconn = database.log()
        self.read: Callable[[int], tuple[int, Any]] = self._connection.get_copy_data
        """`read(1)` returns (size, message); size 0: no message yet; below 0: the stream has ended."""
        self._poll = select.poll()
        self._poll.register(self._connection.socket, select.POLLIN)

    def identify(self) -> Server:
        """Return which server this is, and how far its log is."""
        system, timeline, flushed = (self._one("IDENTIFY_SYSTEM", column).decode() for column in range(3))
        return Server(system, int(timeline), lsn_number(flushed))

    def history(self, timeline: int) -> list[tuple[int, int]]:
        """Return the timelines before this one, each with the place where the next timeline left it."""
        lines = self._one(f"TIMELINE_HISTORY {timeline}", 1).decode().splitlines()
        told = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return [(int(before), lsn_number(left)) for before, left, *_ in told]

    def _one(self, order: str, column: int) -> bytes:
        from psycopg import pq

        result = self._connection.exec_(order.encode())
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._error(result)
        return result.get_value(0, column) or b""

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Start to stream the changes after a place in the log."""
        from psycopg import pq

        given = {**OPTIONS, "publication_names": names.quote(publication)}
        options = ", ".join(f"{names.quote(name)} {names.literal(value)}" for name, value in given.items())
        order = f"START_REPLICATION SLOT {names.quote(slot)} LOGICAL {lsn_text(lsn)} ({options})"
        result = self._connection.exec_(order.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            error = self._error(result)
            self.close()
            raise error

    def wait(self, seconds: float) -> None:
        """Wait for more data from the server, for at most `seconds`."""
        if self._poll.poll(seconds * 1000):
            self._connection.consume_input()

    def tell(self, received: int, durable: int, *, ask: bool = False) -> None:
        """Report to the server how far the log was received and is durable.  The server may forget what is before
        `durable`. `ask`: the server must answer at once."""
        now = int((time.time() - _EPOCH) * 1_000_000)
        self._connection.put_copy_data(_STATUS(b"r", received, durable, durable, now, ask))
        self._connection.flush()

    def ended(self) -> Exception:
        """Return the error because of which the stream has ended."""
        from psycopg import pq

        if self._connection.status != pq.ConnStatus.OK:
            return self._error(None)
        result = self._connection.get_result()
        return self._error(result)

    def _error(self, result: Any) -> Exception:
        import psycopg
        from psycopg import pq

        if result is not None and result.error_field(pq.DiagnosticField.SQLSTATE):
            return psycopg.errors.error_from_result(result, encoding="utf-8")
        text = self._connection.error_message.decode(errors="replace").strip()
        return psycopg.OperationalError(text or "the server ended the stream")

    def close(self) -> None:
        """Close the connection, which also frees the slot."""
        self._connection.finish()
