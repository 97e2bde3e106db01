"""Models: dataclasses whose instances are stored as the items of a table.

    @model(stream={"new", "old"})
    class User:
        id: UUID = hash_key()
        email: str
        verified: bool = False

The table has the class's name, unless `table=` names another.  `stream` says what each change carries: the keys, the
new item, the old item, or both; without `stream` the table has no change stream.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar, dataclass_transform

from tailrace.errors import BadItem, BadModel
from tailrace.storage.changes import View
from tailrace.storage.tables import Item, Value
from tailrace.streams.values import MISSING, Field, dump_fields, fields_of, load_fields

T = TypeVar("T")

_ROLE = "tailrace.key"
_MODEL = "__tailrace_model__"
_KEY_KINDS = ("S", "N", "B")

VIEWS: dict[frozenset[str], View] = {
    frozenset({"keys"}): "keys",
    frozenset({"new"}): "new",
    frozenset({"old"}): "old",
    frozenset({"new", "old"}): "both",
}


def hash_key() -> Any:
    """Mark the field whose value groups items: those with the same hash key are stored together."""
    return dataclasses.field(metadata={_ROLE: "hash"})


def range_key() -> Any:
    """Mark the field that orders the items of one hash key."""
    return dataclasses.field(metadata={_ROLE: "range"})


@dataclass_transform(field_specifiers=(hash_key, range_key, dataclasses.field))
def model(*, table: str | None = None, stream: Collection[str] | None = None) -> Callable[[type[T]], type[T]]:
    """Make a class a model; a class that is not a dataclass yet becomes one."""

    def decorate(cls: type[T]) -> type[T]:
        made = cls if dataclasses.is_dataclass(cls) else dataclasses.dataclass(cls)
        around = sys._getframe(1)
        names = {**around.f_globals, **around.f_locals}
        setattr(made, _MODEL, Model(made, table or cls.__name__, _view(cls, stream), names))
        return made

    return decorate


def model_of(kind: type[T]) -> Model[T]:
    """Return the `Model` of a class; `BadModel` if the class is not a model."""
    found = kind.__dict__.get(_MODEL) if isinstance(kind, type) else None
    if not isinstance(found, Model):
        raise BadModel(f"{kind!r} is not a model; decorate the class with @model()")
    return found


class Model(Generic[T]):
    """A model's class, its table and its keys."""

    def __init__(self, kind: type[T], table: str, view: View | None, names: Mapping[str, Any] | None = None) -> None:
        self.kind, self.table, self.view = kind, table, view
        self.names = names or {}
        """Names that the class's annotations may use, in addition to those of its module."""
        self.fields = fields_of(kind, names)
        self.hash = _only_one(kind, "hash", self.fields)
        self.range = _only_one(kind, "range", self.fields)
        if self.hash is None:
            raise BadModel(f"{kind.__name__} has no hash key; mark one of its fields: `id: UUID = hash_key()`")
        self.keys: tuple[Field, ...] = tuple(field for field in (self.hash, self.range) if field is not None)
        """The fields that form the key."""

    def dump(self, instance: T) -> dict[str, Value]:
        """Return the item that stores an instance, key included; attributes that the item leaves out are `MISSING`."""
        if type(instance) is not self.kind:
            raise BadModel(f"{instance!r:.80} is not a {self.kind.__name__}")
        try:
            item = dump_fields(self.fields, instance)
        except ValueError as error:
            raise BadModel(f"{self.kind.__name__}{error}") from None
        keys = {field.name for field in self.keys}
        return {name: MISSING if value is None and name not in keys else value for name, value in item.items()}

    def dump_key(self, values: Mapping[str, Any]) -> dict[str, Value]:
        """Return the key's attributes as the table stores them."""
        wanted = [field.name for field in self.keys]
        if sorted(values) != sorted(wanted):
            raise BadModel(f"the key of {self.kind.__name__} is {' and '.join(wanted)}, not {' and '.join(values)}")
        try:
            return {f.name: f.stored.dump(values[f.name]) for f in self.keys}
        except (ValueError, TypeError) as error:
            raise BadModel(f"the key of {self.kind.__name__} {error}") from None

    def load(self, item: Item) -> T:
        """Return the instance that an item stores; `BadItem` if the item does not fit the model."""
        try:
            instance: T = load_fields(self.kind, self.fields, item)
        except (ValueError, TypeError) as error:
            key = {field.name: item.get(field.name) for field in self.keys}
            raise BadItem(
                f"the item {key} of table {self.table!r} does not fit {self.kind.__name__}: "
                f"{self.kind.__name__}{error}",
                table=self.table,
                key=key,
            ) from None
        return instance

    def load_key(self, item: Mapping[str, Value]) -> dict[str, Any]:
        """Return the key of an item, in the model's types."""
        return {name: how.load(item[name]) for name, how, _ in self.keys}


def _only_one(kind: type, role: str, fields: tuple[Field, ...]) -> Field | None:
    marked = [f.name for f in dataclasses.fields(kind) if f.metadata.get(_ROLE) == role]
    if len(marked) > 1:
        raise BadModel(f"{kind.__name__} has {len(marked)} {role} keys: {', '.join(marked)}; an item has one")
    if not marked:
        return None
    found = next(field for field in fields if field.name == marked[0])
    if found.stored.kind not in _KEY_KINDS or found.default is not None:
        raise BadModel(
            f"{kind.__name__}.{found.name} cannot be a key: a key is a text, a number or bytes, and never None"
        )
    return found


def _view(cls: type, stream: Collection[str] | None) -> View | None:
    if stream is None:
        return None
    wanted = frozenset([stream] if isinstance(stream, str) else stream)
    if wanted not in VIEWS:
        raise BadModel(
            f"{cls.__name__}: a stream carries {{'keys'}}, {{'new'}}, {{'old'}} or {{'new', 'old'}}, not {set(wanted)}"
        )
    return VIEWS[wanted]
