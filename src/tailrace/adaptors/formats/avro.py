"""Avro: values by a schema of a registry or of a file, decoded in memory that is bounded by the bytes that they have.

fastavro has no bounds of its own.  An array of values that take no bytes may have any number of them: such a schema is
refused.  Its compiled reader ends the process where a schema that contains itself is followed too deep: its reader in
Python raises `RecursionError` there, and reads what has such a schema.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tailrace.adaptors.formats.schema_registry import Reference, SchemaRegistry

Read = Callable[[bytes], Any]
"""Makes a value of bytes; whatever it raises, they are none."""


def of_registry(registry: SchemaRegistry, id: int) -> Read:
    """Reads values by a schema of a registry."""
    found, named = registry.by_id(id), dict[str, Any]()
    _load(registry, found.references, named)
    return reader(msgspec.json.decode(found.schema), named)


def _load(registry: SchemaRegistry, references: list[Reference], named: dict[str, Any]) -> None:
    """Know the schemas that one refers to, and those that these do."""
    import fastavro

    for one in references:
        if one.name not in named:
            found = registry.referenced(one)
            _load(registry, found.references, named)
            fastavro.parse_schema(msgspec.json.decode(found.schema), named_schemas=named)


def reader(schema: Any, named: dict[str, Any]) -> Read:
    """Reads values by a schema, which may refer to those that are `named`; `ValueError` if it sets no bounds."""
    import fastavro
    from fastavro import _read_py

    parsed = fastavro.parse_schema(schema, named_schemas=named)
    decode: Any = _read_py if _Shape(named).contains_itself(parsed, frozenset()) else fastavro

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        value = decode.schemaless_reader(source, parsed, None)
        if source.tell() != len(data):
            raise ValueError("there are bytes behind the value")
        return value

    return read


class _Shape:
    """What values of a schema may need.  `inside`: the names of the records that a schema is part of."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def contains_itself(self, schema: Any, inside: frozenset[str]) -> bool:
        """Whether a record has values of its own kind in it; an array without bounds is refused on the way."""
        if isinstance(schema, str):
            return schema in inside or (schema in self._named and self.contains_itself(self._named[schema], inside))
        if isinstance(schema, list):
            found = [self.contains_itself(one, inside) for one in schema]
            return any(found)
        kind = schema["type"]
        if kind == "array" and self.takes_no_bytes(schema["items"], frozenset()):
            raise ValueError(
                "the schema has an array of values that take no bytes, of which a few bytes make any number"
            )
        if kind in ("array", "map"):
            return self.contains_itself(schema["items" if kind == "array" else "values"], inside)
        if kind in ("record", "error"):
            within = inside | {schema["name"]}
            found = [self.contains_itself(field["type"], within) for field in schema["fields"]]
            return any(found)
        return isinstance(kind, (list, dict)) and self.contains_itself(kind, inside)

    def takes_no_bytes(self, schema: Any, inside: frozenset[str]) -> bool:
        """Whether a value has no bytes at all."""
        if isinstance(schema, str):
            known = schema in self._named and schema not in inside
            return schema == "null" or schema in inside or (known and self.takes_no_bytes(self._named[schema], inside))
        if isinstance(schema, list):
            return False
        kind = schema["type"]
        if kind in ("record", "error"):
            within = inside | {schema["name"]}
            return all(self.takes_no_bytes(field["type"], within) for field in schema["fields"])
        if kind == "fixed":
            return bool(schema["size"] == 0)
        return kind == "null" or (isinstance(kind, (list, dict)) and self.takes_no_bytes(kind, inside))
