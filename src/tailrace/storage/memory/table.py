"""MemoryTable: a table in this process's memory, with every limit of the real ones."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from operator import ge, gt, le, lt
from typing import Any, Self

from tailrace.errors import Closed, Conflict
from tailrace.storage.changes import View
from tailrace.storage.evaluation import changed, holds
from tailrace.storage.keys import ALL, HOME, Bounds, KeySchema, sortable
from tailrace.storage.limits import (
    MAX_ITEM_BYTES,
    SURELY_FIT_TOGETHER,
    check_key,
    check_size,
    check_together,
    item_size,
)
from tailrace.storage.memory.admission import admit, plain
from tailrace.storage.memory.changes import MemoryChanges
from tailrace.storage.tables import LAST, PAGE_BYTES, Action, Check, Delete, Item, Key, Slice, Update

Admitted = Sequence[tuple[Action, int]]
"""Actions as `admit` gives them: each with an upper bound of the bytes it adds."""
_COMPARE = {">": gt, ">=": ge, "<": lt, "<=": le}
ITEMS_PER_SCAN = 100
"""The most items that one scan returns, so that a small table has several pages too."""


class MemoryTable:
    """Keeps the `Table` contract.  Calls block and may come from any thread.

    `answers`: whether a write of several actions returns the items, as SQLite does, or None, as DynamoDB does.  `get`,
    `query` and `write` copy what goes in and out; `look`, `range` and `apply`, which a simulation calls itself, do not:
    the caller must not change the items they return.
    """

    handy_bytes = 32 * 1024

    def __init__(
        self,
        *,
        inline_bytes: int = 64 * 1024,
        joins_inline: bool = True,
        answers: bool = True,
        schema: KeySchema = HOME,
    ) -> None:
        self.schema = schema
        self.inline_bytes, self.joins_inline, self.answers = inline_bytes, joins_inline, answers
        self.changes: MemoryChanges | None = None
        """The change stream of the table, if capture is switched on."""
        self.items: dict[Key, Item] = {}
        """The committed items, by which conditions are judged."""
        self.calls: Counter[str] = Counter()
        """How often get, query and write were called."""
        self._bounds: dict[Key, int] = {}
        self._ranges: dict[str, list[int]] = {}
        self._siblings: dict[str, Self] = {}
        self._lock, self._closed = threading.RLock(), False

    # --- the contract ---
    def get(self, key: Key) -> Item | None:
        """The item, or None."""
        self.schema.check(key)
        with self._lock:
            self._begin("get")
            item: Item | None = plain(self.look(key))
            return item

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash in order, at most `limit` and at most 1 MB of them."""
        check_key(Key(p))
        with self._lock:
            self._begin("query")
            items, more = self.range(p, low, high, descending, limit)
            return Slice([plain(item) for item in items], more)

    def find(
        self, hash: Any, bounds: Bounds = ALL, *, after: Any = None, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash whose range keys are within bounds, in order, after the last one of the page before."""
        bounds.check(self.schema)
        wanted = bounds.comparisons()
        if after is not None:
            wanted.append(("<" if descending else ">", sortable(after)))
        with self._lock:
            self._begin("find")
            keys = sorted((key for key in self.items if key.p == hash), key=lambda key: key.i, reverse=descending)
            found = [self.items[key] for key in keys if all(_COMPARE[op](sortable(key.i), to) for op, to in wanted)]
            page = self._page(found, limit)
            more = self.schema.key_of(page[-1]).i if page and len(page) < len(found) else None
            return Slice([plain(item) for item in page], more)

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes after a key, in order; none at the end."""
        with self._lock:
            self._begin("scan")
            return [plain(item) for item in self.some(after)]

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Do all actions or none."""
        admitted = admit(actions, self.schema)
        with self._lock:
            self._begin("write", admitted)
            try:
                answer = self.apply(admitted)
            except Conflict as conflict:
                conflict.item = plain(conflict.item)
                raise
            return tuple(map(plain, answer)) if self.answers or len(actions) == 1 else None

    def close(self) -> None:
        """Calls after this raise `Closed`."""
        self._closed = True

    def _begin(self, kind: str, admitted: Admitted = ()) -> None:
        """Called first by every request; a simulation adds its faults here."""
        if self._closed:
            raise Closed("this table in memory was closed")
        self.calls[kind] += 1

    # --- what models and change streams need in addition ---
    def sibling(self, name: str, schema: KeySchema) -> Self:
        """Another table in the same place, created if it does not exist."""
        with self._lock:
            return self._siblings.setdefault(name, type(self)(schema=schema))

    def capture(self, view: View, *, only: object = None) -> MemoryChanges:
        """Switch change capture on; returns the stream of all changes from then on."""
        with self._lock:
            self.changes = self.changes or MemoryChanges(view)
            return self.changes

    def write_with(self, *parts: tuple[MemoryTable, Action]) -> None:
        """Do all actions, on this and other tables, or none."""
        tables = list({id(table): table for table, _ in parts}.values())
        work = [(table, admit((action,), table.schema)) for table, action in parts]
        with ExitStack() as locks:
            for table in sorted(tables, key=id):
                locks.enter_context(table._lock)
            for index, (table, ((action, _),)) in enumerate(work):
                item = table.items.get(action.key)
                if not holds(item, action.when):
                    raise Conflict(_refusal(action, item), index=index, item=plain(item))
            for table, admitted in work:
                table.apply(admitted)

    # --- the work ---
    def look(self, key: Key) -> Item | None:
        """The item as plain reads show it."""
        return self.items.get(key)

    def range(self, p: str, low: int, high: int, descending: bool, limit: int | None) -> Slice:
        """One page of items as plain reads show them."""
        numbers = self._numbers(p, low, high)
        if descending:
            numbers.reverse()
        found = [item for i in numbers if (item := self.look(Key(p, i))) is not None]
        page = self._page(found, limit)
        return Slice(page, page[-1]["i"] if len(page) < len(found) else None)

    def some(self, after: Key | None) -> list[Item]:
        """One page of items of all hashes as plain reads show them."""
        keys = sorted(key for key in self._keys() if after is None or key > after)
        shown = (item for key in keys if (item := self.look(key)) is not None)
        return self._page(list(islice(shown, ITEMS_PER_SCAN)), None)

    def _keys(self) -> Iterable[Key]:
        return self.items

    def _numbers(self, p: str, low: int, high: int) -> list[int]:
        """The range keys of one hash, in order."""
        ranges = self._ranges.get(p, [])
        return ranges[bisect_left(ranges, low) : bisect_right(ranges, high)]

    def apply(self, admitted: Admitted) -> tuple[Item | None, ...]:
        """Do all actions, as `admit` gives them, or none."""
        before = [self.items.get(action.key) for action, _ in admitted]
        for index, (action, _) in enumerate(admitted):
            if not holds(before[index], action.when):
                raise Conflict(_refusal(action, before[index]), index=index, item=before[index])
        after = [self._after(old, action, size) for old, (action, size) in zip(before, admitted, strict=True)]
        if len(admitted) > SURELY_FIT_TOGETHER:
            check_together(new or old for (new, _), old in zip(after, before, strict=True))
        for (action, _), old, (item, size) in zip(admitted, before, after, strict=True):
            if type(action) is not Check:
                self._store(action.key, old, item, size)
        return tuple([item for item, _ in after])

    def _after(self, old: Item | None, action: Action, size: int) -> tuple[Item | None, int]:
        """The item after an action, and an upper bound of its size: exact near the limit.  An item over the limit is
        refused."""
        if type(action) is Check or type(action) is Delete:
            return None, 0
        item = changed(old, action, self.schema)
        if type(action) is Update:
            size += self._bounds.get(action.key, 0)
        return item, size if size <= MAX_ITEM_BYTES or item is None else check_size(action.key, item)

    def _store(self, key: Key, old: Item | None, item: Item | None, size: int) -> None:
        if old is None and item is None:
            return  # there was nothing to delete
        if item is None:
            del self.items[key], self._bounds[key]
            self._ranges[key.p].remove(key.i)
        else:
            if old is None:
                insort(self._ranges.setdefault(key.p, []), key.i)
            self.items[key], self._bounds[key] = item, size
        if self.changes is not None:
            self.changes.capture(key, old, item)

    def _page(self, found: list[Item], limit: int | None) -> list[Item]:
        if limit is not None:
            found = found[:limit]
        key_of = self.schema.key_of
        if sum(self._bounds.get(key_of(item), MAX_ITEM_BYTES) for item in found) <= PAGE_BYTES:
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
