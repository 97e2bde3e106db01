"""Events of the log that the servers of the tests do not write, without a server."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from tailrace.adaptors.mysql.packets import Packets, length
from tailrace.adaptors.mysql.source import events
from tailrace.adaptors.mysql.source.values import decimal


def event(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, events.HEADER + len(body), 0, 0) + body


@pytest.mark.parametrize("packed", [True, False])
def test_a_transaction_that_is_compressed(packed: bool) -> None:
    """As MySQL 8.0.20 writes it with binlog_transaction_compression."""
    inner = [event(events.XID, bytes(8)), event(events.QUERY, b"x" * 300)]
    plain = b"".join(inner)
    data = pa.compress(plain, "zstd", asbytes=True) if packed else plain
    size = b"\xfc" + struct.pack("<H", len(data))
    whole = b"\xfc" + struct.pack("<H", len(plain))
    kind = b"\x00" if packed else b"\xfc\xff\x00"
    fields = b"\x02" + bytes([len(kind)]) + kind + b"\x03" + bytes([len(whole)]) + whole + b"\x01" + bytes([len(size)])
    assert list(events.read_payload(event(events.PAYLOAD, fields + size + b"\x00" + data))) == inner


class Socket:
    """Gives bytes in pieces of a size, and then nothing for now."""

    def __init__(self, data: bytes, size: int) -> None:
        self._sock, self._data, self._size = self, data, size

    def settimeout(self, seconds: float | None) -> None:
        self.patience = seconds

    def recv(self, most: int) -> bytes:
        if not self._data:
            raise TimeoutError
        part, self._data = self._data[: self._size], self._data[self._size :]
        return part


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1 << 20, 1 << 25])
def test_packets_cut_anywhere(size: int) -> None:
    long = b"y" * (0xFFFFFF + 5) if size > 100 else b"y" * 50
    wanted = [b"", b"a", long, b"b" * 300]
    data = b""
    for body in wanted:
        parts = [body[at : at + 0xFFFFFF] for at in range(0, len(body) + 1, 0xFFFFFF)]
        data += b"".join(len(part).to_bytes(3, "little") + b"\0" + part for part in parts)
    packets = Packets(Socket(data, size))
    assert [packets.read(1.0) for _ in wanted] == wanted
    assert packets.read(0.1) is None


def test_a_packet_that_is_not_all_there_stays() -> None:
    socket = Socket(b"\x05\0\0\0abc", 100)
    packets = Packets(socket)
    assert packets.read(0.1) is None
    socket._data = b"de"
    assert packets.read(0.1) == b"abcde"


def test_lengths() -> None:
    for number, data in ((250, b"\xfa"), (65535, b"\xfc\xff\xff"), (2**24 - 1, b"\xfd\xff\xff\xff")):
        assert length(data, 0) == (number, len(data))


def test_decimals() -> None:
    """The example of MySQL's own source: 1234567890.1234 in decimal(14,4)."""
    data = bytes.fromhex("810dfb38d204d2")
    assert decimal(14, 4)(data, 0) == ("1234567890.1234", 7)
    assert decimal(14, 4)(bytes(byte ^ 0xFF for byte in data), 0) == ("-1234567890.1234", 7)
