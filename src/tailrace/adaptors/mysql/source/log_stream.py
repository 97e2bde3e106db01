"""The log stream: a connection over which the server sends its binlog from a position on, as it does to replicas."""

from __future__ import annotations

import secrets
import struct
import uuid
import zlib
from typing import Any

from tailrace.adaptors.mysql.database import Database, ask, close, flavor_of
from tailrace.adaptors.mysql.gtid import Executed, GtidSet
from tailrace.adaptors.mysql.packets import Packets, check
from tailrace.adaptors.mysql.source.events import FORMAT, HEADER, ROTATE
from tailrace.errors import Damaged

DUMP, DUMP_GTID = 0x12, 0x1E
THROUGH_GTID = 0x04
"""The flag of COM_BINLOG_DUMP_GTID that says a set of GTIDs follows."""
HEARTBEAT = 1.0
"""Seconds without events after which the server sends a heartbeat."""


class LogStream:
    """A stream of the binlog's events as bytes: each has a header of 19 bytes, then the event's own data."""

    def __init__(self, database: Database) -> None:
        self._connection = database.open()
        self._packets: Packets | None = None
        self._summed = False
        """Whether events have checksums; each file of the binlog says so at its beginning."""
        self.file = ""
        """The file of the binlog that the server is sending."""

    def start(self, executed: Executed) -> None:
        """Request every transaction that is not in `executed`."""
        number = secrets.randbelow(2**31) + 2**31 - 1  # a server id; of two replicas with one id the server ends one
        self._introduce()
        if isinstance(executed, GtidSet):
            encoded = executed.encoded()
            body = struct.pack("<HII", THROUGH_GTID, number, 0) + struct.pack("<QI", 4, len(encoded)) + encoded
            self._send(DUMP_GTID, body)
        else:
            ask(self._connection, "SET @mariadb_slave_capability = 4")
            ask(self._connection, "SET @slave_connect_state = %s", str(executed))
            ask(self._connection, "SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
            self._send(DUMP, struct.pack("<IHI", 4, 0, number))
        self._packets = Packets(self._connection)

    def _introduce(self) -> None:
        """Send what replicas send before their request: support for checksums, the heartbeat's period, their UUID."""
        period = int(HEARTBEAT * 1_000_000_000)
        for prefix in ("master",) if flavor_of(self._connection) == "mariadb" else ("master", "source"):
            ask(self._connection, f"SET @{prefix}_binlog_checksum = @@global.binlog_checksum")
            ask(self._connection, f"SET @{prefix}_heartbeat_period = {period}")
        ask(self._connection, "SET @slave_uuid = %s, @replica_uuid = %s", *[str(uuid.uuid4())] * 2)

    def _send(self, command: int, body: bytes) -> None:
        self._connection._write_bytes(struct.pack("<I", len(body) + 1) + bytes([command]) + body)

    def read(self, seconds: float) -> bytes | None:
        """Return the next event, or None if none arrives within `seconds`; raise the driver's errors.

        `Damaged`: its checksum is wrong.  `ConnectionError`: the server has ended the stream."""
        assert self._packets is not None
        packet = self._packets.read(seconds)
        if packet is None:
            return None
        if packet[0]:
            check(packet)
            raise ConnectionError("the server ended the stream")
        if packet[5] == FORMAT:
            self._summed = packet[-5] == 1
        elif packet[5] == ROTATE:
            self.file = _file(packet)
        return self._checked(packet) if self._summed else packet[1:]

    def _checked(self, packet: bytes) -> bytes:
        """Return an event without its checksum; raise `Damaged` if the checksum is wrong."""
        data = packet[1:-4]
        if zlib.crc32(data) != int.from_bytes(packet[-4:], "little") and packet[5] not in (FORMAT, ROTATE):
            raise Damaged("the binlog has an event whose checksum is wrong; PURGE it, and copy the tables afresh")
        return data

    def close(self) -> None:
        """Close the connection."""
        close(self._connection)


def _file(rotate: bytes) -> str:
    """Return the file that a ROTATE event names.  The first one comes before the server says if it has a checksum."""
    summed = zlib.crc32(rotate[1:-4]) == int.from_bytes(rotate[-4:], "little")
    return rotate[1 + HEADER + 8 : -4 if summed else None].decode(errors="replace")


def can_stream(database: Database, executed: Executed) -> None:
    """Request the binlog and read one event, to raise the server's error if this user may not read it."""
    stream = LogStream(database)
    try:
        with database.guarded("asking for the binlog"):
            stream.start(executed)
            _first: Any = stream.read(10)
    finally:
        stream.close()
