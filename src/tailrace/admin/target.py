"""The target of a copy: a home that no process can open until the copy is complete.

    $Home, 0    format, id; until the copy is complete also copying: the source home's id, and by: the run that copies

A new run takes over from the one before, dead or alive: from then on every write of the earlier run is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Outcome, Refused, Written
from tailrace.errors import AlreadyThere, Conflict, Fenced
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.changes import View
from tailrace.storage.keys import KeySchema
from tailrace.storage.limits import item_size
from tailrace.storage.tables import (
    Absent,
    Action,
    Check,
    Delete,
    Equals,
    Item,
    Key,
    Put,
    Regardless,
    Remove,
    Set,
    Update,
)
from tailrace.streams.patience import Patience
from tailrace.streams.table_homes import ModelTable, place_of

HOME = Key("$Home")
FORMAT = 1
"""The format of a home that a copy writes; as in home/home_item.py."""
ITEMS_PER_WRITE, BYTES_PER_WRITE = 50, 1 << 20


def scan(store: Store) -> Iterator[Item]:
    """Every item of a table, the source's or the target's of a copy."""
    after: Key | None = None
    while found := store.run(guard.some(after)):
        yield from found
        after = Key(found[-1]["p"], found[-1]["i"])


def claim(store: Store, source_id: str, url: str) -> CopyTarget:
    """Begin a copy into an empty target, or take over an unfinished copy of the same source; `AlreadyThere` if the
    target holds anything else."""
    item = store.run(guard.read(HOME))
    if item is not None and item["id"] == source_id:
        raise AlreadyThere(f"{url} is the very home that is to be copied; choose another target")
    if item is None or "copying" not in item:
        others = next((one for one in scan(store) if one["p"] != HOME.p), None)
        if others is not None or next(iter(store.objects.list("topics/")), None) is not None:
            raise AlreadyThere(f"{url} is not empty; a copy goes to a home that holds nothing yet")
    target = CopyTarget(store, url, secrets.token_hex(8))
    mine = {"copying": source_id, "by": target.by}

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            return (Put(HOME, {"format": FORMAT, "id": secrets.token_hex(8), **mine}, (Absent(),)),)
        if item.get("by") == target.by:
            return None
        if item.get("copying", source_id) != source_id:
            raise AlreadyThere(f"{url} holds an unfinished copy of another home; choose another target, or remove it")
        seen = Equals("by", item["by"]) if "by" in item else Absent("by")
        return (Update(HOME, tuple(Set(name, value) for name, value in mine.items()), (seen,)),)

    store.run(guard.settle(HOME, plan))
    return target


class CopyTarget:
    """Writes the items and objects of a copy, several items at a time.  `Fenced` once another run has taken over."""

    def __init__(self, store: Store, url: str, by: str) -> None:
        self.store, self.url, self.by = store, url, by
        self._items: dict[Key, Item] = {}
        self._bytes = 0

    def put(self, item: Item) -> None:
        """Add an item, in place of the stored one; `flush` writes it at the latest."""
        self._items[Key(item["p"], item["i"])] = item
        self._bytes += item_size(item)
        if len(self._items) >= ITEMS_PER_WRITE or self._bytes >= BYTES_PER_WRITE:
            self.flush()

    def put_all(self, items: Iterable[Item]) -> None:
        """Add several items."""
        for item in items:
            self.put(item)

    def flush(self) -> None:
        """Write the items that were added and not written yet."""
        items, self._items, self._bytes = self._items, {}, 0
        if items:
            fresh = [Put(key, item, (Absent(),)) for key, item in items.items()]
            if not isinstance(self.store.run(self._write(*fresh)), Written):
                for key, item in items.items():
                    self.store.run(self._stored(key, item))

    def model_table(self, name: str, schema: KeySchema, view: View | None) -> ModelTarget:
        """Open a model's table in the target; creates it if it is missing, and removes the items of an interrupted
        copy."""
        table = place_of(self.store).bind(name, schema, view).table
        into = ModelTarget(self, table)
        while items := table.scan():
            into.remove_all(items)
        return into

    def _write(self, *actions: Action) -> Steps[Outcome]:
        outcome = yield from guard.attempt(Check(HOME, (Equals("by", self.by),)), *actions)
        if isinstance(outcome, Refused) and outcome.index == 0:
            raise self._fenced()
        return outcome

    def _fenced(self) -> Fenced:
        return Fenced(f"another copy to {self.url} has begun since; this one ends, and that one goes on")

    def _stored(self, key: Key, wanted: Item | None) -> Steps[None]:
        while (item := (yield from guard.read(key))) != wanted:
            there = (Absent(),) if item is None else (Equals("p", key.p),)
            yield from self._write(Delete(key) if wanted is None else Put(key, wanted, there))

    def put_object(self, name: str, data: memoryview) -> None:
        """Store an object, in place of one that an interrupted copy may have left."""
        try:
            self.store.run(guard.persist(lambda: calls.put_object(name, [data])))
        except AlreadyThere:
            self.replace_object(name, data)

    def replace_object(self, name: str, data: memoryview) -> None:
        """Delete an object and store it again."""
        item = self.store.run(guard.read(HOME))
        if item is None or item.get("by") != self.by:
            raise self._fenced()
        self.store.run(guard.persist(lambda: calls.delete_objects([name])))
        self.store.run(guard.persist(lambda: calls.put_object(name, [data])))

    def wipe(self, kept: tuple[str, ...]) -> None:
        """Remove the items that an earlier attempt has left, except those whose hash key begins with one of `kept`."""
        doomed = [Key(i["p"], i["i"]) for i in scan(self.store) if i["p"] != HOME.p and not i["p"].startswith(kept)]
        for start in range(0, len(doomed), ITEMS_PER_WRITE):
            keys = doomed[start : start + ITEMS_PER_WRITE]
            if not isinstance(self.store.run(self._write(*map(Delete, keys))), Written):
                for key in keys:
                    self.store.run(self._stored(key, None))

    def finish(self) -> None:
        """Mark the copy as complete, so that processes can open the target."""
        done = (Update(HOME, (Remove("copying"), Remove("by")), (Equals("by", self.by),)),)

        def plan(item: Item | None) -> tuple[Action, ...] | None:
            if item is None or "copying" not in item:
                return None
            if item.get("by") != self.by:
                raise self._fenced()
            return done

        self.store.run(guard.settle(HOME, plan))


class ModelTarget:
    """Fills a model's table with a copy. `Fenced` once another run has taken over."""

    def __init__(self, target: CopyTarget, table: ModelTable) -> None:
        self._target, self._table = target, table
        self._actions: list[Action] = []
        self._bytes = 0

    def put_all(self, items: Iterable[Item]) -> None:
        """Add several items; `flush` writes them at the latest."""
        for item in items:
            self._actions.append(Put(self._table.schema.key_of(item), item, (Regardless(),)))
            self._bytes += item_size(item)
            if len(self._actions) >= ITEMS_PER_WRITE or self._bytes >= BYTES_PER_WRITE:
                self.flush()

    def remove_all(self, items: Iterable[Item]) -> None:
        """Delete several items, and write all that were added before."""
        self._actions += [Delete(self._table.schema.key_of(item), (Regardless(),)) for item in items]
        self.flush()

    def flush(self) -> None:
        """Write the actions that are left.  They may be repeated, so a write without an answer is sent again."""
        actions, self._actions, self._bytes = self._actions, [], 0
        for start in range(0, len(actions), ITEMS_PER_WRITE):
            self._write(actions[start : start + ITEMS_PER_WRITE])

    def _write(self, actions: list[Action]) -> None:
        home: Any = self._target.store.table
        mine = (home, Check(HOME, (Equals("by", self._target.by),)))
        parts = [mine, *((self._table, action) for action in actions)]
        try:
            Patience().ask(lambda: home.write_with(*parts), f"a table of {self._target.url}")
        except Conflict:
            raise self._target._fenced() from None
