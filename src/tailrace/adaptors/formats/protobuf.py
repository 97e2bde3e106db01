"""Protobuf: decodes messages by the descriptor that a registry or a file has.

Numbers stay numbers, enums become their names, and timestamps become datetimes.  A field with presence that is not set
is null.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from typing import Any

from tailrace.adaptors.formats.schema_registry import Reference, SchemaRegistry
from tailrace.errors import BadSetting

_OWN = "google/protobuf/"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def of_registry(registry: SchemaRegistry, id: int) -> Callable[[bytes], Any]:
    """A decoder for the values of a registry's schema.  Each value says which of the schema's messages it is."""
    from google.protobuf.descriptor_pool import DescriptorPool

    found, pool = registry.by_id(id, serialized=True), DescriptorPool()
    _load(registry, found.references, pool, set())
    file = _added(pool, base64.b64decode(found.schema), f"{id}.proto")

    def read(data: bytes) -> Any:
        indexes, at = _indexes(data)
        kind = list(file.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            kind = kind.nested_types[index]
        return _value(kind, data[at:])

    return read


def of_file(content: bytes, message: str | None) -> Callable[[bytes], Any]:
    """A decoder for the values of one message of a FileDescriptorSet, as `protoc --include_imports -o` writes it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    if message is None:
        raise BadSetting("message: say which one of the schema values are: message = 'shop.Order'")
    pool = DescriptorPool()
    for one in FileDescriptorSet.FromString(content).file:
        _added(pool, one.SerializeToString(), one.name)
    try:
        kind = pool.FindMessageTypeByName(message)
    except KeyError:
        raise BadSetting(f"message: the schema has no {message!r}") from None
    return lambda data: _value(kind, data)


def _load(registry: SchemaRegistry, references: list[Reference], pool: Any, known: set[str]) -> None:
    for one in references:
        if one.name not in known and not one.name.startswith(_OWN):
            known.add(one.name)
            found = registry.referenced(one, serialized=True)
            _load(registry, found.references, pool, known)
            _added(pool, base64.b64decode(found.schema), one.name)


def _added(pool: Any, descriptor: bytes, name: str) -> Any:
    """Add a file to a pool, with those of Protobuf's own files that it imports, and return its descriptor."""
    from google.protobuf import (  # noqa: F401
        any_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(descriptor)
    file.name = file.name if file.name not in ("", "default") else name
    for one in file.dependency:
        if one.startswith(_OWN):
            pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(one).serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(file.name)


def _indexes(data: bytes) -> tuple[list[int], int]:
    """The path of indexes to the value's message among nested messages, and the offset at which the value begins."""
    count, at = _zigzag(data, 0)
    if not 0 <= count <= 64:
        raise ValueError("it does not say which message it is")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise ValueError("it does not say which message it is")
        found.append(index)
    return found or [0], at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        if shift > 63:
            raise ValueError("a number without an end")


def _value(kind: Any, data: bytes) -> dict[str, Any]:
    from google.protobuf.message_factory import GetMessageClass

    found: dict[str, Any] = _plain(GetMessageClass(kind).FromString(data))
    return found


def _plain(message: Any) -> Any:
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return _EPOCH + dt.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _one(inner, one) for key, one in value.items()}
    if field.is_repeated:
        return [_one(field, one) for one in value]
    return _one(field, value) if not field.has_presence or message.HasField(field.name) else None


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value
