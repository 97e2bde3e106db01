"""The messages of pgoutput, PostgreSQL's logical replication protocol, as bytes and as what they say.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html has the layouts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tailrace.adaptors.postgres import names

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT = b"SEcA"
KEY, OLD, NEW, TEXT, NULL, SAME = b"KONtnu"
EPOCH: Final = 946_684_800_000
"""2000-01-01 in milliseconds since 1970; PostgreSQL's times count from there."""


class Unset:
    """The value of a field that the server did not send."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()
Row = list[Any]
"""The texts of a row's columns as bytes; None for null, UNSET for what was not sent."""

u16 = struct.Struct(">H").unpack_from
u32 = struct.Struct(">I").unpack_from
_begin = struct.Struct(">QqI").unpack_from
_commit = struct.Struct(">BQQq").unpack_from
_column = struct.Struct(">Ii").unpack_from


class Begin(NamedTuple):
    """A transaction begins: where in the log it commits, when, and its number."""

    lsn: int
    time: int
    xid: int


class Commit(NamedTuple):
    """A transaction has committed, there; the log goes on at `end`."""

    lsn: int
    end: int
    time: int


class RelationColumn(NamedTuple):
    """A column as the log describes it."""

    name: str
    type: int
    modifier: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the log describes it."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return names.namespace(self.schema or "pg_catalog", self.name)


def milliseconds(time: int) -> int:
    """A time of the log, in milliseconds since 1970."""
    return time // 1000 + EPOCH


def read_begin(data: bytes, at: int) -> Begin:
    """BEGIN, at its kind."""
    lsn, time, xid = _begin(data, at + 1)
    return Begin(lsn, milliseconds(time), xid)


def read_commit(data: bytes, at: int) -> Commit:
    """COMMIT, at its kind; a STREAM COMMIT is one after its number."""
    _, lsn, end, time = _commit(data, at + 1)
    return Commit(lsn, end, milliseconds(time))


def read_relation(data: bytes, at: int) -> Relation:
    """RELATION, at its kind."""
    (oid,) = u32(data, at + 1)
    schema, at = _text(data, at + 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = u16(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        key = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        type, modifier = _column(data, at)
        columns.append(RelationColumn(column, type, modifier, key))
        at += 8
    return Relation(oid, schema, name, identity, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def read_row(data: bytes, at: int) -> tuple[Row, int]:
    """A tuple, at its count of columns, and where it ends."""
    (count,) = u16(data, at)
    at += 2
    row: Row = []
    add = row.append
    for _ in range(count):
        kind = data[at]
        if kind == TEXT:
            end = at + 5 + u32(data, at + 1)[0]
            add(data[at + 5 : end])
            at = end
        else:
            add(None if kind == NULL else UNSET)
            at += 1
    return row, at


def read_truncate(data: bytes, at: int) -> list[int]:
    """TRUNCATE, at its kind: the oids of the tables."""
    (count,) = u32(data, at + 1)
    return list(struct.unpack_from(f">{count}I", data, at + 6))
