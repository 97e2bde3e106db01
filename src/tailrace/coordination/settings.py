"""Settings that people give by name: a typo is refused with the nearest right name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tailrace.errors import BadSetting

T = TypeVar("T")


def from_names(kind: type[T], owner: str, given: Mapping[str, Any]) -> T:
    """Makes a dataclass of settings from names and values.  `owner` says in errors whose settings they are: "a
    consumer"."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise BadSetting.unknown(owner, name, known)
    return kind(**given)
