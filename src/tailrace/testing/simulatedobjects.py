"""SimulatedObjects: objects in memory, with faults on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.storage.memory.objects import MemoryObjects, name_taken
from tailrace.storage.objects import Bytes
from tailrace.testing.faults import Faults


class SimulatedObjects(MemoryObjects):
    """Keeps the `Objects` contract.  Calls block and may come from any thread.

    A used name is refused for good; with `reuse` it is free again after a delete, as real storage allows and only a
    copy needs.  A `Simulation` calls `look`, `infos`, `store` and `drop`, which meet no faults."""

    def __init__(self, *, faults: Faults | None = None, reuse: bool = False) -> None:
        super().__init__()
        self.faults, self.reuse = faults, reuse
        self.version = 0
        """Rises with every change, so that a check can skip a state that it has seen."""
        self._used: set[str] = set()

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name that was never used before."""
        data = b"".join(parts)
        with self._lock:
            self._begin("put")
            if self.faults is not None:
                self.faults.write(lambda: self.store(name, data))
            self.store(name, data)

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; a missing one is no error."""
        names = tuple(names)
        with self._lock:
            self._begin("delete")
            if self.faults is not None:
                self.faults.write(lambda: self.drop(names))
            self.drop(names)

    def _begin(self, kind: str) -> None:
        super()._begin(kind)
        if self.faults is not None and kind in ("get", "list"):
            self.faults.read()

    def store(self, name: str, data: bytes) -> None:
        """Store bytes, without faults; refuses a used name, even after a delete unless `reuse`."""
        if not self.reuse and name in self._used:
            raise name_taken(name)
        super().store(name, data)
        self._used.add(name)
        self.version += 1

    def drop(self, names: Iterable[str]) -> None:
        """Remove objects, without faults."""
        before = len(self.items)
        super().drop(names)
        self.version += before - len(self.items)
