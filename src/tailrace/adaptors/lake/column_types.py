"""Column types: the type of a lake table's column that carries a field's values, and the conversion of the values.

the same        booleans, signed integers, floats, decimals of up to 38 digits, text, bytes, dates, …
wider           uint8 → int16, uint16 → int32, uint32 → int64, uint64 → decimal(20,0), float16 → float
microseconds    timestamps, with a zone as UTC; one with more digits is refused, not cut
text            decimals of more digits, times of day, durations, intervals, JSON, uuids; nested types that contain one

A type inferred from values may be undecided: nothing but empty lists, empty documents or nulls has come.  Such values
take the type that the table's column has, and are JSON text in a column that they make.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.file.sink.shapes import as_text

MAX_DECIMAL_DIGITS = 38
_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}  # fmt: skip
_SAME = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}


def is_text(kind: pa.DataType) -> bool:
    """Whether values are plain text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are plain bytes."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of any kind."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def carrier(kind: pa.DataType) -> pa.DataType:
    """The column type that carries values of this type; text if there is no other."""
    if pa.types.is_dictionary(kind):
        return carrier(kind.value_type)
    found = _inner(kind)
    return pa.string() if found is None else found


def _plain_carrier(kind: pa.DataType) -> pa.DataType | None:
    if kind in _SAME:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if is_text(kind):
        return pa.string()
    if is_bytes(kind):
        return pa.binary()
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind):
        digits, scale = kind.precision - min(kind.scale, 0), max(kind.scale, 0)
        return pa.decimal128(max(digits, scale), scale) if max(digits, scale) <= MAX_DECIMAL_DIGITS else None
    return None


def _nested_carrier(kind: pa.DataType) -> pa.DataType | None:
    """The column type for a nested type; None if a type within it can only be text: the whole value is then JSON."""
    if pa.types.is_null(kind):
        return kind
    if is_list(kind):
        inner = _inner(kind.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pa.types.is_struct(kind):
        fields = [(kind.field(n).name, _inner(kind.field(n).type)) for n in range(kind.num_fields)]
        return None if any(one is None for _, one in fields) else pa.struct(fields)
    if pa.types.is_map(kind):
        key, item = _inner(kind.key_type), _inner(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None


def _inner(kind: pa.DataType) -> pa.DataType | None:
    plain = _plain_carrier(kind)
    return _nested_carrier(kind) if plain is None else plain  # a struct without fields is false to Python


def is_undecided(kind: pa.DataType) -> bool:
    """Whether a nested type says of some values only that they are null, or documents without fields."""
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return bool(pa.types.is_null(kind) or (pa.types.is_struct(kind) and not inner)) or any(map(is_undecided, inner))


def decided(kind: pa.DataType, column: pa.DataType) -> pa.DataType:
    """A type that is undecided in parts, with these parts as a column has them."""
    if pa.types.is_null(kind):
        return column
    if is_list(kind) and is_list(column):
        return pa.list_(pa.field("element", decided(kind.value_type, column.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(column):
        return pa.map_(kind.key_type, decided(kind.item_type, column.item_type))
    if pa.types.is_struct(kind) and pa.types.is_struct(column):
        return _decided_struct(kind, column) or column
    return kind


def _decided_struct(kind: pa.DataType, column: pa.DataType) -> pa.DataType | None:
    """None if nothing but nulls is left.  A field that has no value, and that the column lacks, need not be there."""
    there = {column.field(n).name: column.field(n).type for n in range(column.num_fields)}
    fields = {kind.field(n).name: kind.field(n).type for n in range(kind.num_fields)}
    made = {name: decided(one, there[name]) if name in there else one for name, one in fields.items()}
    made = {name: one for name, one in made.items() if not pa.types.is_null(one)}
    return pa.struct(list(made.items())) if made else None


def carried(column: pa.Array[Any]) -> pa.Array[Any]:
    """Convert values to the type that carries them.  Raises Arrow's error if a value would lose something."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = carrier(column.type)
    return column if column.type == kind else cast(column, kind)


def cast(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Convert values to a type without loss.  Raises Arrow's error if that is impossible."""
    if column.type == kind:
        return column
    if is_text(kind) and not is_text(column.type):
        return text_of(column)
    if pa.types.is_floating(column.type) and pa.types.is_decimal(kind):
        raise pa.ArrowInvalid("a float is not a decimal")  # Arrow would round
    return column.cast(kind)


def text_of(column: pa.Array[Any]) -> pa.Array[Any]:
    """Values as text: nested ones as JSON, bytes as base64, times and durations as ISO 8601."""
    if pa.types.is_time(column.type):
        return column.cast(pa.string())
    if pa.types.is_duration(column.type):
        nanoseconds = column.cast(pa.duration("ns")).cast(pa.int64()).to_pylist()
        return pa.array([None if n is None else _duration(n) for n in nanoseconds], pa.string())
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.string())
    return as_text(column)


def _duration(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), 10**9)
    return f"{'-' * (nanoseconds < 0)}PT{whole}{f'.{rest:09d}'.rstrip('0') if rest else ''}S"


def has_all(column: pa.Array[Any], kind: pa.DataType) -> bool:
    """Whether every value can be converted to a type without loss."""
    try:
        cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True


def not_null(column: pa.Array[Any]) -> bool:
    """Whether no value of a column is null."""
    return bool(pc.all(pc.is_valid(column)).as_py())
