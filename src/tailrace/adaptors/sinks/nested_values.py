"""Nested values: lists, maps and what is in them, as a document database holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def convert_nested(
    value: Any, convert: Callable[[Any], Any], by_type: Mapping[type, Callable[[Any], Any]], system: str
) -> Any:
    """A list or a map with `convert` applied to all in it, or another value as its type says; `ValueError` for a type
    that the system has nothing for."""
    if isinstance(value, list | tuple):  # a tuple is an entry of a map
        return [convert(inner) for inner in value]
    if isinstance(value, dict):
        return {name: convert(inner) for name, inner in value.items()}
    of_type = by_type.get(type(value))
    if of_type is None:
        raise ValueError(f"{system} has nothing for a {type(value).__name__}")
    return of_type(value)
