"""What is stored about the indexing of an event store: how many partitions its index has, and how far it is.

The item `$Indexing`; its attributes are described in `indexing`.  `store` is the id of the home whose events are
indexed.  An index that was made before ids were kept has none: the first process that opens it writes its home's.
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.errors import ForeignIndex
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Item, Key, Put, Regardless, Set, Update

KEY = Key("$Indexing")
HOME = Key("$Home")


def settled(partitions: int | None = None) -> Steps[Item]:
    """What is stored about the indexing of this store; made, with so many partitions, if nothing is indexed yet.

    `ForeignIndex` if the index is another store's."""
    home = yield from guard.read(HOME)
    mine = {} if home is None else {"store": home["id"]}

    def plan(item: Item | None) -> tuple[Action, ...] | None:
        if item is None:
            return (Put(KEY, {"filled": False, "partitions": partitions or 1, **mine}, (Absent(),)),)
        _check_owner(item, home)
        if mine and "store" not in item:
            return (Update(KEY, (Set("store", mine["store"]),), (Absent("store"),)),)
        return None

    item = yield from guard.settle(KEY, plan)
    assert item is not None
    return item


def check_owner() -> Steps[None]:
    """`ForeignIndex` if the index is another store's."""
    _check_owner((yield from look()), (yield from guard.read(HOME)))


def _check_owner(item: Item | None, home: Item | None) -> None:
    if item is not None and home is not None and item.get("store", home["id"]) != home["id"]:
        raise ForeignIndex(
            f"the index of the feed belongs to the home with the id {item['store']}, and this home has the id "
            f"{home['id']}: items of another table were copied into this one. `tailrace events index rebuild --all` "
            "makes the index again from the events of this home"
        )


def take_over() -> Steps[None]:
    """Make the index this store's, though it may be another's: it is about to be made again."""
    item, home = (yield from look()), (yield from guard.read(HOME))
    if item is not None and home is not None and item.get("store") != home["id"]:
        yield from guard.attempt(Update(KEY, (Set("store", home["id"]),), (Regardless(),)))


def look() -> Steps[Item | None]:
    """What is stored about the indexing of this store; None if nothing is indexed yet."""
    return (yield from guard.read(KEY))


def partitions_of(state: Item | None) -> int:
    """How many partitions the index has."""
    return 1 if state is None else int(state.get("partitions", 1))
