"""Packets of MySQL's protocol, read beneath the driver, which would be too slow for large results and for the binlog.

The driver connects, authenticates and sends requests.  This module reads the server's answers, many packets from one
`recv`.  The driver's own buffer holds none of an answer, because the server sends only what was requested."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

RECEIVE = 1 << 18
"""Bytes that one call of the socket returns, at most."""
LONGEST = 0xFFFFFF
"""The length of a full packet, whose contents continue in the next packet."""


class Packets:
    """Reads the packets that the server sends on a connection."""

    def __init__(self, connection: Any) -> None:
        self._socket: socket.socket = connection._sock
        self._data = b""
        self._at = 0

    def read(self, seconds: float | None = None) -> bytes | None:
        """Return the next packet's contents, or None after `seconds` without it; without `seconds` wait forever."""
        data, at = self._data, self._at
        if len(data) - at >= 4:
            size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            end = at + 4 + size
            if end <= len(data) and size < LONGEST:
                self._at = end
                return data[at + 4 : end]
        return self._received(seconds)

    def _received(self, seconds: float | None) -> bytes | None:
        """Do the same as `read` where the socket must be read first."""
        parts: list[bytes] = []
        while True:
            patience = None if parts else seconds  # the server is already sending the rest of a long packet
            if not self._has(4, patience):
                return None
            size = int.from_bytes(self._data[self._at : self._at + 3], "little")
            if not self._has(4 + size, patience):
                return None
            parts.append(self._data[self._at + 4 : self._at + 4 + size])
            self._at += 4 + size
            if size < LONGEST:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _has(self, size: int, seconds: float | None) -> bool:
        """Receive until `size` bytes are buffered; return whether they arrived in time."""
        missing = size - (len(self._data) - self._at)
        if missing <= 0:
            return True
        chunks = [self._data[self._at :]]
        while missing > 0 and (more := self._receive(seconds)) is not None:
            chunks.append(more)
            missing -= len(more)
        self._data, self._at = b"".join(chunks), 0
        return missing <= 0

    def _receive(self, seconds: float | None) -> bytes | None:
        self._socket.settimeout(seconds)
        try:
            got = self._socket.recv(RECEIVE)
        except (TimeoutError, BlockingIOError):
            return None
        if not got:
            raise ConnectionError("the server closed the connection")
        return got


def query(connection: Any, sql: str) -> tuple[int, Packets]:
    """Send a query; return the number of columns of its result, and the packets, of which the rows come next."""
    from pymysql.constants.COMMAND import COM_QUERY

    connection._execute_command(COM_QUERY, sql)
    packets = Packets(connection)
    first = packets.read()
    assert first is not None
    check(first)
    count, _ = length(first, 0)
    for _ in range(count + 1):  # one definition for each column, and the packet that ends them
        packets.read()
    return count, packets


def rows(packets: Packets, appends: list[Callable[[bytes | None], None]]) -> Iterator[int]:
    """Pass each value of a result to the function of its column; yield the size of each row, until the result ends."""
    read = packets.read
    while True:
        data = read()
        assert data is not None
        if data[0] >= 0xFE and (data[0] == 0xFF or len(data) < 9):
            check(data)
            return
        at = 0
        for append in appends:
            size = data[at]
            at += 1
            if size >= 251:
                if size == 251:
                    append(None)
                    continue
                size, at = length(data, at - 1)
            append(data[at : at + size])
            at += size
        yield at


def length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer of a packet at `at`; return it and the offset after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def check(packet: bytes) -> None:
    """Raise the driver's exception for an error packet; do nothing with any other packet."""
    if packet[:1] == b"\xff":
        from pymysql import err

        with contextlib.suppress(IndexError):
            err.raise_mysql_exception(packet)
        raise ConnectionError("the server sent an error that cannot be read")
