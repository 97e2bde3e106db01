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
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from tailrace.cli.show import counted, json_of
from tailrace.errors import BadInput, BadRecord

if TYPE_CHECKING:
    from tailrace.log.given import Records

READ_BYTES = 1 << 18
ROWS = 10_000
OURS = ("key", "value", "timestamp", "attributes", "headers")
PLACES = ("partition", "offset")
"""Columns that `tailrace topic read` writes too; a record gets its own when it is appended."""


Pair: TypeAlias = tuple[bytes | None, bytes | None]
Portion: TypeAlias = "tuple[Records, int]"
"""Records, and how far into the source they reach, in bytes."""

Bad: TypeAlias = Callable[[BadRecord], None]
"""Told of a row that cannot be a record: raises, or passes over it."""


class Format(StrEnum):
    """What a file holds."""

    lines = "lines"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"


_EXTENSIONS = {
    ".jsonl": Format.jsonl, ".ndjson": Format.jsonl, ".json": Format.jsonl, ".csv": Format.csv,
    ".parquet": Format.parquet, ".pq": Format.parquet, ".arrow": Format.arrow, ".arrows": Format.arrow,
}  # fmt: skip


def format_of(name: str, key: str | None) -> Format:
    """The format of a file by its extension; rows with a key field have at least to be JSON."""
    return _EXTENSIONS.get(Path(name).suffix.lower(), Format.jsonl if key else Format.lines)


def portions(stream: IO[bytes], name: str, format: Format, key: str | None, bad: Bad) -> Iterator[Portion]:
    """The records in a stream; `name` is for messages."""
    if format is Format.lines:
        if key:
            raise BadInput("plain lines have no fields to take a --key from; say --format jsonl, csv or parquet")
        return (([(None, line) for _, line in some], at) for some, at in _lines(stream))
    if format is Format.jsonl:
        return _jsonl(stream, name, key, bad)
    if format is Format.csv:
        return _csv(stream, name, key, bad)
    return _columns(stream, name, format, key)


def _lines(stream: IO[bytes]) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """Numbered lines, as many at a time as there are: what is typed comes at once."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    rest, number, at = b"", 1, 0
    while data := read(READ_BYTES):
        at += len(data)
        *whole, rest = (rest + data).split(b"\n")
        if whole:
            yield [*enumerate(whole, number)], at
            number += len(whole)
    if rest:
        yield [(number, rest)], at


def _jsonl(stream: IO[bytes], name: str, key: str | None, bad: Bad) -> Iterator[Portion]:
    for some, at in _lines(stream):
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
    import msgspec

    try:
        document = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return None if key is None else _key_of(document, key)


def _key_of(document: Any, key: str) -> bytes | None:
    """A field as a record's key: text as it is, null as none, anything else as its JSON."""
    if not isinstance(document, dict):
        raise ValueError(f"a {type(document).__name__} has no field {key!r}; it is no JSON object")
    if key not in document:
        raise ValueError(f"it has no field {key!r}; it has {', '.join(map(repr, document)) or 'none'}")
    value = document[key]
    return None if value is None else (value if isinstance(value, str) else _dumped(value)).encode()


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no name for: bytes as text or base64, the rest as Python writes it."""
    return json_of(value) if isinstance(value, bytes) else str(value)


def _csv(stream: IO[bytes], name: str, key: str | None, bad: Bad) -> Iterator[Portion]:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _csv_rows(csv.reader(text, strict=True), name, key, bad)
    finally:
        text.detach()  # else it would close the stream, which is not its own


def _csv_rows(rows: Any, name: str, key: str | None, bad: Bad) -> Iterator[Portion]:
    names: list[str] = next(rows, [])
    pairs, size = list[Pair](), 0
    if key and key not in names:
        raise BadInput(f"{name} has no column {key!r}; its first line names {', '.join(map(repr, names)) or 'none'}")
    while True:
        try:
            row = next(rows, None)
            if row is None:
                break
            if row:
                pairs.append(_csv_pair(names, row, key))
                size += sum(map(len, row)) + len(row)
        except (csv.Error, ValueError) as error:
            yield pairs, size
            pairs = []
            bad(BadRecord(f"{name}, line {rows.line_num}: {error}"))
        if len(pairs) == ROWS:
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


def _columns(stream: IO[bytes], name: str, format: Format, key: str | None) -> Iterator[Portion]:
    """Arrow record batches, whole or made into JSON objects."""
    import pyarrow as pa

    done = 0
    try:
        batches, rows, size = _opened(stream, format)
        for batch in batches:
            done += batch.num_rows
            yield _records(batch, name, key), size * done // (rows or done or 1)
    except pa.ArrowException as error:
        raise BadInput(f"{name} is no {format.value} file, or is damaged: {' '.join(str(error).split())}") from None


def _opened(stream: IO[bytes], format: Format) -> tuple[Iterator[Any], int, int]:
    """The batches in a file, how many rows they have together (0: not known), and its size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if format is Format.arrow:
        return iter(pa.ipc.open_stream(stream)), 0, 0
    source = stream if stream.seekable() else io.BytesIO(stream.read())
    size = source.seek(0, io.SEEK_END)
    file = pq.ParquetFile(source)
    return file.iter_batches(ROWS), file.metadata.num_rows, size


def _records(batch: Any, name: str, key: str | None) -> Records:
    names = batch.schema.names
    if key is None and "value" in names and set(names) <= {*OURS, *PLACES}:
        return batch.select([n for n in OURS if n in names])
    if key is not None and key not in names:
        raise BadInput(f"{name} has no column {key!r}; it has {', '.join(map(repr, names))}")
    return [(None if key is None else _key_of(row, key), _dumped(row).encode()) for row in batch.to_pylist()]
