"""JSON text of documents and messages, in the one form that all adaptors write.

Decimals are strings with all their digits, moments ISO 8601, bytes base64, intervals ISO 8601 durations, and numbers
that JSON does not have "NaN", "Infinity" and "-Infinity".  An unset field is left out, a null one is null.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.rows.rows import messages_of

_encode = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode


def to_json(value: Any) -> bytes:
    """Encode a value as JSON bytes."""
    return _encode(finite(value))


def plain(value: Any) -> Any:
    """Return a value with everything that JSON has no form for replaced by its JSON form."""
    return msgspec.json.decode(to_json(value))


def interval_text(value: Any) -> str:
    """Return an interval as an ISO 8601 duration."""
    seconds = Decimal(value.nanoseconds).scaleb(-9).normalize()
    return f"P{value.months}M{value.days}DT{seconds:f}S"


def duration_text(value: dt.timedelta) -> str:
    """Return a duration as an ISO 8601 duration in seconds."""
    return f"PT{Decimal(value // dt.timedelta(microseconds=1)).scaleb(-6).normalize():f}S"


def finite(value: Any) -> Any:
    """Replace the numbers that JSON does not have, and intervals, by texts, at any depth of lists and dictionaries."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if value != value else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, pa.MonthDayNano):  # a tuple, which JSON would have as a list of numbers
        return interval_text(value)
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def json_objects(columns: pa.RecordBatch, unset: Sequence[Sequence[str] | None] | None = None) -> list[bytes]:
    """Encode each row as a JSON object.  `unset` names the fields that each row leaves out."""
    names = columns.schema.names
    rows = zip(*map(_values, columns.columns), strict=True) if names else iter([()] * columns.num_rows)
    if unset is None:
        return [_encode(dict(zip(names, row, strict=True))) for row in rows]
    out = []
    for row, missing in zip(rows, unset, strict=True):
        gone = set(missing or ())
        out.append(_encode({name: value for name, value in zip(names, row, strict=True) if name not in gone}))
    return out


def _values(column: pa.Array[Any]) -> list[Any]:
    """The values of a column as `_encode` needs them.  JSON text is inserted unchanged."""
    if isinstance(column.type, pa.JsonType):
        return [None if text is None else msgspec.Raw(text.encode()) for text in column.storage.to_pylist()]
    values: list[Any] = column.to_pylist()
    return [finite(value) for value in values] if _odd(column.type) else values


def _odd(kind: pa.DataType) -> bool:
    """Whether values of this type may contain intervals, or numbers that JSON does not have."""
    if pa.types.is_floating(kind) or pa.types.is_interval(kind):
        return True
    return any(_odd(kind.field(n).type) for n in range(kind.num_fields))


def printed(batch: pa.RecordBatch, spaces: int) -> Iterator[str]:
    """Yield each row as JSON text with its op, namespace, id and place.  `spaces` is the indentation; 0 writes one
    line."""
    for message in messages_of(batch):
        whole = {
            "op": message.op.name.lower(),
            "namespace": message.namespace,
            "id": message.id.encode(errors="surrogateescape").decode(errors="replace"),
            "timestamp": message.timestamp,
            **{name: number for name, number in message.place._asdict().items() if number is not None},
            "data": message.data,
        }
        text = to_json(whole)
        yield (msgspec.json.format(text, indent=spaces) if spaces else text).decode(errors="replace")
