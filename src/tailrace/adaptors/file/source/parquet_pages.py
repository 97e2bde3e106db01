"""Parquet pages: computes from the headers of pages how much memory the rows of a row group need.

Arrow decompresses a page whole, by the sizes in the page's header; the sizes in the file's footer may be false.  So
this module reads the headers before Arrow reads the pages.  A header is a Thrift struct in the compact protocol:

    PageHeader   1 type (2: dictionary)   2 bytes uncompressed   3 bytes compressed   5 / 7 / 8 header of its type
    header of a type   1 values   (8 only) 3 rows
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, Any, NamedTuple

from tailrace.errors import BadInput

HEADER_BYTES = (4096, 1 << 20)
"""How many bytes are read for a header, and for one that is longer because of its statistics."""
LEVEL_BYTES = 16
"""Memory for the levels and offsets of each value in a list, also of a null."""
MOST_TIMES = 200
"""How many times its stored size a column of lists may have, uncompressed, for its rows to count as evenly spread over
its pages."""


class Page(NamedTuple):
    """The content of a page's header."""

    is_dictionary: bool
    uncompressed: int
    compressed: int
    values: int
    rows: int | None
    """None if the header does not say."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a row group: its pages, the width of a value of fixed length, and whether it holds lists."""

    path: str
    pages: tuple[Page, ...]
    width: int
    lists: bool
    rows: int
    spreads: bool = False
    """Whether Arrow always writes the column's dictionary out, as it does for JSON."""

    @property
    def dictionary(self) -> int:
        """The bytes of the dictionary page of the column; 0 if it has none."""
        return max((page.uncompressed for page in self.pages if page.is_dictionary), default=0)

    def needs(self, rows: int) -> int:
        """The most bytes that any run of this many rows needs, before dictionaries are written out."""
        data = [page for page in self.pages if not page.is_dictionary]
        if not self.lists:
            sizes, counts = [page.uncompressed for page in data], [page.values for page in data]
        else:
            sizes = [page.uncompressed + LEVEL_BYTES * page.values for page in data]
            counts = self._list_rows(data, sum(sizes))
        ends, before = list(accumulate(counts)), [0, *accumulate(sizes)]
        most = 0
        for n, end in enumerate(ends):
            # The run may begin with the last row of this page.
            last = min(bisect_left(ends, end - 1 + rows), len(ends) - 1)
            most = max(most, before[last + 1] - before[n])
        return most + self.dictionary + rows * (self.width + (self.dictionary if self.spreads else 0))

    def _list_rows(self, data: list[Page], size: int) -> list[int]:
        """The rows of each page.  If the headers do not say, assume that rows are spread evenly over values.  If the
        column is suspiciously large, assume that all rows end in the last page, so that one row may need all pages."""
        if all(page.rows is not None for page in data):
            return [page.rows or 0 for page in data]
        stored, values = sum(page.compressed for page in data), max(1, sum(page.values for page in data))
        if size > MOST_TIMES * stored + (1 << 20):
            return [0] * (len(data) - 1) + [self.rows]
        return [self.rows * page.values // values for page in data]


def columns_of(file: IO[bytes], schema: Any, group: Any, name: str) -> list[Column]:
    """The columns of a row group, with the headers of all their pages."""
    out = []
    for n in range(group.num_columns):
        chunk, kind = group.column(n), schema.column(n)
        start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at is not None and at > 0)
        try:
            pages = tuple(_pages(file, start, start + chunk.total_compressed_size))
        except (LookupError, TypeError, ValueError, OSError):
            raise BadInput(f"{name}: the pages of the column {chunk.path_in_schema!r} cannot be read") from None
        width = max(16, kind.length or 0)
        lists, spreads = kind.max_repetition_level > 0, kind.logical_type.type not in ("STRING", "NONE")
        out.append(Column(chunk.path_in_schema, pages, width, lists, group.num_rows, spreads))
    return out


def _pages(file: IO[bytes], at: int, end: int) -> Iterator[Page]:
    while at < end:
        header, length = _header(file, at)
        about = header.get(8) or header.get(5) or header.get(7) or {}
        page = Page(header[1] == 2, header[2], header[3], about.get(1, 0), about.get(3) if 8 in header else None)
        if min(page.uncompressed, page.compressed, page.values) < 0:
            raise ValueError("a negative size")
        yield page
        at += length + page.compressed


def _header(file: IO[bytes], at: int) -> tuple[dict[int, Any], int]:
    for size in HEADER_BYTES:
        file.seek(at)
        reader = _Compact(file.read(size))
        try:
            return reader.struct(), reader.at
        except IndexError:
            continue
    raise IndexError("a page's header is too long")


class _Compact:
    """A reader of Thrift's compact protocol, which decodes numbers and structs and skips everything else."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a struct: its fields by their numbers."""
        if depth > 8:
            raise ValueError("too deep")
        out: dict[int, Any] = {}
        number = 0
        while byte := self._byte():
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            out[number] = self._value(byte & 15, depth)
        return out

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self._list(depth)
        length = self._varint() if kind == 8 else {3: 1, 7: 8}[kind]
        self.at += length
        if self.at > len(self._data):
            raise IndexError
        return None

    def _list(self, depth: int) -> None:
        byte = self._byte()
        for _ in range(byte >> 4 if byte >> 4 < 15 else self._varint()):
            self._value(byte & 15, depth + 1)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
