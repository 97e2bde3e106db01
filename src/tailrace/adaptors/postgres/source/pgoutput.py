"""The messages of pgoutput, PostgreSQL's plugin for logical replication: their bytes, and functions that read them.

The layouts are in https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
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
"""The texts of a row's columns as bytes; None for null, UNSET for a field that the server did not send."""

u16 = struct.Struct(">H").unpack_from
u32 = struct.Struct(">I").unpack_from
_begin = struct.Struct(">QqI").unpack_from
_commit = struct.Struct(">BQQq").unpack_from
_column = struct.Struct(">Ii").unpack_from


class Begin(NamedTuple):
    """The begin of a transaction: where in the log it commits, when, and its number."""

    lsn: int
    time: int
    xid: int


class Commit(NamedTuple):
    """The commit of a transaction: its place in the log, and the place after it."""

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
        """The namespace of the table that a RELATION message describes."""
        return names.namespace(self.schema or "pg_catalog", self.name)


def milliseconds(time: int) -> int:
    """A time in a message of the log, in milliseconds since 1970."""
    return time // 1000 + EPOCH


def read_begin(data: bytes, at: int) -> Begin:
    """Read a BEGIN message, whose kind is at `at`."""
    lsn, time, xid = _begin(data, at + 1)
    return Begin(lsn, milliseconds(time), xid)


def read_commit(data: bytes, at: int) -> Commit:
    """Read a COMMIT message, whose kind is at `at`.  In a STREAM COMMIT the same layout follows the transaction's
    number."""
    _, lsn, end, time = _commit(data, at + 1)
    return Commit(lsn, end, milliseconds(time))


def read_relation(data: bytes, at: int) -> Relation:
    """Read a RELATION message, whose kind is at `at`."""
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
    """Read the row in a message, whose count of columns is at `at`; also return where it ends."""
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
    """Read a TRUNCATE message, whose kind is at `at`: the oids of the tables."""
    (count,) = u32(data, at + 1)
    return list(struct.unpack_from(f">{count}I", data, at + 6))
