"""CSV as a source: makes rows of lines; an error names the line.

All values are text unless `types` says otherwise.  An empty value without quotes is null.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv

from tailrace.adaptors.file.settings import FileSource, Format
from tailrace.adaptors.file.source.lines import LONGEST, line_number, row_ends, too_long
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Mode, Op

MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs put before UTF-8."""


def delimiter(path: Path, format: Format, settings: FileSource) -> str | None:
    """The character between two values: the setting, or a tab in a .tsv file.  None for formats other than CSV."""
    if format != "csv":
        return None
    return "\t" if settings.delimiter == "," and path.suffix == ".tsv" else settings.delimiter


def csv_names(path: Path, settings: FileSource) -> list[str]:
    """The names of the columns, from the settings or the first line.  `BadSetting` if a key or a type names another."""
    names = list(settings.columns)
    if not names:
        with path.open("rb") as file:
            first = file.readline(LONGEST + 1).removeprefix(MARK)
        if len(first) > LONGEST:
            raise too_long(path, 0)
        if not first.strip():
            return []
        options = pc_csv.ParseOptions(delimiter=delimiter(path, "csv", settings))
        names = list(pc_csv.read_csv(io.BytesIO(first), parse_options=options).column_names)
    for name in {*settings.keys, *settings.types}:
        if name not in names:
            raise BadSetting.unknown(f"{path}: the first line", name, names)
    return names


def csv_types(names: list[str], settings: FileSource) -> dict[str, pa.DataType]:
    """The type of each column."""
    types = dict.fromkeys(names, pa.string())
    for name, alias in settings.types.items():
        try:
            types[name] = pa.type_for_alias(alias)
        except ValueError:
            raise BadSetting(f"types: Arrow knows no {alias!r} (for {name!r}); there are int64, double, …") from None
    return types


def csv_rows(
    path: Path, at: int, data: bytes, namespace: str, settings: FileSource, mode: Mode, now: int
) -> list[pa.RecordBatch]:
    """The rows of whole lines, which begin at the file's byte `at`.  Skips the line with the names."""
    names = csv_names(path, settings)
    if at == 0 and not settings.columns:
        at = next(row_ends(data, None), len(data))
        data = data[at:]
    if not data.strip():
        return []
    types = csv_types(names, settings)
    text = _Text(path, at, data, delimiter(path, "csv", settings) or ",")
    table = text.table(types)
    batch = pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
    return [make_rows(namespace, batch, settings.keys, op=Op.INSERT, mode=mode, timestamp=now)]


class _Text:
    """Lines of a file, and the byte at which they begin."""

    def __init__(self, path: Path, at: int, data: bytes, delimiter: str) -> None:
        self._path, self._at, self._data, self._delimiter = path, at, data, delimiter
        self._wrong: list[Any] = []

    def table(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        try:
            table = self._parsed(types)
        except pa.ArrowInvalid as error:
            raise self._explained(types, error) from None
        if self._wrong:
            row = self._wrong[0]
            raise BadInput(f"{self._line(row.number - 1)}: {row.actual_columns} values for {len(types)} columns")
        return table

    def _parsed(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        read = pc_csv.ReadOptions(
            column_names=list(types), use_threads=False, block_size=len(self._data) + 1, skip_rows=0
        )
        parse = pc_csv.ParseOptions(
            delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=self._is_wrong
        )
        convert = pc_csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        )
        return pc_csv.read_csv(io.BytesIO(self._data), read, parse, convert)

    def _is_wrong(self, row: Any) -> str:
        self._wrong.append(row)
        return "skip"

    def _explained(self, types: Mapping[str, pa.DataType], error: Exception) -> BadInput:
        """The error for lines that do not parse: it names the first value that is not of its column's type."""
        try:
            texts = self._parsed(dict.fromkeys(types, pa.string()))
        except pa.ArrowInvalid:
            return BadInput(f"{self._line(0)} or after it: {error}")
        for n, row in enumerate(texts.to_pylist()):
            for name, kind in types.items():
                try:
                    pa.scalar(row[name], pa.string()).cast(kind)
                except pa.ArrowInvalid:
                    return BadInput(f"{self._line(n)}: the value of {name!r} is not of type {kind}")
        return BadInput(f"{self._line(0)} or after it: {error}")

    def _line(self, row: int) -> str:
        """The file and the line number of a row, for messages.  Empty lines are no rows."""
        starts = [0, *row_ends(self._data, self._delimiter)]
        rows = [a for a, b in zip(starts, [*starts[1:], len(self._data)], strict=True) if self._data[a:b].strip()]
        return f"{self._path}, line {line_number(self._path, self._at + rows[min(row, len(rows) - 1)])}"
