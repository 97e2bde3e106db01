"""Events: parses the binlog's events, except the rows in them.

Every event has a header of 19 bytes: time (u32), kind (u8), server (u32), size (u32), end (u32), flags (u16).  See
https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html and
https://mariadb.com/kb/en/replication-protocol/.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.adaptors.mysql.gtid import Gtid
from tailrace.adaptors.mysql.packets import length
from tailrace.errors import Damaged, NotReady

HEADER = 19
"""The bytes of an event before its body."""
LOAD_HEADER = 13
"""Extra bytes that the event of a LOAD DATA statement has before its texts."""
QUERY, ROTATE, FORMAT, XID, LOAD_QUERY, TABLE_MAP, INCIDENT, HEARTBEAT = 2, 4, 15, 16, 18, 19, 26, 27
GTID, ANONYMOUS_GTID, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, GTID_TAGGED = 33, 34, 38, 39, 40, 42
MARIADB_GTID, QUERY_COMPRESSED = 162, 165
INSERTS = {23, 30, 166, 169}
UPDATES = {24, 31, 39, 167, 170}
DELETES = {25, 32, 168, 171}
ROWS = INSERTS | UPDATES | DELETES
COMPRESSED = {165, 166, 167, 168, 169, 170, 171}
"""Compressed events of MariaDB (log_bin_compress)."""
SECOND = {30, 31, 32, 39, 169, 170, 171}
"""Rows events of version 2, whose header has extra data."""
MAX_EVENT_BYTES = 1 << 30
"""The largest event that a server can send: the highest value of max_allowed_packet."""
_MEND = "PURGE it, and copy the tables afresh"
SILENT = {0, 1, 3, 5, 9, 11, 13, 14, 17, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164}
"""Kinds of events that change no table: about the log itself, replication groups, and variables of statements."""
IGNORABLE = 0x80
"""The flag of events that a reader may ignore if it does not know them."""
STANDALONE, PREPARED, COMPLETED = 1, 64, 128
"""Flags of MariaDB's GTID event: a statement without BEGIN; an XA transaction is prepared; one is completed."""


class Query(NamedTuple):
    """A statement, and its session's current database."""

    schema: str
    sql: str


class Begun(NamedTuple):
    """The beginning of a transaction; `flags` are those of MariaDB's GTID event.

    `stamp` says when the transaction was first committed, on any server: in microseconds since 1970 (MySQL), or about,
    in seconds (MariaDB); 0 if unknown."""

    gtid: Gtid
    flags: int = 0
    stamp: int = 0


def read_gtid(data: bytes) -> Begun:
    """Read MySQL's GTID event, which begins a transaction."""
    source = str(uuid.UUID(bytes=data[HEADER + 1 : HEADER + 17]))
    (number,) = struct.unpack_from("<Q", data, HEADER + 17)
    return Begun(Gtid(source, number), stamp=_first_committed(data))


def _first_committed(data: bytes) -> int:
    """Return when the transaction was first committed, from the 7-byte times of the GTID event.

    The first time is this server's.  On a replica a second one follows, that of the server it was first committed on.
    """
    at = HEADER + 42
    stamp = int.from_bytes(data[at : at + 7], "little")
    return int.from_bytes(data[at + 7 : at + 14], "little") if stamp >> 55 else stamp


def read_mariadb_gtid(data: bytes) -> Begun:
    """Read MariaDB's GTID event, which begins a transaction; the server's number is in the header."""
    number, domain, flags = struct.unpack_from("<QIB", data, HEADER)
    (server,) = struct.unpack_from("<I", data, 5)
    return Begun(Gtid(f"{domain}-{server}", number), flags, int.from_bytes(data[:4], "little"))


def read_query(data: bytes) -> Query:
    """Read the event with a statement, decoded as UTF-8: its text is in the session's character set, which is nearly
    always UTF-8."""
    schema_size = data[HEADER + 8]
    (status_size,) = struct.unpack_from("<H", data, HEADER + 11)
    at = HEADER + 13 + status_size + (LOAD_HEADER if data[4] == LOAD_QUERY else 0)
    schema = data[at : at + schema_size].decode(errors="replace")
    body = data[at + schema_size + 1 :]
    if data[4] == QUERY_COMPRESSED:
        body = inflated(body)
    return Query(schema, body.decode(errors="replace"))


