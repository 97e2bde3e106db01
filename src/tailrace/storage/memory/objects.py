"""MemoryObjects: objects in this process's memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tailrace.errors import AlreadyThere, Closed, ObjectMissing
from tailrace.storage.objects import Bytes, ObjectInfo

Views: TypeAlias = list[memoryview]
Infos: TypeAlias = list[ObjectInfo]


class MemoryObjects:
    """Keeps the `Objects` contract.  Calls block and may come from any thread.

    `look`, `infos`, `store` and `drop` do the work, without the lock: a simulation calls them itself."""

    def __init__(self) -> None:
        self.items: dict[str, bytes] = {}
        """The bytes by name."""
        self.calls: Counter[str] = Counter()
        """How often put, get, list and delete were called."""
        self._lock, self._closed = threading.RLock(), False

    # --- the contract ---
    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name never used before."""
        data = b"".join(parts)
        with self._lock:
            self._begin("put")
            self.store(name, data)

    def get(self, name: str) -> memoryview:
        """All bytes of an object."""
        with self._lock:
            self._begin("get")
            return self.look(name, None)[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Views:
        """The bytes of several (position, length) ranges of one object."""
        with self._lock:
            self._begin("get")
            return self.look(name, ranges)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects whose names start with `prefix`."""
        with self._lock:
            self._begin("list")
            return iter(self.infos(prefix))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; a missing one is no error."""
        names = tuple(names)
        with self._lock:
            self._begin("delete")
            self.drop(names)

    def close(self) -> None:
        """Calls after this raise `Closed`."""
        self._closed = True

    def _begin(self, kind: str) -> None:
        if self._closed:
            raise Closed("these objects in memory were closed")
        self.calls[kind] += 1

    # --- the work ---
    def look(self, name: str, ranges: Sequence[tuple[int, int]] | None) -> Views:
        """All bytes of an object, or those of some ranges."""
        data = self.items.get(name)
        if data is None:
            raise ObjectMissing(name)
        view = memoryview(data)
        return [view] if ranges is None else [view[at : at + length] for at, length in ranges]

    def infos(self, prefix: str) -> Infos:
        """What a listing shows now."""
        return [ObjectInfo(name, len(data)) for name, data in self.items.items() if name.startswith(prefix)]

    def store(self, name: str, data: bytes) -> None:
        """Keep bytes under a new name; refuses a name that is taken."""
        if name in self.items:
            raise name_taken(name)
        self.items[name] = data

    def drop(self, names: Iterable[str]) -> None:
        """Remove objects."""
        for name in names:
            self.items.pop(name, None)


def name_taken(name: str) -> AlreadyThere:
    """The refusal to put an object under a name that was used before."""
    return AlreadyThere(f"object {name!r} was put before; bytes go under a new name each time")
