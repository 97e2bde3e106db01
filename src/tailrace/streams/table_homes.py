"""Where the tables of models are: beside a home's own in its database, or DynamoDB tables of their own.

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
    """What an engine asks of a table."""

    schema: KeySchema

    def get(self, key: Key) -> Item | None:
        """The item, or None."""

    def find(
        self, hash: Any, bounds: Bounds = ALL, *, after: Any = None, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash within bounds, in order."""

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes behind a key."""

    def write(self, *actions: Action) -> Any:
        """Do all actions or none."""

    def write_with(self, *parts: tuple[Any, Action]) -> None:
        """Do all actions on several tables, or none."""


class Opened(NamedTuple):
    """A table and what it captures."""

    table: ModelTable
    view: View | None


class TableHome(Protocol):
    """Where tables are."""

    def bind(self, name: str, schema: KeySchema, view: View | None) -> Opened:
        """The table of a model, made if it is not there; `BadModel` if it is another than the model's."""

    def open(self, name: str) -> Opened:
        """A table that is there; `UnknownTable` if it is not."""

    def changes(self, name: str, opened: Opened) -> Changes:
        """The changes of a table that captures them."""

    def names(self) -> list[str]:
        """The tables there are."""


def differences(name: str, there: tuple[KeySchema, View | None], wanted: tuple[KeySchema, View | None]) -> None:
    """Refuse a model that differs from its table, and say in what."""
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
    """Where the tables of models are that belong to a home: beside its own table, where that is."""
    return OnDynamo(store.table) if isinstance(store.table, DynamoTable) else Embedded(store)


class Embedded:
    """Tables beside a home's own, in its database or in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._home: Any = store.table

    def bind(self, name: str, schema: KeySchema, view: View | None) -> Opened:
        """The table of a model; the first process that asks for it makes it."""
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
        """A table that some model was bound to."""
        item = self._store.run(guard.read(_key(name)))
        if item is None:
            raise UnknownTable(
                f"there is no table {name!r} in this home; there are: {', '.join(self.names()) or 'none'}"
            )
        schema, view = described(item)
        return Opened(self._home.sibling(name, schema), view)

    def changes(self, name: str, opened: Opened) -> Changes:
        """What the table captures, from when it was made."""
        table: Any = opened.table
        changes: Changes = table.capture(opened.view)
        return changes

    def names(self) -> list[str]:
        """The tables of models, in order."""
        return sorted(item["name"] for item in self._store.run(guard.read_all(TABLES)))


def _key(name: str) -> Key:
    return Key(TABLES, int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1)


def described(item: Item) -> tuple[KeySchema, View | None]:
    """The key schema and the view that a table's item tells of."""
    range: Any = None
    range_kind: Any = "N"
    if item["range"]:
        range, range_kind = item["range"]
    hash, hash_kind = item["hash"]
    return KeySchema(hash, hash_kind, range, range_kind), item["view"]


class OnDynamo:
    """Tables of their own in DynamoDB, beside a table that is known."""

    def __init__(self, beside: DynamoTable) -> None:
        self._beside = beside

    def bind(self, name: str, schema: KeySchema, view: View | None) -> Opened:
        """The table of a model, made if it is not there."""
        table = self._beside.sibling(name, schema)
        if (there := table.describe()) is None:
            try:
                table.create(view)
                return Opened(table, view)
            except AlreadyThere:  # made by another process just now
                there = table.describe() or (schema, view)
        differences(name, there, (schema, view))
        return Opened(table, view)

    def open(self, name: str) -> Opened:
        """A table that exists already, made here or elsewhere."""
        there = self._beside.sibling(name, KeySchema()).describe()
        if there is None:
            raise UnknownTable(f"there is no table {name!r} in DynamoDB, or these credentials may not see it")
        return Opened(self._beside.sibling(name, there[0]), there[1])

    def changes(self, name: str, opened: Opened) -> Changes:
        """The table's stream."""
        table: Any = opened.table
        changes: Changes = table.changes()
        return changes

    def names(self) -> list[str]:
        """All tables of the account and region."""
        return self._beside.names()
