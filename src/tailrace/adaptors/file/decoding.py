"""Decoding: bytes of whole rows into rows, with the line told where something is wrong."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pc_csv

from tailrace.adaptors.file.lines import line_number
from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.message import Message
from tailrace.adaptors.rows import make_rows, rows_of
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Mode, Op

_json = msgspec.json.Decoder()
_object = msgspec.json.Decoder(dict[str, Any])


def json_rows(
    path: Path, at: int, data: bytes, namespace: str, settings: FileSource, mode: Mode, now: int
) -> list[pa.RecordBatch]:
    """Lines of JSON, one object each; empty lines mean nothing."""
    try:
        documents = _json.decode_lines(data)
    except msgspec.DecodeError:
        documents = [_line(path, at, *numbered) for numbered in _lines(data)]
    for n, document in enumerate(documents):
        if not isinstance(document, dict) or any(key not in document for key in settings.keys):
            _refuse(path, at, data, n, settings)
    return rows_of(Message(Op.INSERT, namespace, "", d, now, mode, tuple(settings.keys)) for d in documents)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((n, line) for n, line in enumerate(data.split(b"\n")) if line.strip())


def _line(path: Path, at: int, n: int, line: bytes) -> Any:
    try:
        return _json.decode(line)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}, line {line_number(path, at) + n}: {error}") from None


def _refuse(path: Path, at: int, data: bytes, place: int, settings: FileSource) -> None:
    n, line = list(_lines(data))[place]
    number = line_number(path, at) + n
    try:
        document = _object.decode(line)
    except msgspec.DecodeError:
        raise BadInput(f"{path}, line {number}: not a JSON object, {{…}}") from None
    missing = next(key for key in settings.keys if key not in document)
    raise BadInput(f"{path}, line {number}: no field {missing!r}, which is part of the id")


def is_object(data: bytes) -> bool:
    """Whether a line without its end is a whole JSON object all the same."""
    try:
        _object.decode(data)
    except msgspec.DecodeError:
        return False
    return True


# -- CSV
def csv_names(path: Path, settings: FileSource) -> list[str]:
    """The names of the columns: as set, or as in the first line."""
    if settings.columns:
        return list(settings.columns)
    with path.open("rb") as file:
        first = file.readline().removeprefix(b"\xef\xbb\xbf")
    if not first.strip():
        return []
    options = pc_csv.ParseOptions(delimiter=delimiter(path, settings))
    names = pc_csv.read_csv(io.BytesIO(first), parse_options=options).column_names
    for key in settings.keys:
        if key not in names:
            raise BadSetting.unknown(f"{path}: the keys: the first line", key, names)
    return list(names)


def delimiter(path: Path, settings: FileSource) -> str:
    """What is between two values: as set, or a tab in a .tsv."""
    return "\t" if settings.delimiter == "," and path.suffix == ".tsv" else settings.delimiter


def csv_rows(
    path: Path, at: int, data: bytes, namespace: str, settings: FileSource, mode: Mode, now: int
) -> list[pa.RecordBatch]:
    """Lines of CSV; all values are text, unless `types` says otherwise; an empty one without quotes is null."""
    names = csv_names(path, settings)
    if at == 0 and not settings.columns:
        first = data.find(b"\n") + 1
        at, data = (first, data[first:]) if first else (len(data), b"")
    if not data.strip():
        return []
    wrong: list[Any] = []

    def is_wrong(row: Any) -> str:
        wrong.append(row)
        return "skip"

    parse = pc_csv.ParseOptions(
        delimiter=delimiter(path, settings),
        newlines_in_values=True,
        invalid_row_handler=is_wrong,
    )
    types = {name: csv_type(settings, name) for name in names}
    convert = pc_csv.ConvertOptions(
        column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
    )
    read = pc_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1)
    try:
        table = pc_csv.read_csv(io.BytesIO(data), read, parse, convert)
    except pa.ArrowInvalid as error:
        raise BadInput(f"{path}, after line {line_number(path, at)}: {error}") from None
    if wrong:
        _refuse_row(path, at, data, wrong[0], names)
    batch = pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
    return [make_rows(namespace, batch, settings.keys, op=Op.INSERT, mode=mode, timestamp=now)] if len(batch) else []


def csv_type(settings: FileSource, name: str) -> pa.DataType:
    """What a column holds."""
    alias = settings.types.get(name, "string")
    try:
        return pa.type_for_alias(alias)
    except ValueError:
        raise BadSetting(f"types: Arrow knows no {alias!r} (for {name!r}); there are int64, double, bool, …") from None


def _refuse_row(path: Path, at: int, data: bytes, row: Any, names: list[str]) -> None:
    """Name the line of a row with too many or too few values."""
    number = line_number(path, at) + _place(data, row.number - 1)
    raise BadInput(f"{path}, line {number}: {row.actual_columns} values for {len(names)} columns")


def _place(data: bytes, row: int) -> int:
    """On which line of some CSV a row begins."""
    rows = lines = 0
    quotes = 0
    for line in data.split(b"\n"):
        if rows == row and quotes % 2 == 0 and line.strip():
            return lines
        quotes += line.count(b'"')
        rows += quotes % 2 == 0 and bool(line.strip())
        lines += 1
    return lines
