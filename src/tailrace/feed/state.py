"""State of the indexing: the item `$Indexing`, which says how many partitions the index has and how far it is.

`indexing` describes its attributes; `store` is the id of the home whose events are indexed.  An index of an earlier
format has no id: the first process that opens it stores its home's.
"""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.errors import ForeignIndex
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Item, Key, Put, Regardless, Set, Update

KEY = Key("$Indexing")
HOME = Key("$Home")


def settled(partitions: int | None = None) -> Steps[Item]:
    """Read the state of this home's indexing; creates it, with `partitions` or 1, if there is none.

    `ForeignIndex` if the index was made for another home."""
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
    """Raise `ForeignIndex` if the index was made for another home."""
    _check_owner((yield from look()), (yield from guard.read(HOME)))


def _check_owner(item: Item | None, home: Item | None) -> None:
    if item is not None and home is not None and item.get("store", home["id"]) != home["id"]:
        raise ForeignIndex(
            f"the index of the feed belongs to the home with the id {item['store']}, and this home has the id "
            f"{home['id']}: items of another table were copied into this one. `tailrace events index rebuild --all` "
            "makes the index again from the events of this home"
        )


def take_over() -> Steps[None]:
    """Assign the index to this home, though it may be another's; the caller then makes it again."""
    item, home = (yield from look()), (yield from guard.read(HOME))
    if item is not None and home is not None and item.get("store") != home["id"]:
        yield from guard.attempt(Update(KEY, (Set("store", home["id"]),), (Regardless(),)))


def look() -> Steps[Item | None]:
    """Read the state of this home's indexing; None if there is none yet."""
    return (yield from guard.read(KEY))


def partitions_of(state: Item | None) -> int:
    """The number of the index's partitions; 1 if there is no index yet."""
    return 1 if state is None else int(state.get("partitions", 1))
