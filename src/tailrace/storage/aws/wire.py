"""Wire: values and items as DynamoDB writes them, `{"N": "5"}`, and back."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from tailrace.errors import BadInput
from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.tables import Item, Key, Value

Wire: TypeAlias = dict[str, Any]
"""One value with its kind: S, N, B, BOOL, NULL, L, M, SS, NS or BS."""


def to_wire(value: Value) -> Wire:
    """A value as DynamoDB takes it."""
    match value:
        case str():
            return {"S": value}
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": str(value)}
        case bytes() | bytearray() | memoryview():
            return {"B": bytes(value)}
        case list() | tuple():
            return {"L": [to_wire(v) for v in value]}
        case Mapping():
            return {"M": {k: to_wire(v) for k, v in value.items()}}
        case frozenset() | set() if value:
            return _set_to_wire(sorted(value))
        case _:
            raise BadInput(f"a table cannot hold a {type(value).__name__}: {value!r:.60}")


def _set_to_wire(members: list[Any]) -> Wire:
    match members[0]:
        case str():
            return {"SS": members}
        case bytes():
            return {"BS": members}
        case _:
            return {"NS": [str(m) for m in members]}


def from_wire(wire: Mapping[str, Any]) -> Value:
    """A value from DynamoDB's form; bytes as the SDK returns them, or base64 as they come in JSON."""
    ((kind, value),) = wire.items()
    match kind:
        case "S" | "BOOL":
            return value
        case "N":
            return _number(value)
        case "B":
            return _bytes(value)
        case "L":
            return [from_wire(v) for v in value]
        case "M":
            return {k: from_wire(v) for k, v in value.items()}
        case "SS":
            return frozenset(value)
        case "BS":
            return frozenset(map(_bytes, value))
        case "NS":
            return frozenset(map(_number, value))
        case _:
            return None


def _bytes(value: bytes | str) -> bytes:
    return b64decode(value) if isinstance(value, str) else value


def _number(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        number = Decimal(text)
        # A long whole number may come back in scientific notation.
        return int(number) if number.adjusted() < 38 and number == number.to_integral_value() else number


def key_to_wire(key: Key, schema: KeySchema = HOME) -> Wire:
    """A key as DynamoDB takes it."""
    return {name: to_wire(value) for name, value in schema.attributes(key).items()}


def item_to_wire(key: Key, item: Item, schema: KeySchema = HOME) -> Wire:
    """An item with its key; key attributes in the item itself are ignored."""
    return {name: to_wire(value) for name, value in item.items()} | key_to_wire(key, schema)


def item_from_wire(wire: Mapping[str, Wire]) -> dict[str, Value]:
    """An item from DynamoDB's form."""
    item: dict[str, Value] = {}
    for name, value in wire.items():
        # Texts and numbers are most of what streams carry, and take most of the time of reading one.
        if (text := value.get("S")) is not None:
            item[name] = text
        elif (text := value.get("N")) is not None:
            item[name] = _number(text)
        else:
            item[name] = from_wire(value)
    return item
