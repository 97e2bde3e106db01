"""JSON lines as a source: one object each, with the line told where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.file.lines import line_number
from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.message import Message
from tailrace.adaptors.rows import rows_of
from tailrace.errors import BadInput
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
