"""Table homes: where the tables of models are, beside a home's own table in its database or as DynamoDB tables.

$Tables, <number made of the name>    name, hash [name, kind], range [name, kind] or null, view or null:
                                      a table of an embedded home
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, Protocol

from tailrace.coordination import guard
from tailrace.errors import AlreadyThere, BadModel, UnknownTable
from tailrace.storage.aws.dynamodb import DynamoTable
from tailrace.storage.calls import Store
from tailrace.storage.changes import Changes, View
from tailrace.storage.keys import ALL, Bounds, KeySchema
from tailrace.storage.tables import Absent, Action, Item, Key, Put, Slice

TABLES = "$Tables"


class ModelTable(Protocol):
    """The operations of a table that an engine uses."""

    schema: KeySchema

    def get(self, key: Key) -> Item | None:
        """Return the item, or None if there is none."""

    def find(
        self, hash: Any, bounds: Bounds = ALL, *, after: Any = None, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Return items of one hash within bounds, in order of their range keys."""

    def scan(self, after: Key | None = None) -> list[Item]:
        """Return some items of all hashes after a key; an empty list at the end."""

    def write(self, *actions: Action) -> Any:
        """Carry out all actions or none."""

    def write_with(self, *parts: tuple[Any, Action]) -> None:
        """Carry out all actions on several tables, or none."""


class Opened(NamedTuple):
    """A table, and what its changes carry; `view` is None for a table without a change stream."""

    table: ModelTable
    view: View | None


class TableHome(Protocol):
    """A place that holds tables of models."""

    def bind(self, name: str, schema: KeySchema, view: View | None) -> Opened:
        """Return the table of a model, created if it is missing; `BadModel` if the model differs from it."""

    def open(self, name: str) -> Opened:
        """Return an existing table; `UnknownTable` if there is none."""

    def changes(self, name: str, opened: Opened) -> Changes:
        """Return the changes of a table that has a change stream."""

    def names(self) -> list[str]:
        """The names of all tables."""


def differences(name: str, there: tuple[KeySchema, View | None], wanted: tuple[KeySchema, View | None]) -> None:
    """Raise `BadModel`, with each difference, if a model differs from its table."""
    found = []
    for what, is_, asked in (
        ("hash key", there[0][:2], wanted[0][:2]),
        ("range key", _range(there[0]), _range(wanted[0])),
        ("stream", there[1] or "none", wanted[1] or "none"),
    ):
        if is_ != asked:
            found.append(f"its {what} is {_said(is_)}, the model has {_said(asked)}")
    if found:
        raise BadModel(
            f"the table {name!r} is there, and differs from the model: {'; '.join(found)}. Change the model, or give "
            "it another table"
        )


def _range(schema: KeySchema) -> tuple[str, str] | str:
    return "none" if schema.range is None else (schema.range, schema.range_kind)


def _said(what: Any) -> str:
    return what if isinstance(what, str) else f"{what[0]!r} ({what[1]})"


def place_of(store: Store) -> TableHome:
    """Return the place for the tables of a home's models: beside the home's own table."""
    return OnDynamo(store.table) if isinstance(store.table, DynamoTable) else Embedded(store)


class Embedded:
    """Tables beside a home's own table, in its database or in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._home: Any = store.table

    def bind(self, name: str, schema: KeySchema, view: View | None) -> Opened:
        """Return the table of a model; the first process that asks for it creates it."""
        shape = {"hash": list(schema[:2]), "range": list(schema[2:]) if schema.range else None, "view": view}
        put = Put(_key(name), {"name": name, **shape}, (Absent(),))
        item = self._store.run(guard.settle(_key(name), lambda item: None if item is not None else (put,)))
        assert item is not None
        differences(name, described(item), (schema, view))
        opened = Opened(self._home.sibling(name, schema), view)
        if view is not None:
            self.changes(name, opened)
        return opened

    def open(self, name: str) -> Opened:
        """Return a table that some process has bound to a model."""
        item = self._store.run(guard.read(_key(name)))
        if item is None:
            raise UnknownTable(
                f"there is no table {name!r} in this home; there are: {', '.join(self.names()) or 'none'}"
            )
        schema, view = described(item)
        return Opened(self._home.sibling(name, schema), view)

    def changes(self, name: str, opened: Opened) -> Changes:
        """Return the table's changes, which the home captures from the first call on; `bind` makes that call."""
        table: Any = opened.table
        changes: Changes = table.capture(opened.view)
        return changes

    def names(self) -> list[str]:
        """The names of the models' tables, sorted."""
        return sorted(item["name"] for item in self._store.run(guard.read_all(TABLES)))


def _key(name: str) -> Key:
    return Key(TABLES, int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1)


def described(item: Item) -> tuple[KeySchema, View | None]:
    """Return the key schema and the view that a table's item in `$Tables` describes."""
    range: Any = None
    range_kind: Any = "N"
    if item["range"]:
        range, range_kind = item["range"]
    hash, hash_kind = item["hash"]
    return KeySchema(hash, hash_kind, range, range_kind), item["view"]


class OnDynamo:
    """DynamoDB tables in the account and region of a given table."""

    def __init__(self, beside: DynamoTable) -> None:
        self._beside = beside

    def bind(self, name: str, schema: KeySchema, view: View | None) -> Opened:
        """Return the table of a model, created if it is missing."""
        table = self._beside.sibling(name, schema)
        if (there := table.describe()) is None:
            try:
                table.create(view)
                return Opened(table, view)
            except AlreadyThere:  # another process has just created it
                there = table.describe() or (schema, view)
        differences(name, there, (schema, view))
        return Opened(table, view)

    def open(self, name: str) -> Opened:
        """Return an existing table, no matter who created it."""
        there = self._beside.sibling(name, KeySchema()).describe()
        if there is None:
            raise UnknownTable(f"there is no table {name!r} in DynamoDB, or these credentials may not see it")
        return Opened(self._beside.sibling(name, there[0]), there[1])

    def changes(self, name: str, opened: Opened) -> Changes:
        """Return the changes of the table's stream."""
        table: Any = opened.table
        changes: Changes = table.changes()
        return changes

    def names(self) -> list[str]:
        """The names of all tables of the account and region."""
        return self._beside.names()
