"""Calls: users' functions, called with one message at a time or with Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.record_key import row_keys
from tailrace.adaptors.rows.rows import columns_of, keys_of, messages_of, namespace_of, rows_of
from tailrace.adaptors.rows.unset import bitmap, unset_at
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Op
from tailrace.pipeline.functions.columns import check_id_kept, field_names, structs, with_data

Function: TypeAlias = Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]
"""A function of a branch: makes none, one or several batches of each."""
OfMessage: TypeAlias = Callable[[Message], Message | None]
OfColumns: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | None]

ROW = "_row"
"""The column with the number of each row, for functions that leave rows out.  Underscores are put before it while the
documents have a field of this name."""


def row_column(taken: Collection[str]) -> str:
    """The name of the column with row numbers that a call of a user's function gets, beside fields of these names."""
    name = ROW
    while name in taken:
        name = f"_{name}"
    return name


@dataclass(frozen=True, slots=True)
class Each:
    """Calls a user's function with each message; the message that it returns goes on, None leaves it out."""

    takes_rows: ClassVar[bool] = True
    function: OfMessage

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The messages that the function returns.  An error's `row` is the number of the message that caused it."""
        out = []
        for n, message in enumerate(messages_of(batch)):
            try:
                result = self._called(message)
            except Exception as error:
                error.row = n  # type: ignore[attr-defined]
                raise
            if result is not None:
                out.append(result)
        return rows_of(out, batch.schema)

    def _called(self, message: Message) -> Message | None:
        place = message.place
        result = self.function(message)
        if result is None:
            return None
        if not isinstance(result, Message):
            raise BadInput(f"{name_of(self.function)} gave a {type(result).__name__}; it gives a message or None")
        for key in result.keys:
            if key not in result.data:
                raise BadInput(f"{name_of(self.function)} took away {key!r}, which is part of the id; keep it")
        if result.op in (Op.NOOP, Op.SKIP):
            return None
        return result if result.place is place else replace(result, place=place)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls a user's function with the documents' fields as Arrow columns, and a column `_row`."""

    takes_rows: ClassVar[bool] = True
    function: OfColumns

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows with the columns that the function returns."""
        given = columns_of(batch).append_column(row_column(field_names(batch)), pa.arange(0, batch.num_rows))
        result = self.function(given)
        if result is None:
            return []
        if isinstance(result, pa.Table):
            result = pa.record_batch([column.combine_chunks() for column in result.columns], schema=result.schema)
        if not isinstance(result, pa.RecordBatch):
            raise BadInput(f"{name_of(self.function)} gave a {type(result).__name__}; it gives an Arrow record batch")
        return [self._joined(batch, result)]

    def _joined(self, batch: pa.RecordBatch, result: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the function has returned as documents of the rows that they came from."""
        row = row_column(field_names(batch))
        if row in result.schema.names:
            batch, result = batch.take(result.column(row)), result.drop_columns([row])
        if result.num_rows != batch.num_rows:
            raise BadInput(
                f"{name_of(self.function)} made {result.num_rows} rows of {batch.num_rows}; where it leaves some out "
                f"it keeps the column {row}, which tells which"
            )
        keys, namespace = keys_of(batch), namespace_of(batch)
        check_id_kept(name_of(self.function), batch, result.schema.names)
        key = row_keys(namespace, result, keys) if keys else None
        data = structs(result.columns, list(result.schema), batch.num_rows)
        return with_data(batch, data, keys, key=key, unset=_still_unset(batch, result))


def _still_unset(batch: pa.RecordBatch, result: pa.RecordBatch) -> pa.Array[Any] | None:
    """Which fields were unset and have no value after the function, as bitmaps; None if no field was unset."""
    if "unset" not in batch.schema.names:
        return None
    places = {name: place for place, name in enumerate(field_names(batch))}
    flags = []
    for name, column in zip(result.schema.names, result.columns, strict=True):
        was = (
            unset_at(batch.column("unset"), places[name])
            if name in places
            else pa.repeat(pa.scalar(False), batch.num_rows)
        )
        flags.append(pc.and_(was, column.is_null()).to_pylist())
    return pa.array([bitmap(row) for row in zip(*flags, strict=True)], pa.binary())


def each(function: OfMessage) -> Each:
    """Wrap a function of messages: it returns the message, or another one, or None to leave it out."""
    return Each(checked("each", function))


def batch(function: OfColumns) -> BatchCall:
    """Wrap a function of Arrow record batches that have the documents' fields as columns."""
    return BatchCall(checked("batch", function))


def checked(what: str, function: Any) -> Any:
    """Return the function; `BadSetting` if it cannot be called."""
    if not callable(function):
        raise BadSetting(f"{what} takes a function, not a {type(function).__name__}")
    return function


def name_of(function: Any) -> str:
    """The qualified name of a function, or of a callable's class."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__
