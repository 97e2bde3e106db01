"""Fields: functions that leave fields out, pick fields, and rename fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tailrace.adaptors.rows.rows import keys_of
from tailrace.errors import BadInput, BadSetting
from tailrace.pipeline.functions.columns import check_id_kept, field_names, with_fields


@dataclass(frozen=True, slots=True)
class Omit:
    """Leaves fields out; `BadInput` for a field that is part of the id."""

    takes_rows: ClassVar[bool] = True
    fields: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows without the fields."""
        names = field_names(batch)
        left = [(place, name) for place, name in enumerate(names) if name not in self.fields]
        if len(left) == len(names):
            return [batch]
        check_id_kept("omit", batch, [name for _, name in left])
        return [with_fields(batch, left, keys_of(batch))]


@dataclass(frozen=True, slots=True)
class Pick:
    """Keeps only some fields, and always those of the id."""

    takes_rows: ClassVar[bool] = True
    fields: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows with only these fields."""
        wanted = {*self.fields, *keys_of(batch)}
        chosen = [(place, name) for place, name in enumerate(field_names(batch)) if name in wanted]
        return [with_fields(batch, chosen, keys_of(batch))]


@dataclass(frozen=True, slots=True)
class Rename:
    """Renames fields; renamed fields of the id stay the id."""

    takes_rows: ClassVar[bool] = True
    names: tuple[tuple[str, str], ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows with the new names."""
        new, old = dict(self.names), field_names(batch)
        renamed = [new.get(name, name) for name in old]
        twice = {name for name in renamed if renamed.count(name) > 1}
        if twice:
            raise BadInput(f"rename would give two fields the name {min(twice)!r}; omit one of them before")
        return [with_fields(batch, list(enumerate(renamed)), [new.get(key, key) for key in keys_of(batch)])]


def omit(*fields: str) -> Omit:
    """A function that leaves fields out."""
    return Omit(_checked("omit", fields))


def pick(*fields: str) -> Pick:
    """A function that keeps only these fields, and those of the id."""
    return Pick(_checked("pick", fields))


def rename(names: Mapping[str, str] | None = None, /, **more: str) -> Rename:
    """A function that renames fields: `rename({"old name": "new"})` or `rename(old="new")`."""
    both = {**(names or {}), **more}
    _checked("rename", (*both, *both.values()))
    return Rename(tuple(both.items()))


def _checked(what: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(isinstance(name, str) for name in names):
        raise BadSetting(f"{what} takes the names of fields, as text, at least one")
    return names
