"""Avro: decodes values by a schema of a registry or of a file, in memory that is bounded by the size of the bytes.

fastavro sets no bounds.  If an array's values take no bytes, a few bytes can stand for any number of them, so this
module refuses such a schema.  fastavro's compiled reader crashes the process when values of a recursive schema are
nested too deep.  Its reader in Python raises `RecursionError` instead, so this module uses that for recursive schemas.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tailrace.adaptors.formats.schema_registry import Reference, SchemaRegistry

Read = Callable[[bytes], Any]
"""Decodes a value.  Any exception means that the bytes are not a value of the schema."""


def of_registry(registry: SchemaRegistry, id: int) -> Read:
    """A decoder for the values of a registry's schema."""
    found, named = registry.by_id(id), dict[str, Any]()
    _load(registry, found.references, named)
    return reader(msgspec.json.decode(found.schema), named)


def _load(registry: SchemaRegistry, references: list[Reference], named: dict[str, Any]) -> None:
    """Load the schemas of these references, and all that those refer to, into `named`."""
    import fastavro

    for one in references:
        if one.name not in named:
            found = registry.referenced(one)
            _load(registry, found.references, named)
            fastavro.parse_schema(msgspec.json.decode(found.schema), named_schemas=named)


def reader(schema: Any, named: dict[str, Any]) -> Read:
    """A decoder for the values of a schema, which may refer to schemas in `named`.  `ValueError` if a few bytes could
    stand for any number of values."""
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
    """Questions about a schema.  `inside` has the names of the records that enclose it."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def contains_itself(self, schema: Any, inside: frozenset[str]) -> bool:
        """Whether a record contains itself.  `ValueError` for an array of values that take no bytes."""
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
        """Whether values of a schema are encoded in no bytes at all."""
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
