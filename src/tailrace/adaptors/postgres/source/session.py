"""The session: one connection streams the log into a collector, and a second one is for queries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.source.decoder import Decoder
from tailrace.adaptors.postgres.source.log_stream import LogStream
from tailrace.adaptors.postgres.source.position import lsn_number
from tailrace.adaptors.postgres.source.transaction import Collected, DescribedTable, Fetch, Notice
from tailrace.errors import Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

    from tailrace.adaptors.postgres.source.pgoutput import Relation

REPORT_INTERVAL_SECONDS = 1.0
"""Seconds between two reports of the position, to the server and to the pipeline, while nothing happens."""
MAX_SILENCE_SECONDS = 60.0
"""Seconds without any message from the server after which the session fails."""
DATA, HEADER = b"w"[0], 25
MESSAGES_PER_LOOK = 1000
"""The most messages that are read before the follower looks at what they contain."""


class LogSession:
    """An open session.  It reports to the server that it is alive, and up to where everything is durable."""

    def __init__(
        self,
        database: Database,
        settings: PostgresSource,
        describe: Callable[[Relation], DescribedTable | None],
        fetch: Fetch,
        notice: Notice,
        durable: int,
    ) -> None:
        self.database, self.settings, self.durable = database, settings, durable
        limits = {"max_rows": settings.batch_rows, "max_bytes": settings.batch_bytes}
        self.collected = Collected(describe, fetch, **limits, alive=self.alive, notice=notice)
        self.decoder = Decoder(self.collected)
        self.aside: Connection[Any] = database.open()
        self._stream: LogStream | None = None
        self._told = self._heard = 0.0

    def start(self, lsn: int) -> None:
        """Start to stream the log from a place."""
        stream = LogStream(self.database)
        stream.start(self.settings.slot, self.settings.published, lsn)
        self._stream, self._heard = stream, time.monotonic()
        self.collected.end = lsn

    def log_end(self, end: Literal["insert", "flush"]) -> int:
        """The end of the log: `insert` is after everything that snapshots may have seen, `flush` is what the server
        will send up to."""
        row = self.aside.execute(f"SELECT pg_current_wal_{end}_lsn()::text").fetchone()
        assert row is not None
        return lsn_number(row[0])

    def close(self) -> None:
        """Report to the server for the last time, and close both connections."""
        import psycopg

        self.decoder.close()
        self.collected.close()
        if self._stream is not None:
            with contextlib.suppress(psycopg.Error):
                self._stream.tell(self.durable, self.durable)
            self._stream.close()
        self.aside.close()

    def read(self, due: Callable[[], float]) -> None:
        """Read messages until something must be given to the caller; `due` returns in how many seconds that is at the
        latest."""
        stream, decoder, collected = self._stream, self.decoder, self.collected
        assert stream is not None, "it was started"
        read, feed, most = stream.read, decoder.feed, self.settings.batch_rows
        budget = MESSAGES_PER_LOOK
        while True:
            size, message = read(1)
            if size > 0:
                if message[0] == DATA:
                    feed(bytes(message), HEADER)
                    budget -= 1
                else:
                    self._keepalive(bytes(message))
                if (budget <= 0 or collected.rows >= most) and decoder.between:
                    self._heard = time.monotonic()
                    return
            elif size == 0:
                self._check_heard()
                seconds = due()
                stream.wait(max(seconds, 0))
                if seconds <= 0:
                    return
            else:
                raise stream.ended()

    def _keepalive(self, message: bytes) -> None:
        self._heard = time.monotonic()
        if self.decoder.between:
            self.collected.end = max(self.collected.end, int.from_bytes(message[1:9], "big"))
        if message[17]:
            self.alive(asked=True)

    def _check_heard(self) -> None:
        self.alive()
        if time.monotonic() - self._heard > MAX_SILENCE_SECONDS:
            raise Unavailable(f"PostgreSQL at {self.database.where} has been silent for {MAX_SILENCE_SECONDS:.0f} s")

    def alive(self, *, asked: bool = False) -> None:
        """Report the position to the server, at most every `REPORT_INTERVAL_SECONDS` unless the server has asked."""
        now = time.monotonic()
        if self._stream is not None and (asked or now - self._told >= REPORT_INTERVAL_SECONDS):
            self._stream.tell(max(self.collected.end, self.durable), self.durable, ask=not asked)
            self._told = now
