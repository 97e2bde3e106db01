"""The row decoder: turns rows events into rows, with one function for each column of a table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tailrace.adaptors.mysql.catalog import Column
from tailrace.adaptors.mysql.packets import length
from tailrace.adaptors.mysql.source import values
from tailrace.adaptors.mysql.source.charsets import BINARY, Charsets
from tailrace.adaptors.mysql.source.events import (
    BLOB,
    COMPRESSED,
    HEADER,
    SECOND,
    STRING,
    UPDATES,
    LoggedColumn,
    TableMap,
    inflated,
)
from tailrace.adaptors.mysql.types import Type, named

Row = list[Any]
_INTEGERS = {1: ("tinyint", "b"), 2: ("smallint", "h"), 3: ("int", "i"), 8: ("bigint", "q")}
_TEXT = {1: "tinytext", 2: "text", 3: "mediumtext", 4: "longtext"}
_BYTES = {1: "tinyblob", 2: "blob", 3: "mediumblob", 4: "longblob"}


class RowDecoder:
    """Decodes the rows of one table.  `hints` has the catalog's types of columns whose type the binlog does not say."""

    def __init__(self, table: TableMap, charsets: Charsets, hints: Mapping[str, str]) -> None:
        self._charsets, self._hints = charsets, hints
        made = [self._column(column) for column in table.columns]
        self.columns = tuple(Column(column.name, type) for column, (type, _) in zip(table.columns, made, strict=True))
        self._reads = [read for _, read in made]
        self._count = len(made)
        self.partial = False
        """Whether the last event's rows lack some columns."""

    def rows(self, data: bytes) -> Iterator[tuple[Row | None, Row | None]]:
        """Yield each row: (before, after) for an update, else (the row, None).

        A column that the event lacks is `ABSENT`."""
        kind, at = data[4], HEADER + 8
        if kind in SECOND:
            at += struct.unpack_from("<H", data, at)[0]
        count, at = length(data, at)
        width = (count + 7) // 8
        images = [int.from_bytes(data[at : at + width], "little")]
        at += width
        if kind in UPDATES:
            images.append(int.from_bytes(data[at : at + width], "little"))
            at += width
        if kind in COMPRESSED:
            data, at = inflated(data[at:]), 0
        read, end, updates = self._read, len(data), kind in UPDATES
        full = (1 << self._count) - 1
        present = [None if image & full == full else image for image in images]
        self.partial = present != [None] * len(present)
        while at < end:
            before, at = read(data, at, present[0])
            if updates:
                after, at = read(data, at, present[1])
                yield before, after
            else:
                yield before, None

    def _read(self, data: bytes, at: int, present: int | None) -> tuple[Row, int]:
        if present is not None:
            return self._partial(data, at, present)
        start = at + (self._count + 7) // 8
        nulls, at = int.from_bytes(data[at:start], "little"), start
        row: Row = []
        append = row.append
        for read in self._reads:
            if nulls & 1:
                append(None)
            else:
                value, at = read(data, at)
                append(value)
            nulls >>= 1
        return row, at

    def _partial(self, data: bytes, at: int, present: int) -> tuple[Row, int]:
        there = [n for n in range(self._count) if present >> n & 1]
        start = at + (len(there) + 7) // 8
        nulls, at = int.from_bytes(data[at:start], "little"), start
        row: Row = [ABSENT] * self._count
        for n, column in enumerate(there):
            row[column] = None
            if not nulls >> n & 1:
                row[column], at = self._reads[column](data, at)
        return row, at

    # -- one column
    def _column(self, column: LoggedColumn) -> tuple[Type, values.Read]:
        kind, meta, unsigned = column.kind, column.meta, column.unsigned
        if kind in _INTEGERS:
            name, code = _INTEGERS[kind]
            read = values.fixed(f"<{code.upper() if unsigned else code}")
            return Type(name, named(name, unsigned=unsigned), unsigned), read
        if kind == 246:
            precision, scale = meta >> 8, meta & 0xFF
            name = named("decimal", unsigned=unsigned, size=precision, scale=scale)
            return Type("decimal", name, unsigned, precision, scale), values.decimal(precision, scale)
        if kind in _TIMES:
            name, make = _TIMES[kind]
            return Type(name, named(name, size=meta), precision=meta), make(meta)
        if kind in (15, 253, STRING, BLOB):
            return self._text(column)
        if kind in (247, 248):
            texts = self._texts(column)
            make_listed = values.enum if kind == 247 else values.some_of
            name = "enum" if kind == 247 else "set"
            return Type(name, named(name, values=texts)), make_listed(meta, texts)
        return self._other(column)

    def _text(self, column: LoggedColumn) -> tuple[Type, values.Read]:
        is_bytes = column.collation == BINARY
        decode = None if is_bytes else self._charsets.decode(column.collation)
        if column.kind == BLOB:
            name = (_BYTES if is_bytes else _TEXT)[column.meta]
            return Type(name, name), values.blob(column.meta, decode)
        hint = self._hints.get(column.name, "")
        if hint in _HINTED:
            return Type(hint, hint), values.blob(1, _HINTED[hint])
        width = 1 if column.meta < 256 else 2
        if column.kind == STRING:
            name = "binary" if is_bytes else "char"
            decode = values.padded(column.meta) if is_bytes else decode
        else:
            name = "varbinary" if is_bytes else "varchar"
        size = column.meta if is_bytes else column.meta // self._charsets.width(column.collation)
        return Type(name, named(name, size=size), precision=size), values.blob(width, decode)

    def _texts(self, column: LoggedColumn) -> list[str]:
        decode = self._charsets.decode(column.collation) or bytes.decode
        return [decode(value) for value in column.values]

    def _other(self, column: LoggedColumn) -> tuple[Type, values.Read]:
        kind, meta = column.kind, column.meta
        if kind in (4, 5):
            name = "float" if kind == 4 else "double"
            return Type(name, named(name, unsigned=column.unsigned), column.unsigned), values.fixed(_FLOATS[kind])
        if kind == 9:
            read = values.integer(3, signed=not column.unsigned)
            return Type("mediumint", named("mediumint", unsigned=column.unsigned), column.unsigned), read
        if kind == 16:
            size = (meta >> 8) * 8 + (meta & 0xFF)
            return Type("bit", named("bit", size=size), precision=size), values.bit(meta)
        if kind in (245, 255, 242):
            name = {245: "json", 255: "geometry", 242: "vector"}[kind]
            return Type(name, name), values.json(meta) if kind == 245 else values.blob(meta, None)
        if kind in (10, 14):
            return Type("date", "date"), values.date
        if kind == 13:
            return Type("year", "year"), values.year
        raise values.unknown(kind, column.name)


class _Absent:
    """The type of `ABSENT`, the marker of a column that a logged row lacks."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
_FLOATS = {4: "<f", 5: "<d"}
_TIMES: dict[int, tuple[str, Callable[[int], values.Read]]] = {
    17: ("timestamp", values.timestamp2),
    18: ("datetime", values.datetime2),
    19: ("time", values.time2),
}
_HINTED: dict[str, Callable[[bytes], str]] = {
    "uuid": values.uuid_text,
    "inet6": values.inet_text(16),
    "inet4": values.inet_text(4),
}
