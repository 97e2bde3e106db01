"""SimulatedTable: a table in memory, with every limit of the real ones and faults on demand."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from tailrace.errors import Closed, Conflict
from tailrace.storage.evaluation import changed, holds
from tailrace.storage.limits import MAX_ITEM_BYTES, check_key, check_size, item_size
from tailrace.storage.tables import LAST, PAGE_BYTES, Action, Check, Delete, Item, Key, Slice, Update
from tailrace.testing.faults import Faults
from tailrace.testing.incoming import admit, plain
from tailrace.testing.simulatedchanges import SimulatedChanges

SCANNED = 100
"""The most items that one scan gives, so that a small table has several pages too."""


class SimulatedTable:
    """Keeps the `Table` contract.  Calls block and may come from any thread.

    `answers`: whether a write of several actions answers the items (SQLite does) or None (DynamoDB does).  `changes`
    captures what happens to items.  `get`, `query` and `write` copy what goes in and out; `look`, `range` and `apply`,
    which a `Simulation` calls, do not: the items they give must not be changed.
    """

    handy_bytes = 32 * 1024

    def __init__(
        self,
        *,
        inline_bytes: int = 64 * 1024,
        joins_inline: bool = True,
        answers: bool = True,
        faults: Faults | None = None,
        changes: SimulatedChanges | None = None,
    ) -> None:
        self.inline_bytes, self.joins_inline = inline_bytes, joins_inline
        self.answers, self.faults, self.changes = answers, faults, changes
        self.items: dict[Key, Item] = {}
        """The true state."""
        self.veil: dict[Key, Item | None] = {}
        """What plain reads still show instead of the true state, of torn transactions."""
        self.calls: Counter[str] = Counter()
        """How often get, query and write were called."""
        self.version = 0
        """Rises with every change, so that a check can skip what it has seen."""
        self._bounds: dict[Key, int] = {}
        self._ranges: dict[str, list[int]] = {}
        self._lock, self._closed = threading.RLock(), False

    # --- the contract ---
    def get(self, key: Key) -> Item | None:
        """The item, or None."""
        check_key(key)
        with self._lock:
            self._read("get")
            item: Item | None = plain(self.look(key))
            return item

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash in order, at most `limit` and at most 1 MB of them."""
        check_key(Key(p))
        with self._lock:
            self._read("query")
            items, more = self.range(p, low, high, descending, limit)
            return Slice([plain(item) for item in items], more)

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes behind a key, in order; none at the end."""
        with self._lock:
            self._read("scan")
            return [plain(item) for item in self.some(after)]

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Do all actions or none."""
        admitted = admit(actions)
        with self._lock:
            self._open()
            self.calls["write"] += 1
            if self.faults is not None:
                self.faults.write(lambda: self.apply(admitted))
            try:
                answer = self.apply(admitted)
            except Conflict as conflict:
                conflict.item = plain(conflict.item)
                raise
            return tuple(map(plain, answer)) if self.answers or len(actions) == 1 else None

    def close(self) -> None:
        """Calls after this raise `Closed`."""
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise Closed("this simulated table was closed")

    def _read(self, kind: str) -> None:
        self._open()
        self.calls[kind] += 1
        if self.faults is not None:
            self.faults.read()

    # --- what a simulation calls ---
    def look(self, key: Key) -> Item | None:
        """The item as plain reads show it."""
        if key in self.veil:
            return self.veil[key]
        return self.items.get(key)

    def range(self, p: str, low: int, high: int, descending: bool, limit: int | None) -> Slice:
        """One page of items as plain reads show them."""
        found = self._found(p, low, high, descending)
        page = _page(found, self._bounds, limit)
        return Slice(page, page[-1]["i"] if len(page) < len(found) else None)

    def some(self, after: Key | None) -> list[Item]:
        """One page of items of all hashes as plain reads show them."""
        keys = sorted(key for key in {**self.items, **self.veil} if after is None or key > after)
        shown = (item for key in keys if (item := self.look(key)) is not None)
        return _page(list(islice(shown, SCANNED)), self._bounds, None)

    def _found(self, p: str, low: int, high: int, descending: bool) -> list[Item]:
        ranges = self._ranges.get(p, [])
        numbers = ranges[bisect_left(ranges, low) : bisect_right(ranges, high)]
        if self.veil:
            hidden = [k.i for k in self.veil if k.p == p and low <= k.i <= high and k not in self.items]
            numbers = sorted([*numbers, *hidden])
        if descending:
            numbers.reverse()
        return [item for i in numbers if (item := self.look(Key(p, i))) is not None]

    def apply(self, admitted: Sequence[tuple[Action, int]], torn: int | None = None) -> tuple[Item | None, ...]:
        """Do all actions, as `admit` gives them, or none; with `torn`, plain reads do not show what that one did.

        A write that meets an item sees its true state, and makes it show."""
        before = [self._meet(action) for action, _ in admitted]
        for index, (action, _) in enumerate(admitted):
            if not holds(before[index], action.when):
                raise Conflict(_refusal(action, before[index]), index=index, item=before[index])
        after = [self._after(old, action, size) for old, (action, size) in zip(before, admitted, strict=True)]
        if torn is not None:
            self.veil[admitted[torn][0].key] = before[torn]
        for (action, _), old, (item, size) in zip(admitted, before, after, strict=True):
            if type(action) is not Check:
                self._store(action.key, old, item, size)
        return tuple([item for item, _ in after])

    def _meet(self, action: Action) -> Item | None:
        self.veil.pop(action.key, None)
        return self.items.get(action.key)

    def _after(self, old: Item | None, action: Action, size: int) -> tuple[Item | None, int]:
        """What an action makes of an item, and a bound of its size: exact near the limit, refused beyond."""
        if type(action) is Check or type(action) is Delete:
            return None, 0
        item = changed(old, action)
        if type(action) is Update:
            size += self._bounds.get(action.key, 0)
        return item, size if size <= MAX_ITEM_BYTES or item is None else check_size(action.key, item)

    def show(self, key: Key | None = None) -> None:
        """Let plain reads show the true state of an item, or of all."""
        if key is None:
            self.veil.clear()
        else:
            self.veil.pop(key, None)

    def _store(self, key: Key, old: Item | None, item: Item | None, size: int) -> None:
        self.version += 1
        if item is None:
            del self.items[key], self._bounds[key]
            self._ranges[key.p].remove(key.i)
        else:
            if old is None:
                insort(self._ranges.setdefault(key.p, []), key.i)
            self.items[key], self._bounds[key] = item, size
        if self.changes is not None:
            self.changes.capture(key, old, item)


def _page(found: list[Item], bounds: Mapping[Key, int], limit: int | None) -> list[Item]:
    if limit is not None:
        found = found[:limit]
    if sum(bounds.get(Key(item["p"], item["i"]), MAX_ITEM_BYTES) for item in found) <= PAGE_BYTES:
        return found
    size = 0
    for n, item in enumerate(found):
        size += item_size(item)
        if size > PAGE_BYTES:
            return found[: max(n, 1)]
    return found


def _refusal(action: Action, item: Item | None) -> str:
    there = "a condition does not hold" if item is not None else "there is no such item"
    return f"{type(action).__name__} of {action.key.p!r}/{action.key.i}: {there}"
