"""The target of a copy: a home that is nobody's until the copy is whole.

$Home, 0    format, id, copying: the id of the home it is a copy of, until it is complete; nobody can open it before
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.errors import AlreadyThere
from tailrace.storage.calls import Steps, Store
from tailrace.storage.limits import item_size
from tailrace.storage.tables import Absent, Action, Delete, Equals, Exists, Item, Key, Put, Remove, Set, Update

HOME = Key("$Home")
FORMAT = 1
AT_ONCE, BYTES_AT_ONCE = 50, 1 << 20


def scan(store: Store) -> Iterator[Item]:
    """Every item of a table."""
    after: Key | None = None
    while found := store.run(guard.some(after)):
        yield from found
        after = Key(found[-1]["p"], found[-1]["i"])


def claim(target: Store, source_id: str, url: str) -> bool:
    """Begin a copy into an empty target, or go on with one of the same source; whether it is the latter."""
    item = target.run(guard.read(HOME))
    if item is not None and "copying" in item:
        if item["copying"] != source_id:
            raise AlreadyThere(f"{url} holds an unfinished copy of another home; choose another target, or remove it")
        return True
    others = next((one for one in scan(target) if one["p"] != HOME.p), None)
    if others is not None or next(iter(target.objects.list("topics/")), None) is not None:
        raise AlreadyThere(f"{url} is not empty; a copy goes to a home that holds nothing yet")
    fresh = {"format": FORMAT, "id": secrets.token_hex(8), "copying": source_id}

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            return (Put(HOME, fresh, (Absent(),)),)
        return None if "copying" in item else (Update(HOME, (Set("copying", source_id),), (Absent("copying"),)),)

    target.run(guard.settle(HOME, plan))
    return False


def finish(target: Store) -> None:
    """It is a home of its own now."""
    done = (Update(HOME, (Remove("copying"),), (Exists("copying"),)),)
    target.run(guard.settle(HOME, lambda item: done if item is not None and "copying" in item else None))


def wipe(target: Store, kept: tuple[str, ...]) -> None:
    """Remove the items that a copy begun before has left, except those whose bytes never change."""
    doomed: list[Key] = []
    for item in scan(target):
        if item["p"] != HOME.p and not item["p"].startswith(kept):
            doomed.append(Key(item["p"], item["i"]))
    for start in range(0, len(doomed), AT_ONCE):
        keys = doomed[start : start + AT_ONCE]
        if not isinstance(target.run(guard.attempt(*map(Delete, keys))), Written):
            for key in keys:
                gone = (Delete(key),)
                target.run(guard.settle(key, lambda item, gone=gone: gone if item is not None else None))  # type: ignore[misc]


class Shelf:
    """Writes items to a target, some at a time; each is as given when `flush` returns, whatever was there before."""

    def __init__(self, target: Store) -> None:
        self._target = target
        self._items: dict[Key, Item] = {}
        self._bytes = 0

    def put(self, item: Item) -> None:
        """One item, some time until `flush`."""
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
            if not isinstance(self._target.run(guard.attempt(*fresh)), Written):
                for key, item in items.items():
                    self._target.run(_stored(key, item))


def _stored(key: Key, wanted: Item) -> Steps[Item | None]:
    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            return (Put(key, wanted, (Absent(),)),)
        return None if item == wanted else (Put(key, wanted, (Equals("p", key.p),)),)

    return guard.settle(key, plan)
