"""The engine: binds models to tables, saves and queries their instances, and opens the streams of their changes.

engine = home.engine()
engine.bind(User)
engine.save(User(id=uuid4(), email="ann@example.com"))
for record in engine.stream(User, "trim_horizon").follow():
    print(record.old, record.new)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tailrace.coordination import units
from tailrace.coordination.consumer import UnitConsumer
from tailrace.coordination.handler_settings import HandlerSettings
from tailrace.coordination.names import check_name
from tailrace.errors import BadInput, BadModel, NotReady
from tailrace.storage.calls import Store
from tailrace.storage.changes import Change, Changes
from tailrace.storage.keys import Bounds, KeySchema
from tailrace.storage.tables import Action, Condition, Key, Regardless
from tailrace.streams.description import TableDescription, describe
from tailrace.streams.group import StreamGroup
from tailrace.streams.model import Model, model_of
from tailrace.streams.patience import NOT_DONE, Patience
from tailrace.streams.record import Record, meta_of
from tailrace.streams.sharing import ShardSource, as_writes
from tailrace.streams.stream import Start, Stream
from tailrace.streams.table_homes import Opened, TableHome, place_of
from tailrace.streams.writing import Transaction, delete_of, key_of, save_of, update_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.streams.arrow import Columns
    from tailrace.streams.token import JSON

T = TypeVar("T")


class Engine:
    """The models and tables of a home, or of DynamoDB tables of their own.  Any thread may use it."""

    def __init__(self, place: TableHome, store: Store | None = None) -> None:
        self._place, self._store = place, store
        self._bound: dict[str, Opened] = {}
        self._patience = Patience()

    # -- models
    def bind(self, *kinds: type[Any]) -> None:
        """Bind models to their tables.  Creates a table that is missing; `BadModel` says how one that exists
        differs."""
        for kind in kinds:
            model = model_of(kind)
            self._bound[model.table] = self._place.bind(model.table, schema_of(model), model.view)

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._place.names()

    def describe(self, table: str, *, shards: bool = True) -> TableDescription:
        """Describe a table: its key, what its changes carry and, unless `shards` is False, the shards of its stream."""
        opened = self._place.open(table)
        found = describe(table, opened.table.schema, opened.view)
        if not shards or opened.view is None:
            return found
        changes = self._place.changes(table, opened)
        ask = partial(self._patience.ask, what=f"the stream of table {table!r}")
        return replace(found, stream_id=changes.stream, shards=tuple(ask(changes.shards)))

    # -- items
    def save(self, *instances: Any, when: Sequence[Condition] = (Regardless(),)) -> None:
        """Store instances.  An item that already has an instance's key gets all of the instance's fields, and keeps
        other attributes.  Several instances are stored all or none.

        `when` are conditions on what is stored; `Absent()` alone makes it a first save.  `Conflict` if one does not
        hold."""
        if not instances:
            return
        self._write([self._part(model_of(type(one)), save_of(one, when)) for one in instances])

    def load(self, kind: type[T], /, **key: Any) -> T | None:
        """Return the instance with this key, as last written; None if there is none."""
        model = model_of(kind)
        item = self._table(model).table.get(key_of(model, key))
        return None if item is None else model.load(item)

    def update(self, kind: type[T], /, *changes: Any, when: Sequence[Condition] = (), **key: Any) -> None:
        """Change some attributes of an item atomically: `engine.update(User, Add("visits", 1), id=…)`."""
        model = model_of(kind)
        self._write([self._part(model, update_of(model, key, changes, when))])

    def delete(self, *instances: Any, when: Sequence[Condition] = (Regardless(),)) -> None:
        """Remove items; several all or none.  An item that is not there is no error, unless `when` makes it one."""
        if instances:
            self._write([self._part(model_of(type(one)), delete_of(one, when)) for one in instances])

    def query(
        self,
        kind: type[T],
        hash: Any,
        *,
        at_least: Any = None,
        at_most: Any = None,
        above: Any = None,
        below: Any = None,
        prefix: str | bytes | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> Iterator[T]:
        """Yield the instances of one hash key, in the order of their range keys; reads page by page."""
        model = model_of(kind)
        if (at_least is not None and above is not None) or (at_most is not None and below is not None):
            raise BadInput("a query has one lower and one upper bound: at_least or above, at_most or below")
        dump = model.range.stored.dump if model.range is not None else lambda value: value
        low, high = (None if v is None else dump(v) for v in (_given(at_least, above), _given(at_most, below)))
        bounds = Bounds(low, high, above is not None, below is not None, prefix)
        assert model.hash is not None
        return self._found(model, model.hash.stored.dump(hash), bounds, descending, limit)

    def _found(self, model: Model[T], hash: Any, bounds: Bounds, descending: bool, limit: int | None) -> Iterator[T]:
        table, after, given = self._table(model).table, None, 0
        while limit is None or given < limit:
            left = None if limit is None else limit - given
            items, after = table.find(hash, bounds, after=after, descending=descending, limit=left)
            yield from map(model.load, items)
            given += len(items)
            if after is None:
                return

    def scan(self, kind: type[T]) -> Iterator[T]:
        """Yield all instances, in no particular order; reads page by page."""
        model = model_of(kind)
        table = self._table(model).table
        after: Key | None = None
        while items := table.scan(after):
            yield from map(model.load, items)
            after = table.schema.key_of(items[-1])

    def transaction(self) -> Transaction:
        """Return a transaction of saves, updates, deletes and checks of several models: `with engine.transaction() as
        t:`."""
        return Transaction(self._part, self._write)

    # -- changes
    @overload
    def stream(self, source: str, position: Start, **settings: Any) -> Stream[Record[dict[str, Any]]]: ...
    @overload
    def stream(self, source: type[T], position: Start, **settings: Any) -> Stream[Record[T]]: ...
    def stream(self, source: type[T] | str, position: Start, **settings: Any) -> Stream[Record[Any]]:
        """Return the changes of a model's table, or, with records of dicts, of a table by its name.  `Stream` lists the
        settings."""
        name, changes, make = self._source(source)
        model = None if isinstance(source, str) else model_of(source)
        columns = partial(_columns, self._open(name).table.schema, model)
        return Stream(changes, position, table=name, make=make, columns=columns, **settings)

    def between(self, table: str, start: JSON, end: JSON) -> Iterator[pa.RecordBatch]:
        """Yield again, as Arrow batches, what a stream of a table delivered between one of its tokens and a later
        one."""
        from tailrace.streams.bounded import between

        _, changes, _ = self._source(table)
        columns = partial(_columns, self._open(table).table.schema, None)
        return between(changes, start, end, table=table, columns=columns)

    def consumer(
        self,
        source: type[T] | str,
        group: str,
        handler: Callable[[Record[T]], Any],
        *,
        start: Start = "trim_horizon",
        **settings: Any,
    ) -> UnitConsumer[Change]:
        """Return a member of a group of processes that share the shards of a table's stream; it calls the handler with
        each record.

        `start` is where a new group begins; an existing group goes on from its place.  The writes that the handler
        returns (`engine.writes()`) commit together with the group's place.  `HandlerSettings` lists the settings."""
        consuming = HandlerSettings.of(settings)
        shards = self._shared(source, check_name("group", group))
        return UnitConsumer(self._home(), shards, lambda: shards.join(start), handler, consuming)

    def group(self, source: type[Any] | str, group: str) -> StreamGroup:
        """Return a group as operators see it: to read its state and its dead letters, to move it or to delete it."""
        return StreamGroup(self._home(), self._shared(source, check_name("group", group)), self._patience)

    def groups(self, source: type[Any] | str) -> list[str]:
        """The names of the groups that share the stream of a table."""
        of = self._shared(source, "any").units.of
        return [one.group for one in self._home().run(units.groups()) if one.of == of]

    def writes(self) -> Transaction:
        """Return a transaction for a consumer's handler to fill and return; it commits together with the group's
        place."""
        return self.transaction()

    def _shared(self, source: type[Any] | str, group: str) -> ShardSource:
        name, changes, make = self._source(source)

        def ask(request: Callable[[], Any]) -> Any:
            return self._patience.ask(request, f"the stream of table {name!r}")

        return ShardSource(changes, name, group, make, ask, writes=as_writes)

    def _home(self) -> Store:
        if self._store is None:
            raise NotReady("consumers keep how far they are in a home; take the engine of one: home.engine()")
        return self._store

    def _source(self, source: type[Any] | str) -> tuple[str, Changes, Callable[[Change], Record[Any]]]:
        """Return a table's name, its changes, and the function that turns them into records."""
        make: Callable[[Change], Record[Any]]
        if isinstance(source, str):
            name, opened = source, self._open(source)
            make = _Plain(opened.table.schema)
        else:
            model = model_of(source)
            name, opened = model.table, self._table(model)
            make = _Typed(model, opened.table.schema)
        if opened.view is None:
            raise NotReady(
                f"the table {name!r} has no change stream; a model asks for one: @model(stream={{'new', 'old'}})"
            )
        return name, self._place.changes(name, opened), make

    # -- within
    def _open(self, name: str) -> Opened:
        if name not in self._bound:
            self._bound[name] = self._place.open(name)
        return self._bound[name]

    def _table(self, model: Model[Any]) -> Opened:
        if model.table not in self._bound:
            raise BadModel(
                f"{model.kind.__name__} is not bound to its table yet; call engine.bind({model.kind.__name__})"
            )
        return self._bound[model.table]

    def _part(self, model: Model[Any], action: Action) -> tuple[Opened, Action]:
        return self._table(model), action

    def _write(self, parts: Sequence[tuple[Opened, Action]]) -> None:
        first = parts[0][0].table
        if all(opened.table is first for opened, _ in parts):
            write = partial(first.write, *(action for _, action in parts))
        else:
            write = partial(first.write_with, *((opened.table, action) for opened, action in parts))
        self._patience.ask(write, "the table", NOT_DONE)


