"""Streaming answers: records and events as NDJSON lines or as server-sent events, for as long as the client reads."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tailrace.console.operation import EVENTS, NDJSON, Call
from tailrace.console.problems import Problem, problem_of

BEAT_SECONDS = 15.0
"""Seconds without news after which a stream sends a sign of life: proxies end silent connections."""
PIECE_BYTES = 1024 * 1024
_log = logging.getLogger("tailrace.console")
_encode = msgspec.json.Encoder().encode


class Item(msgspec.Struct, frozen=True):
    """One thing to send: its event name, its data, and the cursor from which a client continues after it."""

    event: str
    data: Any
    cursor: str = ""


class Batch:
    """Items to send at once.  A batch that several clients get is encoded once."""

    __slots__ = ("_encoded", "items")

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self._encoded: dict[str, bytes] = {}

    def encoded(self, media: str) -> bytes:
        """Return the items as a stream of this media type has them; an empty batch is a sign of life."""
        if media not in self._encoded:
            if not self.items:
                self._encoded[media] = b": still here\n\n" if media == EVENTS else b"\n"
            else:
                self._encoded[media] = (as_events if media == EVENTS else as_lines)(self.items)
        return self._encoded[media]


def as_lines(items: Iterable[Item]) -> bytes:
    """Return items as NDJSON: a record is a line of its own, any other item an object under its event name."""
    out = bytearray()
    for item in items:
        out += _encode(item.data if item.event == "record" else {item.event: item.data})
        out += b"\n"
    return bytes(out)


def as_events(items: Iterable[Item]) -> bytes:
    """Return items as server-sent events; a browser's EventSource continues from the last id."""
    out = bytearray()
    for item in items:
        if item.event != "record":
            out += b"event: " + item.event.encode() + b"\n"
        if item.cursor:
            out += b"id: " + item.cursor.encode() + b"\n"
        out += b"data: " + _encode(item.data) + b"\n\n"
    return bytes(out)


async def _sent(call: Call, batches: AsyncIterator[Batch], media: str) -> AsyncIterator[bytes]:
    if media == EVENTS:
        yield b": open\n\n"
    try:
        async for batch in batches:
            yield batch.encoded(media)
    except Exception as error:
        _log.warning("a stream of %s ends: %s: %s", call.request.url.path, type(error).__name__, error)
        problem: Problem = problem_of(error)
        yield Batch([Item("problem", problem)]).encoded(media)


def in_pieces(body: memoryview, status: int, headers: dict[str, str], media: str) -> StreamingResponse:
    """Return a large answer that is sent in pieces, as fast as the client takes them.  If the body were sent whole,
    each write would move the rest of it in memory."""

    async def pieces() -> AsyncIterator[memoryview]:
        for start in range(0, len(body), PIECE_BYTES):
            yield body[start : start + PIECE_BYTES]

    return StreamingResponse(pieces(), status, {**headers, "Content-Length": str(len(body))}, media)


class Counted(StreamingResponse):
    """An answer that counts as one of its client's streams until it is sent."""

    def __init__(self, call: Call, body: AsyncIterator[bytes], media: str) -> None:
        super().__init__(body, headers={"X-Accel-Buffering": "no"}, media_type=media)
        self._slot = call.served.streams.one(call.client)
        self._slot.__enter__()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, until it ends or the client is gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slot.__exit__(None, None, None)


def streamed(call: Call, batches: AsyncGenerator[Batch], media: str) -> Counted:
    """Return a streaming answer.  If `batches` raises, the stream's last item is the problem."""

    async def body() -> AsyncIterator[bytes]:
        async with aclosing(batches):
            async for part in _sent(call, batches, media):
                yield part

    return Counted(call, body(), NDJSON if media == NDJSON else EVENTS)
