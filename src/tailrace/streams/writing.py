"""Writes of the engine: saves, updates and deletes of instances, as actions on their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.errors import BadInput, BadModel
from tailrace.storage.tables import (
    Absent,
    Action,
    Change,
    Check,
    Condition,
    Delete,
    Equals,
    Key,
    Regardless,
    Remove,
    Set,
    Update,
)
from tailrace.streams.model import Model, model_of
from tailrace.streams.values import MISSING

_NOTHING = (Remove("-"),)
"""The change of an update that only creates its item: DynamoDB refuses an update without changes."""


def key_of(model: Model[Any], key: Mapping[str, Any]) -> Key:
    """Return the table's key for a key that a save, update or delete gives in the model's types."""
    values = list(model.dump_key(key).values())
    return Key(values[0], values[1] if len(values) > 1 else 0)


def save_of(instance: Any, when: Sequence[Condition]) -> Update:
    """Return the write that stores an instance: it sets every field, removes those that are left out, and keeps
    attributes that are not fields."""
    model = model_of(type(instance))
    item = model.dump(instance)
    keys = {field.name for field in model.keys}
    changes = tuple(
        Remove(name) if value is MISSING else Set(name, value) for name, value in item.items() if name not in keys
    )
    return Update(_instance_key(model, item), changes or _NOTHING, conditions(model, when))


def update_of(
    model: Model[Any], key: Mapping[str, Any], changes: Sequence[Change], when: Sequence[Condition]
) -> Update:
    """Return the write that changes some attributes of an instance's item."""
    if any(field.name == "when" for field in model.keys):
        raise BadModel(
            f"the key of {model.kind.__name__} has a field 'when', and so are an update's conditions named; load the "
            "instance, change it, and save it with conditions"
        )
    if not changes:
        raise BadInput("an update changes something: Set, Add, Append, Include or Remove")
    return Update(
        key_of(model, key), tuple(_typed_change(model, change) for change in changes), conditions(model, when)
    )


def delete_of(instance: Any, when: Sequence[Condition]) -> Delete:
    """Return the write that removes an instance's item."""
    model = model_of(type(instance))
    return Delete(_instance_key(model, model.dump(instance)), conditions(model, when))


def conditions(model: Model[Any], when: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return the conditions of a write whose values in the model's types are replaced by those that the table
    stores."""
    return tuple(_typed_condition(model, condition) for condition in when)


def _typed_condition(model: Model[Any], condition: Condition) -> Condition:
    if isinstance(condition, Equals) and isinstance(condition.path, str):
        value = _dumped(model, condition.path, condition.value)
        return Absent(condition.path) if _left_out(value) else Equals(condition.path, value)
    path = getattr(condition, "path", None)
    if path is not None:
        _check_path(model, path)
    return condition


def _typed_change(model: Model[Any], change: Change) -> Change:
    _check_path(model, change.path)
    if isinstance(change, Set) and isinstance(change.path, str):
        value = _dumped(model, change.path, change.value)
        return Remove(change.path) if _left_out(value) else Set(change.path, value)
    return change


def _left_out(value: Any) -> bool:
    """Whether an item stores this value of a field as no attribute."""
    return value is MISSING or value is None


def _dumped(model: Model[Any], name: str, value: Any) -> Any:
    field = _check_path(model, name)
    try:
        return field.stored.dump(value)
    except (ValueError, TypeError) as error:
        raise BadModel(f"{model.kind.__name__}.{name} {error}") from None


def _check_path(model: Model[Any], path: Any) -> Any:
    name = path if isinstance(path, str) else path[0]
    for field in model.fields:
        if field.name == name:
            return field
    raise BadModel(f"{model.kind.__name__} has no field {name!r}; it has {', '.join(f.name for f in model.fields)}")


def _instance_key(model: Model[Any], item: Mapping[str, Any]) -> Key:
    values = [item[field.name] for field in model.keys]
    return Key(values[0], values[1] if len(values) > 1 else 0)


class Transaction:
    """Writes that commit together or not at all, when the `with` block ends without an error."""

    def __init__(self, part: Callable[[Model[Any], Action], Any], write: Callable[[Sequence[Any]], None]) -> None:
        self._part, self._write = part, write
        self._parts: list[Any] = []

    def save(self, *instances: Any, when: Sequence[Condition] = (Regardless(),)) -> None:
        """Store instances when the transaction commits."""
        self._parts += [self._part(model_of(type(one)), save_of(one, when)) for one in instances]

    def update(self, kind: type[Any], /, *changes: Change, when: Sequence[Condition] = (), **key: Any) -> None:
        """Change some attributes of an item when the transaction commits."""
        model = model_of(kind)
        self._parts.append(self._part(model, update_of(model, key, changes, when)))

    def delete(self, *instances: Any, when: Sequence[Condition] = (Regardless(),)) -> None:
        """Remove items when the transaction commits."""
        self._parts += [self._part(model_of(type(one)), delete_of(one, when)) for one in instances]

    def check(self, kind: type[Any], /, *when: Condition, **key: Any) -> None:
        """Let the transaction commit only if an item, which it does not change, meets these conditions; without any,
        only if the item is absent."""
        model = model_of(kind)
        self._parts.append(self._part(model, Check(key_of(model, key), conditions(model, when or (Absent(),)))))

    def parts(self) -> list[tuple[Any, Action]]:
        """Return its writes, each with its table."""
        return [(opened.table, action) for opened, action in self._parts]

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._parts:
            self._write(self._parts)
