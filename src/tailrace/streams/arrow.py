"""Arrow batches of changes: one for many changes, its columns typed by the model, without a `Record` for each.

| in the model | in the batch |
|---|---|
| str, UUID, an Enum of texts | string |
| int, float, bool, bytes | int64, double, bool, binary |
| datetime, date | timestamp[us, UTC], date32 |
| Decimal | string, with all its digits |
| list[T], set[T] of the above | list<T> |
| everything else, and items of a table without a model | string: JSON, as `document` writes it |
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from tailrace.errors import BadItem
from tailrace.storage.changes import Change
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Item
from tailrace.streams.document import encode, plain
from tailrace.streams.model import Model
from tailrace.streams.record import KINDS
from tailrace.streams.values import MISSING, Field

UNFIT = (pa.ArrowException, KeyError, TypeError, ValueError, ArithmeticError)
"""The errors that `Columns` raises if an item does not fit the columns."""
STAMP = pa.timestamp("us", "UTC")


class Form(NamedTuple):
    """How stored values of one kind become an Arrow column."""

    type: Any
    prepare: Callable[[Any], Any] | None = None
    """Converts each value that is not None, where Arrow does not take it as it is stored."""
    parsed: Any = None
    """The type that the finished column is cast to."""


TEXT = Form(pa.string())
JSON = Form(pa.string(), lambda value: encode(plain(value)).decode())
_FORMS: dict[Any, Form] = {
    str: TEXT,
    UUID: TEXT,
    int: Form(pa.int64()),
    float: Form(pa.float64(), float),
    bool: Form(pa.bool_()),
    bytes: Form(pa.binary()),
    Decimal: Form(pa.string(), str),
    datetime: Form(pa.string(), None, STAMP),
    date: Form(pa.string(), None, pa.date32()),
}


def form_of(annotation: Any) -> Form:
    """Return how values of an annotated type become a column."""
    if annotation in _FORMS:
        return _FORMS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return form_of(next(argument for argument in arguments if argument is not type(None)))
    if origin is typing.Annotated:
        return form_of(arguments[0])
    if origin in (list, set, frozenset) and arguments:
        return _members(form_of(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return form_of(type(next(iter(annotation)).value))
    return JSON


def _members(inner: Form) -> Form:
    if inner.parsed is not None or inner is JSON or pa.types.is_list(inner.type):
        return JSON
    prepare = inner.prepare
    return Form(
        pa.list_(inner.type), lambda value: [*_ordered(value)] if prepare is None else [*map(prepare, _ordered(value))]
    )


def _ordered(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


class Columns:
    """Makes record batches of the changes of one table; with a model, its fields are columns of `new` and `old`."""

    def __init__(self, schema: KeySchema, model: Model[Any] | None = None) -> None:
        self._schema = schema
        self._fields: list[tuple[Field, Form]] | None = None
        if model is not None:
            hints = typing.get_type_hints(model.kind, localns=dict(model.names), include_extras=True)
            self._fields = [(field, form_of(hints[field.name])) for field in model.fields]
            self._keys = [(field, form_of(hints[field.name])) for field in model.keys]

    def __call__(self, changes: Sequence[Change]) -> pa.RecordBatch:
        """Return the changes as one batch; raises one of `UNFIT` if an item does not fit."""
        keys = [self._schema.attributes(change.key) for change in changes]
        arrays = [
            pa.array([KINDS[change.kind] for change in changes], pa.string()),
            pa.array([change.created_at for change in changes], STAMP),
            pa.array([change.sequence for change in changes], pa.string()),
            pa.array([change.id for change in changes], pa.string()),
            self._images(keys, key=True),
            self._images([change.new for change in changes]),
            self._images([change.old for change in changes]),
        ]
        names = ["type", "created_at", "sequence_number", "id", "key", "new", "old"]
        return pa.RecordBatch.from_arrays(arrays, names)

    def check(self, change: Change, table: str) -> None:
        """Raise `BadItem` for a change that does not fit."""
        try:
            self([change])
        except UNFIT as error:
            key = self._schema.attributes(change.key)
            message = f"the item {key} of table {table!r} does not fit its Arrow columns: {error}"
            raise BadItem(message, table=table, key=key) from None

    def _images(self, images: list[Any], *, key: bool = False) -> pa.Array[Any]:
        if self._fields is None:
            return pa.array([None if i is None else encode(plain(i)).decode() for i in images], pa.string())
        fields = self._keys if key else self._fields
        arrays = [_column(images, field, form) for field, form in fields]
        absent = pa.array([image is None for image in images], pa.bool_())
        members = [pa.field(field.name, array.type) for (field, _), array in zip(fields, arrays, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=members, mask=absent)


def _column(images: list[Item | None], field: Field, form: Form) -> pa.Array[Any]:
    name, required = field.name, field.default is None
    missing = None if required else _stored_default(field)
    if required:
        values = [None if image is None else image[name] for image in images]
    else:
        values = [None if image is None else image.get(name, missing) for image in images]
    if form.prepare is not None:
        values = [None if value is None else form.prepare(value) for value in values]
    array = pa.array(values, form.type)
    if required and array.null_count != images.count(None):
        raise ValueError(f"{name} is null")
    return array if form.parsed is None else array.cast(form.parsed)


def _stored_default(field: Field) -> Any:
    assert field.default is not None
    value = field.default()
    stored = None if value is None else field.stored.dump(value)
    return None if stored is MISSING else stored
