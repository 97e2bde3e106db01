"""Reading: a stream by pages, forwards and backwards, without gaps.

The items of a stream form a chain: a calf's `n` is the key of the next calf, or the first index of the Tip.  A
plain read may show one half of a calving transaction before the other.  So an item that must be there and is
missing is read linearizably (see `guard.truth`): it is there, or was pruned, or is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.coordination import guard
from tailrace.events.event import Event
from tailrace.events.stored import read_events
from tailrace.events.tip import TIP, Tip, check_batch, damaged, tip_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item, Key


def read_tip(stream: str) -> Steps[Tip]:
    """A stream's Tip, as a plain read shows it."""
    return Tip.of(stream, (yield from guard.read(tip_key(stream))))


def true_tip(stream: str) -> Steps[Tip]:
    """A stream's Tip, by a linearizable read."""
    return Tip.of(stream, (yield from guard.truth(tip_key(stream))))


def bridge(stream: str, low: int, high: int) -> Steps[list[Item]]:
    """The calves from index low to high, which a plain read did not show; if some were pruned, only those above
    them."""
    found: list[Item] = []
    while low < high:
        item = yield from guard.truth(Key(stream, low))
        if item is not None:
            check_batch(stream, item)
            found.append(item)
            low = item["n"]
        elif (floor := (yield from true_tip(stream)).floor) > low:
            low, found = floor, []
        else:
            raise damaged(stream, low, "it is not there")
    return found


def _part(stream: str, c: Sequence[str], e: Sequence[object], first: int, start: int, stop: int) -> list[Event]:
    """The events of an item with start <= index < stop."""
    low, high = max(start - first, 0), max(stop - first, 0)
    return read_events(stream, c[low:high], e[low:high], first + low)  # type: ignore[arg-type]


class Forward:
    """Reads the events with start <= index < stop, oldest first, a page at a time.

    After the last page `tip` is the stream's Tip, if the read got that far."""

    def __init__(self, stream: str, start: int = 0, stop: int | None = None) -> None:
        self.stream, self.at, self.stop = stream, start, TIP if stop is None else stop
        self.tip: Tip | None = None
        self.done = self.at >= self.stop
        self._low, self._edge = 0, 0

    def page(self) -> Steps[list[Event]]:
        """The next events; none at the end."""
        if self._edge == 0 and self.at > 0 and not self.done:
            yield from self._seek()
        while not self.done:
            items, more = yield from guard.read_range(self.stream, self._low, TIP)
            events = yield from self._take(items)
            self.done = self.done or more is None or self.at >= self.stop
            self._low = 0 if more is None else more + 1
            if events:
                return events
        return []

    def _seek(self) -> Steps[None]:
        """Find the first item to read: the last one at or before the wanted index."""
        items, _ = yield from guard.read_range(self.stream, 0, min(self.at, TIP - 1), descending=True, limit=1)
        if items:
            first = check_batch(self.stream, items[0])
            self._low = self._edge = first if items[0]["n"] > self.at else items[0]["n"]

    def _take(self, items: list[Item]) -> Steps[list[Event]]:
        events: list[Event] = []
        for item in items:
            if item.get("i") == TIP:
                self.tip = Tip.of(self.stream, item)
                first, self.done = self.tip.first, True
            else:
                first = check_batch(self.stream, item)
            if first > self._edge:
                hidden = yield from bridge(self.stream, self._edge, first)
                if not hidden or hidden[0]["i"] > self._edge:
                    events.clear()  # everything before it was pruned as well
                for one in hidden:
                    events += self._from(one, one["i"])
            events += self._from(item, first)
        return events

    def _from(self, item: Item, first: int) -> list[Event]:
        events = _part(self.stream, item["c"], item["e"], first, self.at, self.stop)
        self.at, self._edge = max(self.at, min(item["n"], self.stop)), max(self._edge, item["n"])
        return events


class Backward:
    """Reads the events with start <= index < stop, newest first, a page at a time.  `tip` is where it began."""

    def __init__(self, stream: str, start: int = 0, stop: int | None = None, tip: Tip | None = None) -> None:
        self.stream, self.start, self.stop = stream, start, TIP if stop is None else stop
        self.tip = tip
        self.done = self.start >= self.stop
        self._edge: int | None = None

    def page(self) -> Steps[list[Event]]:
        """The next events; none at the end."""
        while not self.done:
            events = yield from (self._begin() if self._edge is None else self._older(self._edge))
            if events:
                return events
        return []

    def _begin(self) -> Steps[list[Event]]:
        tip = self.tip = self.tip or (yield from read_tip(self.stream))
        self._reach(min(tip.first, self.stop))
        return _part(self.stream, tip.types, tip.stored_events, tip.first, self.start, self.stop)[::-1]

    def _reach(self, edge: int) -> None:
        self._edge, self.done = edge, edge <= self.start

    def _older(self, edge: int) -> Steps[list[Event]]:
        """A page of items below an index, with the items between them that a plain read did not show."""
        assert self.tip is not None
        events: list[Event] = []
        items, _ = yield from guard.read_range(self.stream, 0, edge - 1, descending=True)
        for item in items:
            first = check_batch(self.stream, item)
            if item["n"] < edge:
                hidden, pruned = yield from self._hidden(item["n"], edge)
                events += hidden
                if pruned:
                    self.done = True
                    return events
            events += _part(self.stream, item["c"], item["e"], first, self.start, min(self.stop, edge))[::-1]
            self._reach(edge := first)
            if self.done:
                return events
        if not items:
            events += (yield from self._hidden(self.tip.floor, edge))[0]
            self.done = True
        return events

    def _hidden(self, low: int, high: int) -> Steps[tuple[list[Event], bool]]:
        """The items that a plain read did not show, and whether everything older was pruned."""
        items = yield from bridge(self.stream, low, high)
        events: list[Event] = []
        for item in items:
            events += _part(self.stream, item["c"], item["e"], item["i"], self.start, self.stop)
        return events[::-1], not items or items[0]["i"] > low
