"""SimulatedTable: a table in memory, with torn transactions and faults on demand."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.memory.changes import MemoryChanges
from tailrace.storage.memory.table import Admitted, MemoryTable
from tailrace.storage.tables import Item, Key
from tailrace.testing.faults import Faults


class SimulatedTable(MemoryTable):
    """Keeps the `Table` contract.  Calls block and may come from any thread.

    `faults` makes calls fail; `changes` captures the changes of items.  A `Simulation` calls `look`, `range`, `some`
    and `apply`, which meet no faults.
    """

    def __init__(
        self,
        *,
        inline_bytes: int = 64 * 1024,
        joins_inline: bool = True,
        answers: bool = True,
        faults: Faults | None = None,
        changes: MemoryChanges | None = None,
        schema: KeySchema = HOME,
    ) -> None:
        super().__init__(inline_bytes=inline_bytes, joins_inline=joins_inline, answers=answers, schema=schema)
        self.faults, self.changes = faults, changes
        self.veil: dict[Key, Item | None] = {}
        """By key: the old item of a torn transaction, which plain reads still show."""
        self.version = 0
        """Rises with every change, so that a check can skip a state that it has seen."""

    def _begin(self, kind: str, admitted: Admitted = ()) -> None:
        super()._begin(kind, admitted)
        if self.faults is None:
            return
        if kind == "write":
            self.faults.write(lambda: self.apply(admitted))
        else:
            self.faults.read()

    def apply(self, admitted: Admitted, torn: int | None = None) -> tuple[Item | None, ...]:
        """Carry out all of the actions that `admit` returned, or none.  With `torn`, plain reads do not show the effect
        of that action.

        A write that touches a veiled item sees its true state, and unveils it."""
        for action, _ in admitted:
            self.veil.pop(action.key, None)
        old = None if torn is None else self.items.get(admitted[torn][0].key)
        answer = super().apply(admitted)
        if torn is not None:
            self.veil[admitted[torn][0].key] = old
        return answer

    def look(self, key: Key) -> Item | None:
        """Return the item as plain reads show it."""
        if key in self.veil:
            return self.veil[key]
        return self.items.get(key)

    def show(self, key: Key | None = None) -> None:
        """Let plain reads show the true state of an item, or of all items."""
        if key is None:
            self.veil.clear()
        else:
            self.veil.pop(key, None)

    def _keys(self) -> Iterable[Key]:
        return {**self.items, **self.veil}

    def _numbers(self, p: str, low: int, high: int) -> list[int]:
        numbers = super()._numbers(p, low, high)
        if not self.veil:
            return numbers
        return sorted([*numbers, *(k.i for k in self.veil if k.p == p and low <= k.i <= high and k not in self.items)])

    def _store(self, key: Key, old: Item | None, item: Item | None, size: int) -> None:
        self.version += old is not None or item is not None
        super()._store(key, old, item, size)
