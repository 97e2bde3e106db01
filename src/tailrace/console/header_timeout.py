"""The header timeout: how long a client may take to send the head of a request.  Without it uvicorn waits for ever, and
each such connection holds a descriptor."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(head_seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol with a timer that closes a connection if a request's head is not complete in time."""

    class Patient(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """Start the timer: a client has connected."""
            super().connection_made(transport)
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            """Parse the bytes, and stop the timer once the parser's state says that the head is complete."""
            super().data_received(data)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop the timer: the client is gone."""
            self._stop()
            super().connection_lost(exc)

        def _expect_head(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._stop()
            elif self._late is None:
                self._late = self.loop.call_later(head_seconds, self.transport.close)

        def _stop(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Patient