def embedded(store: Store) -> Engine:
    """Return the engine of a home, whose tables are beside the home's own table."""
    return Engine(place_of(store), store)


def schema_of(model: Model[Any]) -> KeySchema:
    """Return the key schema of a model's table."""
    assert model.hash is not None
    hash: Any = model.hash.stored.kind
    if model.range is None:
        return KeySchema(model.hash.name, hash, None)
    range: Any = model.range.stored.kind
    return KeySchema(model.hash.name, hash, model.range.name, range)


def _columns(schema: KeySchema, model: Model[Any] | None) -> Columns:
    from tailrace.streams.arrow import Columns  # only callers that want Arrow load it

    return Columns(schema, model)


def _given(a: Any, b: Any) -> Any:
    return a if a is not None else b


class _Typed:
    """Turns changes into records with a model's instances."""

    def __init__(self, model: Model[Any], schema: KeySchema) -> None:
        self._model, self._schema = model, schema

    def __call__(self, change: Change) -> Record[Any]:
        load = self._model.load
        return Record(
            self._model.load_key(self._schema.attributes(change.key)),
            None if change.new is None else load(change.new),
            None if change.old is None else load(change.old),
            meta_of(change),
        )


class _Plain:
    """Turns changes into records with items as they are stored."""

    def __init__(self, schema: KeySchema) -> None:
        self._schema = schema

    def __call__(self, change: Change) -> Record[Any]:
        key: Mapping[str, Any] = self._schema.attributes(change.key)
        new, old = (None if image is None else dict(image) for image in (change.new, change.old))
        return Record(dict(key), new, old, meta_of(change))
