"""Sources: files and standard input as records, portion by portion.

lines      each line is a value, without its newline
jsonl      each line is a JSON document and a value; blank lines are passed over
csv        each row becomes a JSON object, by the names in the first line
parquet, arrow   as `tailrace topic read` writes them (value, and perhaps key, timestamp, attributes, headers), or
           any other columns: each row becomes a JSON object
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

from tailrace.cli.shared.output import counted, json_of
from tailrace.errors import BadInput, BadRecord

if TYPE_CHECKING:
    from tailrace.log.write.input import Records

READ_BYTES = 1 << 18
MAX_RECORD_BYTES = 16 * 1024 * 1024
ROWS_PER_PORTION = 10_000
OURS = ("key", "value", "timestamp", "attributes", "headers")
PLACES = ("partition", "offset")
"""More columns that `tailrace topic read` writes; an append ignores them, since it gives a record its own."""


_KINDS = {b"[": "a list", b'"': "a text", b"t": "a truth value", b"f": "a truth value", b"n": "null"}

Pair: TypeAlias = tuple[bytes | None, bytes | None]
Portion: TypeAlias = "tuple[Records, int]"
"""Records, and how far into the source they reach, in bytes."""

Bad: TypeAlias = Callable[[BadRecord], None]
"""Called with the error of a row that cannot be a record: raises it, or returns to skip the row."""


class InputFormat(StrEnum):
    """The format of a file."""

    lines = "lines"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"


_EXTENSIONS = {
    ".jsonl": InputFormat.jsonl, ".ndjson": InputFormat.jsonl, ".json": InputFormat.jsonl, ".csv": InputFormat.csv,
    ".parquet": InputFormat.parquet, ".pq": InputFormat.parquet,
    ".arrow": InputFormat.arrow, ".arrows": InputFormat.arrow,
}  # fmt: skip


def format_of(name: str, key: str | None) -> InputFormat:
    """Return the format of a file of records to append, by its extension.  Any other file is plain lines, or JSON lines
    if a field is to be the key."""
    return _EXTENSIONS.get(Path(name).suffix.lower(), InputFormat.jsonl if key else InputFormat.lines)


def portions(
    stream: IO[bytes], name: str, format: InputFormat, key: str | None, bad: Bad, most: int = MAX_RECORD_BYTES
) -> Iterator[Portion]:
    """Return the records of a stream in portions.  `name` is for messages; `most` is how many bytes a record, and so a
    line, may have."""
    if format is InputFormat.lines:
        if key:
            raise BadInput("plain lines have no fields to take a --key from; say --format jsonl, csv or parquet")
        return (([(None, line) for _, line in some], at) for some, at in _lines(stream, name, most, bad))
    if format is InputFormat.jsonl:
        return _jsonl(stream, name, key, bad, most)
    if format is InputFormat.csv:
        return _csv(stream, name, key, bad, most)
    return _columns(stream, name, format, key, most)


def _lines(stream: IO[bytes], name: str, most: int, bad: Bad) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """Yields numbered lines, as many at a time as one read returns: a line that is typed comes at once.

    Calls `bad` for a line as soon as it is over the limit; skips the rest of the line without keeping it."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    begun: list[bytes] = []
    size, number, at = 0, 1, 0
    while data := read(READ_BYTES):
        at += len(data)
        found: list[tuple[int, bytes]] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            if size + len(end) <= most:
                found.append((number, b"".join((*begun, end)) if begun else end))
            elif size <= most:
                yield found, at
                found = []
                bad(_too_long(name, number, most))
            begun, size, number = [], 0, number + 1
        yield found, at
        if size <= most < size + len(rest):
            begun = []
            bad(_too_long(name, number, most))
        size += len(rest)
        if rest and size <= most:
            begun.append(rest)
    if begun:
        yield [(number, b"".join(begun))], at


def _too_long(name: str, number: int, most: int) -> BadRecord:
    return BadRecord(
        f"{name}, line {number}: it has more bytes than a record of the topic may have, {most:,}; "
        "`tailrace topic set NAME max_record_bytes=…` allows more"
    )


def _jsonl(stream: IO[bytes], name: str, key: str | None, bad: Bad, most: int) -> Iterator[Portion]:
    for some, at in _lines(stream, name, most, bad):
        pairs: list[Pair] = []
        for number, line in some:
            if value := line.strip():
                try:
                    pairs.append((_json_key(value, key), value))
                except ValueError as error:
                    yield pairs, at
                    pairs = []
                    bad(BadRecord(f"{name}, line {number}: {error}"))
        yield pairs, at


