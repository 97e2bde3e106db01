"""The header timeout: a limit on the time in which a connection sends the head of its request.  Without it
uvicorn waits for ever, and each such connection costs a descriptor."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(head_seconds: float) -> type[H11Protocol]:
    """The protocol of a server that closes connections whose heads do not come in time."""

    class Patient(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """A client has come."""
            super().connection_made(transport)
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            """Some bytes have come; whether the head is whole shows in the state."""
            super().data_received(data)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            """The client is gone."""
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