def inflated(data: bytes) -> bytes:
    """Decompress an event in MariaDB's form: a byte for the method and the width of the size, the size, and the packed
    bytes."""
    if not data[0] & 0x80 or data[0] & 0x70:
        raise NotReady("the binlog is compressed in a way that is not known: SET GLOBAL log_bin_compress = OFF;")
    start = 1 + (data[0] & 0x07)
    return unpacked(data[start:], int.from_bytes(data[1:start], "big"), "the binlog has an event")


def unpacked(data: bytes, size: int, what: str) -> bytes:
    """Decompress the zlib data of an event, whose size is known, with no more memory than that size; raise `Damaged` if
    it differs."""
    if size > MAX_EVENT_BYTES:
        raise Damaged(f"{what} that says it has {size:,} bytes, more than a server can send; {_MEND}")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise Damaged(f"{what} that cannot be unpacked ({error}); {_MEND}") from None
    if len(plain) != size:
        raise Damaged(
            f"{what} that says it has {size:,} bytes, and has {'more' if len(plain) > size else 'fewer'}; {_MEND}"
        )
    return plain


def read_payload(data: bytes) -> Iterator[bytes]:
    """Yield the events within the event of a compressed transaction (binlog_transaction_compression), one at a time."""
    at, size, kind, whole = HEADER, 0, 0, 0
    while True:
        field_kind, at = length(data, at)
        if field_kind == 0:
            break
        width, at = length(data, at)
        value, _ = length(data, at)
        at += width
        size, kind, whole = (
            value if field_kind == 1 else size,
            value if field_kind == 2 else kind,
            value if field_kind == 3 else whole,
        )
    packed: Any = pa.BufferReader(pa.py_buffer(data).slice(at, size))
    plain = packed if kind == 255 else pa.CompressedInputStream(packed, "zstd")
    try:
        yield from _events(plain, size if kind == 255 else whole)
    except (OSError, pa.ArrowException) as error:
        raise Damaged(f"the binlog has a transaction that cannot be unpacked ({error}); {_MEND}") from None


def _events(plain: Any, left: int) -> Iterator[bytes]:
    while begin := plain.read(HEADER):
        step = int.from_bytes(begin[9:13], "little")
        if not HEADER <= step <= min(left, MAX_EVENT_BYTES):
            raise Damaged(
                f"the binlog has a transaction with an event of {step:,} bytes, and {left:,} are left; {_MEND}"
            )
        event = begin + plain.read(step - HEADER)
        if len(event) != step:
            raise Damaged(f"the binlog has a transaction that ends within an event; {_MEND}")
        left -= step
        yield event


class LoggedColumn(NamedTuple):
    """A column as the binlog describes it: type byte, type metadata, and the fields of binlog_row_metadata = FULL."""

    kind: int
    meta: int
    name: str = ""
    unsigned: bool = False
    collation: int = 0
    values: tuple[bytes, ...] = ()
    """The values of an ENUM or SET, in the column's character set."""


@dataclass(frozen=True, slots=True)
class TableMap:
    """The description of a table, which holds for the rows events that follow; `keys`: numbers of the key columns."""

    number: int
    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]
    keys: tuple[int, ...] = field(default=())

    @property
    def is_named(self) -> bool:
        """Whether the columns have names: without binlog_row_metadata = FULL they have none, nor is the key known."""
        return all(column.name for column in self.columns)


NUMERIC = {0, 1, 2, 3, 4, 5, 8, 9, 13, 246}
CHARACTER = {15, 252, 253, 254}
ENUM, SET, STRING, BLOB, GEOMETRY = 247, 248, 254, 252, 255
_META_WIDTH = {0: 0, 1: 0, 2: 0, 3: 0, 8: 0, 9: 0, 7: 0, 10: 0, 11: 0, 12: 0, 13: 0, 6: 0, 14: 0,
               4: 1, 5: 1, 17: 1, 18: 1, 19: 1, 252: 1, 245: 1, 255: 1, 249: 1, 250: 1, 251: 1, 242: 1, 140: 1,
               15: 2, 16: 2, 246: 2, 247: 2, 248: 2, 253: 2, 254: 2, 141: 2}  # fmt: skip


def table_number(data: bytes) -> int:
    """Return the number of the table that a table map or a rows event is about."""
    return int.from_bytes(data[HEADER : HEADER + 6], "little")


