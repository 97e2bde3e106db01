"""JSON lines as a source: makes rows of lines with one object each; an error names the line."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json as pa_json

from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.file.source.lines import line_number
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import MAX_NESTING, make_rows, nesting, rows_of
from tailrace.errors import BadInput, OutOfMemory
from tailrace.log.record import Mode, Op

_json = msgspec.json.Decoder()
_object = msgspec.json.Decoder(dict[str, Any])
SAMPLE = 16 * 1024
"""How many bytes of lines `alike_columns` takes the types of all lines from."""


def json_rows(
    path: Path, at: int, data: bytes, namespace: str, settings: FileSource, mode: Mode, now: int
) -> list[pa.RecordBatch]:
    """The rows of whole lines, which begin at the file's byte `at`.  Skips empty lines."""
    try:
        return _rows(path, at, data, namespace, settings, mode, now)
    except MemoryError:
        raise OutOfMemory(f"{path}: there is not enough memory to decode the {len(data):,} bytes at {at}") from None


def _rows(
    path: Path, at: int, data: bytes, namespace: str, settings: FileSource, mode: Mode, now: int
) -> list[pa.RecordBatch]:
    alike = alike_columns(data, settings.keys)
    if alike is not None:
        return [make_rows(namespace, alike, settings.keys, op=Op.INSERT, mode=mode, timestamp=now)]
    try:
        documents = _json.decode_lines(data)
    except (msgspec.DecodeError, RecursionError):
        documents = [_line(path, at, *numbered) for numbered in _lines(data)]
    for n, document in enumerate(documents):
        if not isinstance(document, dict) or any(key not in document for key in settings.keys):
            _refuse(path, at, data, n, settings)
    messages = (Message(Op.INSERT, namespace, "", d, now, mode, tuple(settings.keys)) for d in documents)
    return rows_of(messages, open=True)


def alike_columns(data: bytes, keys: Sequence[str]) -> pa.RecordBatch | None:
    """Decode lines by Arrow, which is many times faster.  None unless all lines have the same fields with values of the
    same types, none of them null: Arrow cannot tell null from unset."""
    sample = data[: data.rfind(b"\n", 0, SAMPLE) + 1]
    try:
        schema = pa.Table.from_pylist(_object.decode_lines(sample)).schema
        parse = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        read = pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pa_json.read_json(io.BytesIO(data), read, parse)
    except (
        msgspec.DecodeError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError,
        RecursionError,
    ):  # fmt: skip
        return None
    is_alike = (
        schema.names
        and not any(nesting(kind) > MAX_NESTING for kind in schema.types)
        and not any(column.null_count for column in table.columns)
    )
    if not is_alike or table.num_rows != data.count(b"\n") or not set(keys) <= set(schema.names):
        return None
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((n, line) for n, line in enumerate(data.split(b"\n")) if line.strip())


def _line(path: Path, at: int, n: int, line: bytes) -> Any:
    try:
        return _json.decode(line)
    except RecursionError:
        raise BadInput(f"{path}, line {line_number(path, at) + n}: its JSON is nested too deep") from None
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
    """Whether a line is a whole JSON object."""
    try:
        _object.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
