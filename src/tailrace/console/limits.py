"""Limits against slow, huge and many requests."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from tailrace.console.problems import Refused
from tailrace.errors import BadInput, TooLarge

T = TypeVar("T")
MiB = 1024 * 1024
MAX_RECORDS = 1_000_000
"""The most records of one append.  Each becomes an object of more than a hundred bytes, and may be two objects in the
body."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one server."""

    body_bytes: int = 64 * MiB
    body_seconds: float = 60.0
    """A request's body must arrive within this time."""
    head_seconds: float = 10.0
    """A request's head must arrive within this time."""
    page_records: int = 10_000
    page_bytes: int = 32 * MiB
    wait_seconds: float = 60.0
    """The longest that a long poll waits."""
    streams_per_client: int = 64
    streams: int = 4096
    threads: int = 32
    """Threads that make blocking calls."""
    poll_seconds: float = 1.0
    """How often the server asks S3 and DynamoDB for new records while a follower waits for them."""


def check_count(records: int) -> None:
    """Refuse an append of too many records."""
    if records > MAX_RECORDS:
        raise TooLarge(f"one append takes at most {MAX_RECORDS:,} records, and none was appended; send fewer at a time")


def check_objects(data: bytes) -> None:
    """Refuse a request's JSON that may become too many objects, before any of them is made."""
    if (count := data.count(b"{") + data.count(b"[")) > 2 * MAX_RECORDS:
        raise TooLarge(
            f"the body has {count:,} opening brackets, and at most {2 * MAX_RECORDS:,} are decoded at a time; send "
            "less at a time, or as lines of JSON"
        )


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a long poll; stop when the client is gone, so that it no longer counts as one that waits.

    To be called once the request's body has been read."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Refused(400, "Cut off", "the connection ended while the request waited")
        return doing.result()
    finally:
        doing.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check_wait(seconds: float, limits: Limits) -> float:
    """Refuse a long poll that is longer than this server waits."""
    if not 0 <= seconds <= limits.wait_seconds:
        raise BadInput(f"wait is a number of seconds from 0 to {limits.wait_seconds:g}, not {seconds}")
    return seconds


async def body_of(request: Request, limits: Limits) -> bytes:
    """Read a request's body; refuse one that is too large, too slow or cut off."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.body_bytes:
        raise _too_large(limits)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_large(limits)
                parts.append(part)
    except TimeoutError:
        raise Refused(
            408, "Too slow", f"the body did not come within {limits.body_seconds:g} s", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise Refused(400, "Cut off", "the connection ended within the body; nothing was written") from None
    return b"".join(parts)


def _too_large(limits: Limits) -> Refused:
    return Refused(
        413, "Too large", f"a body has at most {limits.body_bytes:,} bytes; send it in several requests",
        {"Connection": "close"},
    )  # fmt: skip


def _too_many(what: str, option: str) -> Refused:
    said = f"{what}, and no more are served; close some, or start the server with a higher {option}"
    return Refused(429, "Too many streams", said)


def allow_descriptors(wanted: int) -> int:
    """Let this process open `wanted` files and sockets, or as many as the hard limit allows; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


class OpenStreams:
    """The number of open streams and long polls, for each client and in all."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Count a stream of a client for the length of a block; refuse it if the client or the server has too many."""
        if self._open[client] >= self._limits.streams_per_client:
            raise _too_many(f"{self._open[client]} streams and long polls of this client are open", "--max-streams")
        if self._open.total() >= self._limits.streams:
            raise _too_many(f"{self._open.total()} streams and long polls of all clients are open", "--max-all-streams")
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]
