"""Lanes: which message may be handled next.  Two messages of one key never run at the same time, and they run in order.

Messages of one shard and key are in one lane; each message without a key has a lane to itself.  Not thread-safe: the
consumer holds `Desks.lock` around every call."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice


class Entry:
    """One emitted message on its way to a handler."""

    __slots__ = (
        "alone", "attributes", "disappeared", "dropped", "inserted", "key", "lane", "offset", "partition", "replayed",
        "run", "running", "shard", "tries", "value",
    )  # fmt: skip

    def __init__(
        self, shard: object, partition: int, offset: int, inserted: int, key: bytes | None, value: bytes | None,
        attributes: int, replayed: bool,
    ) -> None:  # fmt: skip
        self.shard, self.partition, self.offset, self.inserted = shard, partition, offset, inserted
        self.key, self.value, self.attributes, self.replayed = key, value, attributes, replayed
        self.running = self.dropped = False
        self.alone = False
        """Whether the handler gets it in a batch of its own: a batch with it has failed, and it may be the one to
        blame."""
        self.run = 0
        """How many times this consumer has handed it out; the outcome of an earlier run does not count."""
        self.tries = 0
        """Attempts so far that have failed, or whose consumer disappeared."""
        self.disappeared = 0
        """How many of the attempts ended with their consumer."""
        self.lane: Lane | None = None

    @property
    def why_given_up(self) -> str:
        """Why it is given up when its attempts are used up before it is handed out again."""
        failed = f"it failed {self.tries - self.disappeared} times, and " if self.tries > self.disappeared else ""
        return f"{failed}its consumer disappeared {self.disappeared} times while it was handled"

    @property
    def size(self) -> int:
        """Bytes of its content and key."""
        return len(self.value or b"") + len(self.key or b"")

    @property
    def held_up(self) -> bool:
        """Whether it waits until a failed message, which may be itself, is tried again."""
        return self.lane is not None and self.lane.state == "waiting"


class Lane:
    """The messages of one key, in order; `busy` counts those with a handler or on their way to the dead letters."""

    __slots__ = ("busy", "entries", "name", "state")

    def __init__(self, name: tuple[object, bytes] | None, entry: Entry) -> None:
        self.name, self.entries = name, deque([entry])
        self.busy, self.state = 0, "ready"
        """`state` is "ready", "taken" or "waiting" (until a failed message may be tried again)."""


class Lanes:
    """Emitted messages by shard and key, and the lanes whose next message may run."""

    def __init__(self, *, in_order: bool = True) -> None:
        self._in_order = in_order
        self._lanes: dict[tuple[object, bytes], Lane] = {}
        self._ready: deque[Lane] = deque()
        self._waiting: list[tuple[float, int, Lane]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._ready)

    @property
    def waits(self) -> bool:
        """Whether a failed message waits until it is tried again."""
        return bool(self._waiting)

    def add(self, entry: Entry) -> None:
        """Put an emitted message into the lane of its key."""
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
        """Hand out up to `most` messages as one batch; several of one lane only within such a batch."""
        out: list[Entry] = []
        while self._ready and len(out) < most:
            lane = self._ready[0]
            alone = bool(lane.entries) and lane.entries[0].alone  # a lane whose messages were all dropped is empty
            if alone and out:
                break
            out += self._hand_out(self._ready.popleft(), 1 if alone else most - len(out))
            if alone:
                break
        return out

    def _hand_out(self, lane: Lane, most: int) -> list[Entry]:
        out = list(islice(lane.entries, most))  # an `alone` entry comes first in its lane, never behind another
        for entry in out:
            entry.running = True
            entry.run += 1
        lane.busy += len(out)
        lane.state = "taken"
        self._go_on(lane)
        return out

    def finish(self, entry: Entry) -> None:
        """Remove a message that is done, or dropped; the next one of its lane may run."""
        lane = entry.lane
        if lane is None:
            return
        lane.busy -= entry.running
        entry.running, entry.lane = False, None
        lane.entries.remove(entry)
        self._go_on(lane)

    def retry(self, entry: Entry, at: float) -> None:
        """Make a failed message, and its lane, wait until `at`."""
        lane = entry.lane
        if lane is None:
            return
        lane.busy -= entry.running
        entry.running, lane.state = False, "waiting"
        self._count += 1
        heapq.heappush(self._waiting, (at, self._count, lane))

    def wake(self, now: float) -> float | None:
        """Make the lanes ready whose wait is over; returns when the next wait ends, or None."""
        while self._waiting and self._waiting[0][0] <= now:
            lane = heapq.heappop(self._waiting)[2]
            if lane.state == "waiting" and not any(lane is other for _, _, other in self._waiting):
                lane.state = "taken"
                self._go_on(lane)
        return self._waiting[0][0] if self._waiting else None

    def drop(self, entry: Entry) -> None:
        """Forget a message whose shard belongs to another consumer or is given back.  If a handler has it, its outcome
        will not count."""
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