def read_table_map(data: bytes, *, geometry_has_charset: bool) -> TableMap:
    """Read the event that maps a table's number to its columns; MariaDB counts geometries among the columns with a
    character set, MySQL does not."""
    at = HEADER + 8
    schema, at = data[at + 1 : at + 1 + data[at]].decode(), at + 2 + data[at]
    name, at = data[at + 1 : at + 1 + data[at]].decode(), at + 2 + data[at]
    count, at = length(data, at)
    kinds, at = list(data[at : at + count]), at + count
    size, at = length(data, at)
    metas, end = _metas(data, at, kinds), at + size
    real = [_real(kind, meta) for kind, meta in zip(kinds, metas, strict=True)]
    more = _optional(data, end + (count + 7) // 8)
    charset = CHARACTER | ({GEOMETRY} if geometry_has_charset else set())
    characters = [n for n, (kind, _) in enumerate(real) if kind in charset]
    listed = [n for n, (kind, _) in enumerate(real) if kind in (ENUM, SET)]
    collations = _collations(more, 2, 3, characters) | _collations(more, 10, 11, listed)
    signs = _bits(more.get(1, b""), [n for n, (kind, _) in enumerate(real) if kind in NUMERIC])
    values = _values(more.get(6, b""), [n for n, (kind, _) in enumerate(real) if kind == ENUM])
    values |= _values(more.get(5, b""), [n for n, (kind, _) in enumerate(real) if kind == SET])
    column_names = [name.decode() for name in _texts(more.get(4, b""))]
    columns = tuple(
        LoggedColumn(
            kind, meta, column_names[n] if column_names else "", n in signs, collations.get(n, 0), values.get(n, ())
        )
        for n, (kind, meta) in enumerate(real)
    )
    return TableMap(table_number(data), schema, name, columns, _keys(more))


def _metas(data: bytes, at: int, kinds: list[int]) -> list[int]:
    out = []
    for kind in kinds:
        width = _META_WIDTH.get(kind)
        if width is None:
            raise NotReady(f"the binlog has a column of type {kind}, which is not known")
        order = "big" if kind in (246, 247, 248, 254) else "little"
        out.append(int.from_bytes(data[at : at + width], order))  # type: ignore[arg-type]
        at += width
    return out


def _real(kind: int, meta: int) -> tuple[int, int]:
    """Return a column's real kind and metadata: STRING also stands for ENUM and SET.

    For a length over 255 its type byte holds two bits of the length."""
    if kind != STRING:
        return kind, meta
    first, second = meta >> 8, meta & 0xFF
    if first in (ENUM, SET):
        return first, second
    return STRING, second | ((first & 0x30) ^ 0x30) << 4


def _optional(data: bytes, at: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while at < len(data):
        size, start = length(data, at + 1)
        found[data[at]] = data[start : start + size]
        at = start + size
    return found


def _numbers(data: bytes) -> list[int]:
    out, at = [], 0
    while at < len(data):
        number, at = length(data, at)
        out.append(number)
    return out


def _texts(data: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        size, at = length(data, at)
        out.append(data[at : at + size])
        at += size
    return out


def _bits(data: bytes, columns: list[int]) -> set[int]:
    return {column for n, column in enumerate(columns) if n // 8 < len(data) and data[n // 8] & (0x80 >> n % 8)}


def _values(data: bytes, columns: list[int]) -> dict[int, tuple[bytes, ...]]:
    out, at = {}, 0
    for column in columns if data else ():
        count, at = length(data, at)
        values = []
        for _ in range(count):
            size, at = length(data, at)
            values.append(data[at : at + size])
            at += size
        out[column] = tuple(values)
    return out


def _collations(more: dict[int, bytes], default: int, each: int, columns: list[int]) -> dict[int, int]:
    """Return each column's collation: the event has the most common one with its exceptions, or one for each column."""
    if each in more:
        return dict(zip(columns, _numbers(more[each]), strict=False))
    if default not in more:
        return {}
    first, *others = _numbers(more[default])
    exceptions = dict(zip(others[::2], others[1::2], strict=True))
    return {column: exceptions.get(n, first) for n, column in enumerate(columns)}


def _keys(more: dict[int, bytes]) -> tuple[int, ...]:
    if 8 in more:
        return tuple(_numbers(more[8]))
    return tuple(_numbers(more.get(9, b""))[::2])
