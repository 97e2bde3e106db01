"""SimulatedObjects: objects in memory, with faults on demand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tailrace.errors import AlreadyThere, Closed, ObjectMissing
from tailrace.storage.objects import Bytes, ObjectInfo
from tailrace.testing.faults import Faults

Views: TypeAlias = list[memoryview]
Infos: TypeAlias = list[ObjectInfo]


class SimulatedObjects:
    """Keeps the `Objects` contract.  Calls block and may come from any thread.

    `reuse`: a name may be used again once its object is deleted, as real ones allow and only a copy needs.
    `look`, `store` and `drop` are what a `Simulation` calls, without locks and faults."""

    def __init__(self, *, faults: Faults | None = None, reuse: bool = False) -> None:
        self.faults, self.reuse = faults, reuse
        self.items: dict[str, bytes] = {}
        """The bytes by name."""
        self.calls: Counter[str] = Counter()
        """How often put, get, list and delete were called."""
        self.version = 0
        """Rises with every change, so that a check can skip what it has seen."""
        self._used: set[str] = set()
        self._lock, self._closed = threading.RLock(), False

    # --- the contract ---
    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name never used before."""
        data = b"".join(parts)
        with self._lock:
            self._begin("put")
            if self.faults is not None:
                self.faults.write(lambda: self.store(name, data))
            self.store(name, data)

    def get(self, name: str) -> memoryview:
        """All bytes of an object."""
        with self._lock:
            self._read("get")
            return self.look(name, None)[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Views:
        """The bytes of several (position, length) ranges of one object."""
        with self._lock:
            self._read("get")
            return self.look(name, ranges)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects whose names start with `prefix`."""
        with self._lock:
            self._read("list")
            return iter(self.infos(prefix))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is no error."""
        names = tuple(names)
        with self._lock:
            self._begin("delete")
            if self.faults is not None:
                self.faults.write(lambda: self.drop(names))
            self.drop(names)

    def close(self) -> None:
        """Calls after this raise `Closed`."""
        self._closed = True

    def _begin(self, kind: str) -> None:
        if self._closed:
            raise Closed("these simulated objects were closed")
        self.calls[kind] += 1

    def _read(self, kind: str) -> None:
        self._begin(kind)
        if self.faults is not None:
            self.faults.read()

    # --- what a simulation calls ---
    def look(self, name: str, ranges: Sequence[tuple[int, int]] | None) -> Views:
        """All bytes, or those of some ranges."""
        data = self.items.get(name)
        if data is None:
            raise ObjectMissing(name)
        view = memoryview(data)
        return [view] if ranges is None else [view[at : at + length] for at, length in ranges]

    def infos(self, prefix: str) -> Infos:
        """What a listing says now."""
        return [ObjectInfo(name, len(data)) for name, data in self.items.items() if name.startswith(prefix)]

    def store(self, name: str, data: bytes) -> None:
        """Keep bytes; a name that was ever used is refused, even after a delete unless `reuse`."""
        if name in (self.items if self.reuse else self._used):
            raise AlreadyThere(f"object {name!r} was put before; bytes go under a new name each time")
        self._used.add(name)
        self.items[name] = data
        self.version += 1

    def drop(self, names: Iterable[str]) -> None:
        """Remove objects."""
        for name in names:
            self.version += self.items.pop(name, None) is not None
