"""Expressions: actions on a table as DynamoDB's requests.

Pure: an action goes in, the request's parameters (all but the table's name) come out.  Every attribute goes by a
placeholder, `#0`, since many good names are reserved words, and every value by another, `:0`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from tailrace.errors import TooLarge
from tailrace.storage.tables import (
    Absent,
    Action,
    Add,
    Append,
    AtMost,
    Change,
    Check,
    Condition,
    Delete,
    Equals,
    Exists,
    Include,
    Less,
    NotIn,
    Path,
    Put,
    Remove,
    Set,
    Update,
    Value,
    steps_of,
)
from tailrace.storage.wire import Wire, item_to_wire, key_to_wire, to_wire

MAX_EXPRESSION_BYTES = 4096

Kind: TypeAlias = Literal["Put", "Update", "Delete", "ConditionCheck"]


def request_of(action: Action) -> tuple[Kind, dict[str, Any]]:
    """The kind of an action and its parameters, in a transaction or (with "Item" after the kind) on its own."""
    match action:
        case Put(key, item, when):
            return "Put", {"Item": item_to_wire(key, item)} | _guarded(when)
        case Update(key, (), when) if Absent() in when:
            return "Put", {"Item": key_to_wire(key)} | _guarded(when)
        case Update(key, (), when) | Check(key, when):
            return "ConditionCheck", {"Key": key_to_wire(key)} | _guarded(when)
        case Update(key, changes, when):
            return "Update", {"Key": key_to_wire(key)} | _guarded(when, changes)
        case Delete(key, when):
            return "Delete", {"Key": key_to_wire(key)} | _guarded(when)


def _guarded(when: Sequence[Condition], changes: Sequence[Change] = ()) -> dict[str, Any]:
    words = Words()
    out: dict[str, Any] = {}
    if changes:
        out["UpdateExpression"] = _sized(words.update(changes))
    out["ConditionExpression"] = _sized(words.condition(when))
    if words.names:
        out["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in words.names.items()}
    if words.values:
        out["ExpressionAttributeValues"] = words.values
    return out


def _sized(expression: str) -> str:
    if len(expression) > MAX_EXPRESSION_BYTES:
        raise TooLarge(
            f"too many conditions or changes in one action: as an expression they have {len(expression):,} bytes; "
            f"the limit of DynamoDB is {MAX_EXPRESSION_BYTES:,}"
        )
    return expression


class Words:
    """The placeholders of one request, and expressions written with them."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Wire] = {}

    def path(self, path: Path) -> str:
        """A way to an attribute, in placeholders."""
        return ".".join(self.names.setdefault(step, f"#{len(self.names)}") for step in steps_of(path))

    def value(self, value: Value) -> str:
        """A value's placeholder."""
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = to_wire(value)
        return placeholder

    def condition(self, when: Sequence[Condition]) -> str:
        """What must hold, the rule about existing included."""
        if Absent() in when:
            return "attribute_not_exists(p)"
        return " AND ".join(["attribute_exists(p)", *map(self._condition, when)])

    def _condition(self, condition: Condition) -> str:
        match condition:
            case Absent(path):
                return f"attribute_not_exists({self.path(path or 'p')})"
            case Exists(path):
                return f"attribute_exists({self.path(path)})"
            case Equals(path, value):
                return f"{self.path(path)} = {self.value(value)}"
            case AtMost(path, value):
                return f"{self.path(path)} <= {self.value(value)}"
            case Less(path, value):
                return f"{self.path(path)} < {self.value(value)}"
            case NotIn(path, member):
                return f"NOT contains({self.path(path)}, {self.value(member)})"

    def update(self, changes: Sequence[Change]) -> str:
        """What is to be changed, clause by clause."""
        clauses: dict[str, list[str]] = {}
        for change in changes:
            clause, action = self._change(change)
            clauses.setdefault(clause, []).append(action)
        return " ".join(f"{clause} {', '.join(actions)}" for clause, actions in clauses.items())

    def _change(self, change: Change) -> tuple[str, str]:
        path = self.path(change.path)
        match change:
            case Set(_, value):
                return "SET", f"{path} = {self.value(value)}"
            case Append(_, values):
                return "SET", f"{path} = list_append({path}, {self.value(list(values))})"
            case Add(inner, value) if len(steps_of(inner)) > 1:  # ADD is for top-level attributes only
                return "SET", f"{path}={path}+{self.value(value)}"
            case Add(_, value) | Include(_, value):
                return "ADD", f"{path} {self.value(value)}"
            case Remove():
                return "REMOVE", path
