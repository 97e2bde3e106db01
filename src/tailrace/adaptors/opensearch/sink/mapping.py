"""Mappings: how fields are searched, by their types in the messages.

bool                              boolean
integers, by their size           byte, short, integer, long, unsigned_long
floats                            half_float, float, double
decimals, PostgreSQL's numeric    double; the document keeps all digits, as text
timestamp, date                   date
time, interval, UUID              keyword
text                              text, with a keyword beside it; a field of the key: keyword
bytes                             binary
list                              the mapping of its items: every field may have several values
struct                            an object with the mappings of its fields
JSON, map                         none: the cluster decides
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

KEYWORD = {"type": "keyword"}
TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
types = pa.types
_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (types.is_boolean, "boolean"),
    (types.is_int8, "byte"),
    (lambda kind: bool(types.is_int16(kind) or types.is_uint8(kind)), "short"),
    (lambda kind: bool(types.is_int32(kind) or types.is_uint16(kind)), "integer"),
    (lambda kind: bool(types.is_int64(kind) or types.is_uint32(kind)), "long"),
    (types.is_uint64, "unsigned_long"),
    (types.is_float16, "half_float"),
    (types.is_float32, "float"),
    (lambda kind: bool(types.is_float64(kind) or types.is_decimal(kind)), "double"),
    (lambda kind: bool(types.is_timestamp(kind) or types.is_date(kind)), "date"),
    (lambda kind: bool(types.is_time(kind) or types.is_duration(kind) or types.is_interval(kind)), "keyword"),
    (lambda kind: isinstance(kind, pa.UuidType), "keyword"),
    (
        lambda kind: bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)),
        "binary",
    ),
)


def mapping_of(fields: Sequence[pa.Field[Any]], keys: Sequence[str]) -> dict[str, Any]:
    """The properties for these fields, without fields whose mapping the cluster decides."""
    if any((field.metadata or {}).get(b"opensearch") == b"document" for field in fields):
        return {}
    found = {field.name: _of(field, field.name in keys) for field in fields if field.name != "_id"}
    return {name: one for name, one in found.items() if one}


def _of(field: pa.Field[Any], is_key: bool = False) -> dict[str, Any]:
    kind = field.type
    if types.is_dictionary(kind):
        return _of(field.with_type(kind.value_type), is_key)
    if _is_numeric(field):
        return {"type": "double"}
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return dict(KEYWORD) if is_key else dict(TEXT)
    for matches, name in _SIMPLE:
        if matches(kind):
            return {"type": name}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _of(kind.value_field)
    if types.is_struct(kind):
        inner = {one.name: made for one in kind if (made := _of(one))}
        return {"properties": inner} if inner else {}
    return {}


def _is_numeric(field: pa.Field[Any]) -> bool:
    """Whether the field has numbers that its source sends as text, because no Arrow type holds them all."""
    metadata = field.metadata or {}
    named = metadata.get(b"pg", b"")
    return (named.startswith(b"numeric") and not named.endswith(b"[]")) or metadata.get(b"dynamodb") == b"N"


def missing(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of `wanted` that the index lacks.  A field that the index maps otherwise is not among them."""
    out = {}
    for name, one in wanted.items():
        found = _found(there, name)
        if found is None:
            out[name] = one
        elif (
            "properties" in one and "properties" in found and (inner := missing(one["properties"], found["properties"]))
        ):
            out[name] = {"properties": inner}
    return out


def _found(there: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The index's property for a field, or None.  A field with dots in its name is nested in objects there."""
    if name in there:
        found: Mapping[str, Any] = there[name]
        return found
    first, dot, rest = name.partition(".")
    inner = there.get(first)
    return _found(inner.get("properties") or {}, rest) if dot and inner is not None else None
