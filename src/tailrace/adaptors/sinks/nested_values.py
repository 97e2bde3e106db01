"""Nested values: lists, maps and the values in them, as a document database holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def convert_nested(
    value: Any, convert: Callable[[Any], Any], by_type: Mapping[type, Callable[[Any], Any]], system: str
) -> Any:
    """Apply `convert` to each value in a list or map; convert any other value by its type.

    Raises `ValueError` if `by_type` does not have the type."""
    if isinstance(value, list | tuple):  # Arrow gives each entry of a map as a tuple
        return [convert(inner) for inner in value]
    if isinstance(value, dict):
        return {name: convert(inner) for name, inner in value.items()}
    of_type = by_type.get(type(value))
    if of_type is None:
        raise ValueError(f"{system} has nothing for a {type(value).__name__}")
    return of_type(value)
