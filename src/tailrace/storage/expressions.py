"""Expressions: actions on a table as DynamoDB's requests.

Pure: an action goes in, the request's parameters (all but the table's name) come out.  Placeholders stand for every
attribute (`#0`), since many good names are reserved words, and for every value (`:0`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from tailrace.errors import BadInput, TooLarge
from tailrace.storage.aws.wire import Wire, item_to_wire, key_to_wire, to_wire
from tailrace.storage.keys import ALL, HOME, Bounds, KeySchema
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
    Regardless,
    Remove,
    Set,
    Update,
    Value,
    steps_of,
)

MAX_EXPRESSION_BYTES = 4096
MAX_OPERATORS = 300
"""Operators and functions in one expression."""
SURELY_FIT, SURELY_FIT_SHORT = 8, 80
"""How many conditions or changes of one action always fit into its expression: with any paths, and with paths of at
most two steps."""
_IN_CONDITIONS = (" AND ", "NOT ", "(", " = ", "<")
_IN_CHANGES = ("+", "(")
"""What DynamoDB counts as an operator or a function; it does not count the `=` of a SET."""

Kind: TypeAlias = Literal["Put", "Update", "Delete", "ConditionCheck"]


def request_of(action: Action, schema: KeySchema = HOME) -> tuple[Kind, dict[str, Any]]:
    """The kind of an action and its parameters, in a transaction or (with "Item" after the kind) on its own."""
    match action:
        case Put(key, item, when):
            return "Put", {"Item": item_to_wire(key, item, schema)} | _guarded(schema, when)
        case Update(key, (), when) if Absent() in when:
            return "Put", {"Item": key_to_wire(key, schema)} | _guarded(schema, when)
        case Update(key, (), when) | Check(key, when):
            return "ConditionCheck", {"Key": key_to_wire(key, schema)} | _guarded(schema, when)
        case Update(key, changes, when):
            return "Update", {"Key": key_to_wire(key, schema)} | _guarded(schema, when, changes)
        case Delete(key, when):
            return "Delete", {"Key": key_to_wire(key, schema)} | _guarded(schema, when)


def key_condition(hash: Value, bounds: Bounds, schema: KeySchema) -> dict[str, Any]:
    """The parameters with which DynamoDB is asked for the items of one hash with range keys within bounds."""
    words = Placeholders(schema)
    wanted = [f"{words.path(schema.hash)} = {words.value(hash)}"]
    if schema.range is not None and bounds != ALL:
        wanted.append(_within(words, words.path(schema.range), bounds))
    return {
        "KeyConditionExpression": " AND ".join(wanted),
        "ExpressionAttributeNames": {placeholder: name for name, placeholder in words.names.items()},
        "ExpressionAttributeValues": words.values,
    }


def _within(words: Placeholders, name: str, bounds: Bounds) -> str:
    """The single condition on a range key that a query can have."""
    if bounds.prefix is not None:
        return f"begins_with({name}, {words.value(bounds.prefix)})"
    if bounds.low is not None and bounds.high is not None:
        return f"{name} BETWEEN {words.value(bounds.low)} AND {words.value(bounds.high)}"
    if bounds.low is not None:
        return f"{name} {'>' if bounds.low_open else '>='} {words.value(bounds.low)}"
    return f"{name} {'<' if bounds.high_open else '<='} {words.value(bounds.high)}"


def _guarded(schema: KeySchema, when: Sequence[Condition], changes: Sequence[Change] = ()) -> dict[str, Any]:
    words = Placeholders(schema)
    out: dict[str, Any] = {}
    if changes:
        out["UpdateExpression"] = _sized(words.update(changes), "changes", _IN_CHANGES)
    if Regardless() not in when:
        out["ConditionExpression"] = _sized(words.condition(when), "conditions", _IN_CONDITIONS)
    if words.names:
        out["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in words.names.items()}
    if words.values:
        out["ExpressionAttributeValues"] = words.values
    return out


def check_expressions(action: Action, schema: KeySchema = HOME) -> None:
    """Refuse an action with conditions or changes that DynamoDB would not accept; for backends that need no
    expressions."""
    changes = action.changes if isinstance(action, Update) else ()
    terms = len(changes) + len(action.when)
    if terms > SURELY_FIT and (terms > SURELY_FIT_SHORT or _deep(changes) or _deep(action.when)):
        _guarded(schema, action.when, changes)


def _deep(terms: Sequence[Condition | Change]) -> bool:
    """Whether one of these paths has more than two steps."""
    return any(type(path := getattr(term, "path", None)) is tuple and len(path) > 2 for term in terms)


def _sized(expression: str, what: str, operators: Sequence[str]) -> str:
    said = f"too many {what} in one action: DynamoDB takes"
    if len(expression) > MAX_EXPRESSION_BYTES:
        raise TooLarge(f"{said} {MAX_EXPRESSION_BYTES:,} bytes of them as an expression, not {len(expression):,}")
    if (count := sum(map(expression.count, operators))) > MAX_OPERATORS:
        raise TooLarge(f"{said} {MAX_OPERATORS} operators and functions in an expression, not {count}")
    return expression


class Placeholders:
    """The placeholders of one request, and expressions written with them."""

    def __init__(self, schema: KeySchema = HOME) -> None:
        # `p` is short and not a reserved word; the key names of a model may be long, or reserved.
        self._key = None if schema == HOME else schema.hash
        self.names: dict[str, str] = {}
        self.values: dict[str, Wire] = {}

    def path(self, path: Path) -> str:
        """The expression of a path to an attribute, in placeholders."""
        return ".".join(self.names.setdefault(step, f"#{len(self.names)}") for step in steps_of(path))

    def key(self) -> str:
        """The placeholder of the attribute that every item has."""
        return "p" if self._key is None else self.path(self._key)

    def value(self, value: Value) -> str:
        """The placeholder of a value."""
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = to_wire(value)
        return placeholder

    def condition(self, when: Sequence[Condition]) -> str:
        """All conditions as one expression, the rule about existing items included."""
        if Absent() in when:
            return f"attribute_not_exists({self.key()})"
        return " AND ".join([f"attribute_exists({self.key()})", *map(self._condition, when)])

    def _condition(self, condition: Condition) -> str:
        match condition:
            case Absent(path):
                return f"attribute_not_exists({self.path(path) if path else self.key()})"
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
            case Regardless():
                raise BadInput("Regardless() stands alone, without other conditions")

    def update(self, changes: Sequence[Change]) -> str:
        """The update expression of some changes, clause by clause."""
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
