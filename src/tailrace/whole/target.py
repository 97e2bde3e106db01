"""The target of a copy: a home that is nobody's until the copy is whole.

$Home, 0    format, id, copying: the id of the home it is a copy of, by: which run is at it; both until it is complete,
            and nobody can open it before

A run that begins takes over from one before it, dead or not: from then on every write of that one is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from tailrace.coordination import guard
from tailrace.coordination.guard import Outcome, Refused, Written
from tailrace.errors import AlreadyThere, Fenced
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.limits import item_size
from tailrace.storage.tables import Absent, Action, Check, Delete, Equals, Item, Key, Put, Remove, Set, Update

HOME = Key("$Home")
FORMAT = 1
AT_ONCE, BYTES_AT_ONCE = 50, 1 << 20


def scan(store: Store) -> Iterator[Item]:
    """Every item of a table."""
    after: Key | None = None
    while found := store.run(guard.some(after)):
        yield from found
        after = Key(found[-1]["p"], found[-1]["i"])


def claim(store: Store, source_id: str, url: str) -> Target:
    """Begin a copy into an empty target, or go on with one of the same source."""
    item = store.run(guard.read(HOME))
    if item is not None and item["id"] == source_id:
        raise AlreadyThere(f"{url} is the very home that is to be copied; choose another target")
    if item is None or "copying" not in item:
        others = next((one for one in scan(store) if one["p"] != HOME.p), None)
        if others is not None or next(iter(store.objects.list("topics/")), None) is not None:
            raise AlreadyThere(f"{url} is not empty; a copy goes to a home that holds nothing yet")
    target = Target(store, url, secrets.token_hex(8))
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


class Target:
    """Where a copy goes: writes items, some at a time, and objects.  `Fenced` once another run has taken over."""

    def __init__(self, store: Store, url: str, by: str) -> None:
        self.store, self.url, self.by = store, url, by
        self._items: dict[Key, Item] = {}
        self._bytes = 0

    def put(self, item: Item) -> None:
        """One item, some time until `flush`; it is as given then, whatever was there before."""
        self._items[Key(item["p"], item["i"])] = item
        self._bytes += item_size(item)
        if len(self._items) >= AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            self.flush()

    def put_all(self, items: Iterable[Item]) -> None:
        """Some items."""
        for item in items:
            self.put(item)

    def flush(self) -> None:
        """Write what is left."""
        items, self._items, self._bytes = self._items, {}, 0
        if items:
            fresh = [Put(key, item, (Absent(),)) for key, item in items.items()]
            if not isinstance(self.store.run(self._write(*fresh)), Written):
                for key, item in items.items():
                    self.store.run(self._stored(key, item))

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
        """Store an object, in place of what a copy cut off before may have left of it."""
        try:
            self.store.run(guard.persist(lambda: calls.put_object(name, [data])))
        except AlreadyThere:
            self.replace_object(name, data)

    def replace_object(self, name: str, data: memoryview) -> None:
        """Store an object anew."""
        item = self.store.run(guard.read(HOME))
        if item is None or item.get("by") != self.by:
            raise self._fenced()
        self.store.run(guard.persist(lambda: calls.delete_objects([name])))
        self.store.run(guard.persist(lambda: calls.put_object(name, [data])))

    def wipe(self, kept: tuple[str, ...]) -> None:
        """Remove the items that a copy begun before has left, except those whose bytes never change."""
        doomed = [Key(i["p"], i["i"]) for i in scan(self.store) if i["p"] != HOME.p and not i["p"].startswith(kept)]
        for start in range(0, len(doomed), AT_ONCE):
            keys = doomed[start : start + AT_ONCE]
            if not isinstance(self.store.run(self._write(*map(Delete, keys))), Written):
                for key in keys:
                    self.store.run(self._stored(key, None))

    def finish(self) -> None:
        """It is a home of its own now."""
        done = (Update(HOME, (Remove("copying"), Remove("by")), (Equals("by", self.by),)),)

        def plan(item: Item | None) -> tuple[Action, ...] | None:
            if item is None or "copying" not in item:
                return None
            if item.get("by") != self.by:
                raise self._fenced()
            return done

        self.store.run(guard.settle(HOME, plan))
