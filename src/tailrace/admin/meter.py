"""Meters: a table and objects that count the requests and units that AWS would bill."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tailrace.storage.limits import item_size
from tailrace.storage.objects import Bytes, ObjectInfo, Objects
from tailrace.storage.tables import LAST, Action, Check, Item, Key, Put, Slice, Table

WRITE_UNIT, READ_UNIT = 1024, 4096
"""Bytes that one unit of DynamoDB pays for."""


class Bill:
    """Counts requests by kind, and the DynamoDB units that they took as `writes` and `reads`."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, request: str, kind: str = "", units: int = 0) -> None:
        """Count one request and its units."""
        with self._lock:
            self.requests[request] += 1
            self.units[kind] += units

    def clear(self) -> None:
        """Set all counts to zero."""
        with self._lock:
            self.requests.clear()
            self.units.clear()


def _units(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


class MeteredTable:
    """A `Table` that passes calls on to another table, and counts them as DynamoDB would."""

    inline_bytes = 8192
    handy_bytes = 32768
    joins_inline = False

    def __init__(self, table: Table, bill: Bill) -> None:
        self._table, self._bill = table, bill

    def get(self, key: Key) -> Item | None:
        """The item of a key, or None; counts the request."""
        item = self._table.get(key)
        self._bill.add("GetItem", "reads", _units(item_size(item) if item else 0, READ_UNIT))
        return item

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items with one hash key; counts the request and its units."""
        found = self._table.query(p, low, high, descending=descending, limit=limit)
        self._bill.add("Query", "reads", _units(sum(map(item_size, found.items)), READ_UNIT))
        return found

    def scan(self, after: Key | None = None) -> list[Item]:
        """The next items of the whole table; counts the request and its units."""
        found = self._table.scan(after)
        self._bill.add("Scan", "reads", _units(sum(map(item_size, found)), READ_UNIT))
        return found

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Do all actions or none; DynamoDB bills a refused write, too."""
        try:
            return self._table.write(*actions)
        finally:
            units = sum(map(self._written, actions))
            name = "TransactWriteItems" if len(actions) > 1 else f"{_NAMES.get(type(actions[0]), 'Update')}Item"
            self._bill.add(name, "writes", 2 * units if len(actions) > 1 else units)

    def _written(self, action: Action) -> int:
        item = action.item if isinstance(action, Put) else self._table.get(action.key)
        return _units(item_size(item) if item else 0, WRITE_UNIT)

    def close(self) -> None:
        """Close the table behind the meter."""
        self._table.close()


_NAMES = {Put: "Put", Check: "Get"}


class MeteredObjects:
    """`Objects` that pass calls on to other objects, and count them as S3 would."""

    def __init__(self, objects: Objects, bill: Bill) -> None:
        self._objects, self._bill = objects, bill

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts; counts the request."""
        self._bill.add("put")
        self._objects.put(name, parts)

    def get(self, name: str) -> memoryview:
        """All bytes of an object; counts the request."""
        self._bill.add("get")
        return self._objects.get(name)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Ranges of an object's bytes; counts the request."""
        self._bill.add("get")
        return self._objects.get_ranges(name, ranges)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects below a prefix; counts the request."""
        self._bill.add("list")
        return self._objects.list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; counts the request."""
        self._bill.add("delete")
        self._objects.delete(names)

    def close(self) -> None:
        """Close the objects behind the meter."""
        self._objects.close()