def _json_key(line: bytes, key: str | None) -> bytes | None:
    """Return the key in a line of JSON; raise `ValueError` if there is none.  Checks the rest of the line without
    decoding it: objects can need twenty times the memory of text."""
    import msgspec

    try:
        line.decode()
        msgspec.json.decode(line, type=msgspec.Raw)
        if key is None:
            return None
        if line[:1] != b"{":
            raise ValueError(f"{_KINDS.get(line[:1], 'a number')} has no field {key!r}; it is no JSON object")
        document = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        return _key_of({n: msgspec.json.decode(v) if n == key else v for n, v in document.items()}, key)
    except RecursionError:
        raise ValueError("its JSON is nested too deep") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def _key_of(document: dict[str, Any], key: str) -> bytes | None:
    """Return a field as a record's key: text as it is, none for null, anything else as its JSON."""
    if key not in document:
        raise ValueError(f"it has no field {key!r}; it has {', '.join(map(repr, document)) or 'none'}")
    value = document[key]
    return None if value is None else (value if isinstance(value, str) else _dumped(value)).encode()


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Return a value that JSON has no type for: bytes as text or base64, any other as Python writes it."""
    return json_of(value) if isinstance(value, bytes) else str(value)


class _Metered(io.BufferedIOBase):
    """A stream that counts the bytes of a row, and raises before there are too many: a quote may never be closed."""

    def __init__(self, stream: IO[bytes], name: str, most: int) -> None:
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._name, self._most = name, most
        self.row = 0
        """Bytes read since the last row was whole."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """Read more bytes; raise `BadInput` if the row has too many."""
        data = self._read(size if size > 0 else READ_BYTES)
        self.row += len(data)
        if self.row > self._most + READ_BYTES:
            raise BadInput(
                f"{self._name}: a row has more bytes than a record of the topic may have, {self._most:,}; is a quote "
                "not closed?  `tailrace topic set NAME max_record_bytes=…` allows more"
            )
        return data


def _csv(stream: IO[bytes], name: str, key: str | None, bad: Bad, most: int) -> Iterator[Portion]:
    metered = _Metered(stream, name, most)
    text = io.TextIOWrapper(cast(io.BufferedReader, metered), "utf-8-sig", errors="surrogateescape", newline="")
    yield from _csv_rows(csv.reader(text, strict=True), metered, name, key, bad)


def _csv_rows(rows: Any, metered: _Metered, name: str, key: str | None, bad: Bad) -> Iterator[Portion]:
    names: list[str] = next(rows, [])
    pairs, size = list[Pair](), 0
    if key and key not in names:
        raise BadInput(f"{name} has no column {key!r}; its first line names {', '.join(map(repr, names)) or 'none'}")
    while True:
        try:
            row = next(rows, None)
            metered.row = 0
            if row is None:
                break
            if row:
                pairs.append(_csv_pair(names, row, key))
                size += sum(map(len, row)) + len(row)
        except (csv.Error, ValueError) as error:
            yield pairs, size
            pairs = []
            bad(BadRecord(f"{name}, line {rows.line_num}: {error}"))
        if len(pairs) == ROWS_PER_PORTION:
            yield pairs, size
            pairs = []
    yield pairs, size


def _csv_pair(names: list[str], row: list[str], key: str | None) -> Pair:
    if len(row) != len(names):
        raise ValueError(f"it has {counted(len(row), 'field')}, and the first line names {len(names)}")
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        raise ValueError("it is not UTF-8") from None
    document = dict(zip(names, row, strict=True))
    return (None if key is None else document[key].encode()), _dumped(document).encode()


def _columns(stream: IO[bytes], name: str, format: InputFormat, key: str | None, most: int) -> Iterator[Portion]:
    """Yields Arrow record batches, whole or made into JSON objects."""
    from tailrace.adaptors.file.source.bounded import MEMORY_BYTES

    memory = max(MEMORY_BYTES, 2 * most)
    if format is InputFormat.arrow:
        from tailrace.adaptors.file.source.arrow_stream import arrow_batches

        for batch in arrow_batches(stream, name, memory):
            yield _records(batch, name, key), 0
        return
    if stream.seekable():
        yield from _parquet(stream, name, key, memory)
        return
    with tempfile.TemporaryFile() as file:  # reading Parquet begins at the file's end
        shutil.copyfileobj(stream, file, READ_BYTES)
        yield from _parquet(file, name, key, memory)


def _parquet(file: IO[bytes], name: str, key: str | None, memory: int) -> Iterator[Portion]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tailrace.adaptors.file.source.parquet import parquet_batches

    size, done = file.seek(0, io.SEEK_END), 0
    try:
        rows = pq.read_metadata(file).num_rows
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{name} is no parquet file, or is damaged: {' '.join(str(error).split())}") from None
    for batch in parquet_batches(file, name, ROWS_PER_PORTION, memory=memory):
        done += batch.num_rows
        yield _records(batch, name, key), size * done // (rows or done or 1)


def _records(batch: Any, name: str, key: str | None) -> Records:
    names = batch.schema.names
    if key is None and "value" in names and set(names) <= {*OURS, *PLACES}:
        return batch.select([n for n in OURS if n in names])
    if key is not None and key not in names:
        raise BadInput(f"{name} has no column {key!r}; it has {', '.join(map(repr, names))}")
    return [(None if key is None else _key_of(row, key), _dumped(row).encode()) for row in batch.to_pylist()]
