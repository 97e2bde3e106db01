"""Schemas: how a table's columns grow with the rows that come, and the conversion of rows to a table's columns.

A new field becomes a column.  A column whose type no longer holds the values gets a wider type, where that loses
nothing:  int → bigint → decimal, float → double, decimals with more digits, structs with more fields.  Anything else is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.adaptors.lake.column_types import cast, decided, has_all, is_list, is_text, is_undecided
from tailrace.adaptors.rows.record_key import id_of, row_keys
from tailrace.adaptors.sinks.refusal import first_refused
from tailrace.errors import NotReady, Rejected

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


@dataclass(frozen=True, slots=True)
class Growth:
    """The changes that a table needs before it can take rows of other columns."""

    schema: pa.Schema
    """The table's columns after the changes."""
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    """Columns that get another type, and not only more fields: the table's files must be written again."""

    @property
    def changes(self) -> bool:
        """Whether the table must change at all."""
        return bool(self.added or self.widened)


def growth(place: str, now: pa.Schema, wanted: pa.Schema) -> Growth:
    """How a table with the columns `now` must grow to take the columns `wanted`; `NotReady` if it cannot."""
    fields = list(now)
    added: list[str] = []
    widened: list[str] = []
    lower = {name.lower(): name for name in now.names}
    for field in wanted:
        if field.name not in now.names:
            if (other := lower.get(field.name.lower())) is not None:
                raise NotReady(
                    f"{place}: the fields {other!r} and {field.name!r} differ in capital letters alone, and engines "
                    "do not tell such columns apart; rename one of them on its way: rename({…})"
                )
            lower[field.name.lower()] = field.name
            fields.append(pa.field(field.name, pa.string() if is_undecided(field.type) else field.type))
            added.append(field.name)
            continue
        at = now.get_field_index(field.name)
        fits = decided(field.type, now.field(at).type)
        wide = wider(now.field(at).type, pa.string() if is_undecided(fits) else fits)
        if wide is None:
            raise NotReady(
                f"{place}: the field {field.name!r} is {field.type} now, and its column is {now.field(at).type}, which "
                "has no place for that; turn it into one type on its way by a function, or give the writer another "
                "name and path, and the table is made again"
            )
        if wide != now.field(at).type:
            fields[at] = pa.field(field.name, wide, metadata=now.field(at).metadata)
            grown = _only_grown(now.field(at).type, wide)
            (added if grown else widened).append(field.name)
    return Growth(pa.schema(fields), tuple(added), tuple(widened))


def first_columns(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns with which the table of rows of these schemas is made."""
    return growth("", pa.schema([]), schemas[0]).schema


def in_order(schemas: Sequence[pa.Schema]) -> list[pa.Schema]:
    """Schemas of one batch in the order in which a table grows by them: the types that are decided come first."""
    return sorted(schemas, key=lambda schema: sum(is_undecided(field.type) for field in schema))


def wider(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both types, the old type if it does; None if there is none.

    A column keeps its type where only the values can tell whether they fit, such as text for a number out of range:
    `conformed` then converts or refuses each value."""
    if old == new or is_text(old) or (is_text(new) and not _nested(old)):
        return old
    if old in _WHOLE and new in _WHOLE:
        return max(old, new, key=_WHOLE.index)
    if pa.types.is_floating(old) and pa.types.is_floating(new):
        return pa.float64() if pa.float64() in (old, new) else old
    if pa.types.is_floating(old) and new in _WHOLE:
        return old  # whether an integer fits exactly, `conformed` finds out
    if _exact(old) and _exact(new):
        return _decimal(old, new)
    if is_list(old) and is_list(new):
        inner = wider(old.value_type, new.value_type)
        return None if inner is None else old if inner == old.value_type else pa.list_(pa.field("element", inner))
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _struct(old, new)
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        item = wider(old.item_type, new.item_type)
        return None if item is None else old if item == old.item_type else pa.map_(old.key_type, item)
    return None


def _nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _exact(kind: pa.DataType) -> bool:
    return kind in _WHOLE or bool(pa.types.is_decimal(kind))


def _decimal(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    both = [(_DIGITS[one], 0) if one in _WHOLE else (one.precision - one.scale, one.scale) for one in (old, new)]
    whole, scale = max(one[0] for one in both), max(one[1] for one in both)
    if pa.types.is_decimal(old) and (whole, scale) == both[0]:
        return old
    return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else None


def _struct(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    fields = {old.field(n).name: old.field(n).type for n in range(old.num_fields)}
    for n in range(new.num_fields):
        name, kind = new.field(n).name, new.field(n).type
        wide = wider(fields[name], kind) if name in fields else kind
        if wide is None:
            return None
        fields[name] = wide
    made = pa.struct(list(fields.items()))
    return old if made == old else made


def _only_grown(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the new type only has more fields at some depth, so that old files need not be written again."""
    if old == new:
        return True
    if is_list(old) and is_list(new):
        return _only_grown(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return _only_grown(old.item_type, new.item_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        there = {new.field(n).name: new.field(n).type for n in range(new.num_fields)}
        return all(_only_grown(old.field(n).type, there[old.field(n).name]) for n in range(old.num_fields))
    return False


def conformed(columns: pa.RecordBatch, schema: pa.Schema, namespace: str, keys: Sequence[str]) -> pa.RecordBatch:
    """Convert rows to the types of the table's columns.  Columns that the rows lack are not added.

    `Rejected` names the first row with a value that its column cannot hold."""
    arrays = [
        _conformed(columns, n, schema.field(name).type, namespace, keys) for n, name in enumerate(columns.schema.names)
    ]
    fields = [pa.field(name, schema.field(name).type) for name in columns.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def completed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of a table; those that it lacks are null."""
    arrays = [
        batch.column(f.name) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _conformed(
    columns: pa.RecordBatch, n: int, kind: pa.DataType, namespace: str, keys: Sequence[str]
) -> pa.Array[Any]:
    column = columns.column(n)
    try:
        return cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise rejected(columns, n, kind, namespace, keys, error) from None


def rejected(
    columns: pa.RecordBatch, n: int, kind: pa.DataType, namespace: str, keys: Sequence[str], error: Exception
) -> Rejected:
    """The error that names the first row whose value of column `n` does not fit into a type."""
    column, name = columns.column(n), columns.schema.names[n]

    def attempt(first: int, end: int) -> Exception | None:
        return None if has_all(column.slice(first, end - first), kind) else error

    row, _ = first_refused(len(column), error, attempt)
    key = row_keys(namespace, columns.slice(row, 1), [k for k in keys if k in columns.schema.names])[0].as_py()
    id = id_of(key, namespace).decode(errors="replace")
    return Rejected(
        f"{namespace}: {name!r} of {id} is a {column.type} that has no place in the table's column of {kind}; turn "
        "it into something that has, or into text, on its way by a function",
        namespace=namespace,
        id=id,
    )
