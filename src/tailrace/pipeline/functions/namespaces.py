"""Namespaces: the function that moves messages to other namespaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.rows.rows import namespace_of
from tailrace.errors import BadSetting
from tailrace.pipeline.functions.columns import with_namespace


@dataclass(frozen=True, slots=True)
class Remap:
    """Moves messages to other namespaces; a namespace that matches none of the patterns stays."""

    takes_rows: ClassVar[bool] = True
    patterns: tuple[tuple[str, str], ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows in the new namespace."""
        old = namespace_of(batch)
        new = self.destination(old)
        return [batch if new == old else with_namespace(batch, new)]

    def destination(self, namespace: str) -> str:
        """The namespace to which messages of this one go."""
        for pattern, to in self.patterns:
            if match := re.fullmatch(pattern, namespace):
                return match.expand(to)
        return namespace


def remap(namespaces: Mapping[str, str]) -> Remap:
    """A function that moves messages: `remap({"public.orders": "orders"})`, `remap({r"public\\.(.*)": r"\\1"})`.

    The keys are regular expressions that must match a whole namespace; the first that matches counts."""
    if not isinstance(namespaces, Mapping):
        raise BadSetting(f"remap takes patterns with their replacements, as a table, not {type(namespaces).__name__}")
    for pattern, to in namespaces.items():
        try:
            re.compile(pattern).sub(to, "")
        except (re.error, TypeError) as error:
            raise BadSetting(f"remap: {pattern!r} to {to!r} is not a pattern and its replacement: {error}") from None
    return Remap(tuple(namespaces.items()))


def destination(functions: tuple[Any, ...], namespace: str) -> str:
    """The namespace to which a branch's functions move this one: a command, such as a truncate, goes there."""
    for function in functions:
        if isinstance(function, Remap):
            namespace = function.destination(namespace)
    return namespace
