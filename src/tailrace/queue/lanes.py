"""Lanes: which message may be handled next.  One key never runs twice at once, and its messages run in order.

Messages of one shard and key are in one lane; those without a key have a lane each.  Not thread-safe: the worker that
uses it holds a lock."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice


class Entry:
    """One emitted message on its way to a handler."""

    __slots__ = (
        "alone", "attributes", "dropped", "inserted", "key", "lane", "offset", "partition", "replayed", "run",
        "running", "shard", "tries", "value",
    )  # fmt: skip

    def __init__(
        self, shard: object, partition: int, offset: int, inserted: int, key: bytes | None, value: bytes | None,
        attributes: int, replayed: bool,
    ) -> None:  # fmt: skip
        self.shard, self.partition, self.offset, self.inserted = shard, partition, offset, inserted
        self.key, self.value, self.attributes, self.replayed = key, value, attributes, replayed
        self.running = self.dropped = False
        self.alone = False
        """Whether it goes to the handler by itself, since a batch with it has failed and it may be the one to blame."""
        self.run = 0
        """How many times it was handed out here; the end of an earlier run than this one does not count."""
        self.tries = 0
        """Attempts so far that have failed, or whose consumer disappeared."""
        self.lane: Lane | None = None


class Lane:
    """The messages of one key, in order; `busy` of them run or wait to be buried."""

    __slots__ = ("busy", "entries", "name", "state")

    def __init__(self, name: tuple[object, bytes] | None, entry: Entry) -> None:
        self.name, self.entries = name, deque([entry])
        self.busy, self.state = 0, "ready"
        """`state` is "ready", "taken" or "waiting" (for the time of another attempt)."""


class Lanes:
    """Emitted messages by shard and key, and which lanes can go on."""

    def __init__(self, *, in_order: bool = True) -> None:
        self._in_order = in_order
        self._lanes: dict[tuple[object, bytes], Lane] = {}
        self._ready: deque[Lane] = deque()
        self._waiting: list[tuple[float, int, Lane]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._ready)

    def add(self, entry: Entry) -> None:
        """A message was emitted."""
        name = (entry.partition, entry.key) if entry.key is not None and self._in_order else None
        found = self._lanes.get(name) if name is not None else None
        if found is not None:
            entry.lane = found
            found.entries.append(entry)
            return
        entry.lane = lane = Lane(name, entry)
        if name is not None:
            self._lanes[name] = lane
        self._ready.append(lane)

    def take(self, most: int = 1) -> list[Entry]:
        """Messages that may be handled now, as one batch: several of a lane only if more than one may be taken."""
        out: list[Entry] = []
        while self._ready and len(out) < most:
            lane = self._ready[0]
            alone = bool(lane.entries) and lane.entries[0].alone  # all of a lane may have been dropped
            if alone and out:
                break
            out += self._hand_out(self._ready.popleft(), 1 if alone else most - len(out))
            if alone:
                break
        return out

    def _hand_out(self, lane: Lane, most: int) -> list[Entry]:
        out = list(islice(lane.entries, most))  # what failed together are a lane's first: none is behind another
        for entry in out:
            entry.running = True
            entry.run += 1
        lane.busy += len(out)
        lane.state = "taken"
        self._go_on(lane)
        return out

    def finish(self, entry: Entry) -> None:
        """A message is done, or dropped: the next of its lane may go."""
        lane = entry.lane
        if lane is None:
            return
        lane.busy -= entry.running
        entry.running, entry.lane = False, None
        lane.entries.remove(entry)
        self._go_on(lane)

    def retry(self, entry: Entry, at: float) -> None:
        """A message is to be handled again at this time; until then its lane waits."""
        lane = entry.lane
        if lane is None:
            return
        lane.busy -= entry.running
        entry.running, lane.state = False, "waiting"
        self._count += 1
        heapq.heappush(self._waiting, (at, self._count, lane))

    def wake(self, now: float) -> float | None:
        """Let lanes go whose time has come; gives when the next one's will, if any waits."""
        while self._waiting and self._waiting[0][0] <= now:
            lane = heapq.heappop(self._waiting)[2]
            if lane.state == "waiting" and not any(lane is other for _, _, other in self._waiting):
                lane.state = "taken"
                self._go_on(lane)
        return self._waiting[0][0] if self._waiting else None

    def drop(self, entry: Entry) -> None:
        """Forget a message: its shard is another consumer's, or is given back.  One that runs is ignored when it
        ends."""
        entry.dropped = True
        if not entry.running:
            self.finish(entry)

    def _go_on(self, lane: Lane) -> None:
        if not lane.entries:
            if lane.name is not None and self._lanes.get(lane.name) is lane:
                del self._lanes[lane.name]
            lane.state = "taken"
        elif not lane.busy and lane.state == "taken":
            lane.state = "ready"
            self._ready.append(lane)
