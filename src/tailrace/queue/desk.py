"""Desks: what a consumer has in hand of each shard, and of each replay.

    fetched → emitted (written first) → in a lane → running → outcome → written

One thread makes the consumer's rounds, and handlers run in others; `Desks.lock` guards what both touch.  No thread
holds it while it waits for storage.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.log.read.fetched import Fetched
from tailrace.log.topic import as_records
from tailrace.queue.envelope import pushed_ms
from tailrace.queue.lanes import Entry, Lanes
from tailrace.queue.shard import ReplayShard, Shard
from tailrace.queue.window import LENGTH, Window


@dataclass(slots=True)
class Outcome:
    """How a handler ended with a message: "ack", "fail", "dead", or "error" (a failure that counts as no attempt,
    since its whole batch has failed, or it was done when it was handed out)."""

    entry: Entry
    what: str
    reason: str = ""


class Desk:
    """A consumer's work on one shard, or on one replay of it."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.fetched: deque[Entry] = deque()
        self.read = shard.window.upto
        """The next offset to fetch."""
        self.missing: list[int] = []
        """Offsets that the reader passed over because they have no record, until a write has marked them as purged."""
        self.entries: dict[int, Entry] = {}
        """Emitted messages that are not done, by offset."""
        self.outcomes: list[Outcome] = []
        self.leaving = False
        self.size = 0
        """Bytes of the messages that are fetched, and of those that are emitted and not done."""

    @property
    def partition(self) -> int:
        """The shard's number."""
        return self.shard.partition

    @property
    def until(self) -> int | None:
        """The offset at which a replay ends; None for a shard's own desk."""
        return self.shard.until if isinstance(self.shard, ReplayShard) else None

    @property
    def busy(self) -> bool:
        """Whether a handler has one of the desk's messages."""
        return any(entry.running for entry in self.entries.values())

    @property
    def free(self) -> bool:
        """Whether no handler, outcome or write is pending, so that the consumer can give the shard back."""
        return not self.busy and not self.outcomes and not self.shard.writing

    # -- fetched
    @property
    def stop(self) -> int:
        """The offset up to which the fetcher may read."""
        stop = self.shard.window.position + LENGTH
        return stop if self.until is None else min(stop, self.until)

    def take_in(self, topic: str, fetched: Fetched) -> None:
        """Queue up fetched messages to be emitted."""
        replayed = self.until is not None
        for _, q, offset, stamp, key, value, headers, attributes in as_records(topic, fetched):
            if offset != self.read:
                self.pass_to(offset)
            inserted = pushed_ms(stamp, headers) if headers else stamp
            self.fetched.append(Entry(self.shard, q, offset, inserted, key, value, attributes, replayed))
            self.size += self.fetched[-1].size
            self.read = offset + 1

    def pass_to(self, offset: int) -> None:
        """Go on at this offset; those before it that have no record (removed, or quarantined) count as missing."""
        if offset > self.read:
            self.missing += [n for n in range(self.read, offset) if not self.shard.window.is_done(n)]
            self.read = offset

    # -- emitted
    def room(self, batch_size: int, *, waits: bool) -> int:
        """How many more messages may be emitted.  If any message `waits` for another attempt, it takes no room, nor do
        those that wait behind it, so that other keys go on."""
        if not waits or len(self.entries) < batch_size:
            return batch_size - len(self.entries)
        return batch_size - sum(not entry.held_up for entry in self.entries.values())

    def emit(self, offsets: Collection[int]) -> list[Entry]:
        """Take in that a write has emitted these messages, and return them; forgets fetched ones that are done
        already."""
        out = []
        while self.fetched and self.fetched[0].offset < self.shard.window.upto:
            entry = self.fetched.popleft()
            if entry.offset in offsets and not self.leaving:
                entry.tries = self.shard.window.tried(entry.offset)
                entry.disappeared = self.shard.window.taken_over(entry.offset)
                self.entries[entry.offset] = entry
                out.append(entry)
            else:
                self.size -= entry.size
        return out

    def remove(self, offset: int) -> None:
        """Forget an emitted message, if it is there."""
        if (entry := self.entries.pop(offset, None)) is not None:
            self.size -= entry.size

    # -- written
    def told(self) -> list[Outcome]:
        """The outcomes that the next write stores: acknowledgements and failures.  `bury` writes dead letters."""
        return [outcome for outcome in self.outcomes if outcome.what != "dead"]

    def dead(self) -> list[Outcome]:
        """The outcomes of messages that become dead letters."""
        return [outcome for outcome in self.outcomes if outcome.what == "dead"]

    def applied(self, outcomes: Sequence[Outcome]) -> Window:
        """Return a copy of the shard's window with these outcomes, and with the missing offsets skipped."""
        new = self.shard.window.copy()
        for outcome in outcomes:
            if outcome.what == "ack":
                new.finish(outcome.entry.offset)
            else:
                new.fail(outcome.entry.offset, counts=outcome.what == "fail")
        for offset in self.missing:
            new.skip(offset)
        return new

    def put_back(self) -> Window:
        """Return the shard's window with the outcomes so far, as it is left to the next owner: messages that no handler
        has begun count no attempt."""
        new = self.applied(self.told())
        new.settle()
        begun = [offset for offset, entry in self.entries.items() if entry.running and not new.is_done(offset)]
        new.put_back(1 + max([*begun, *(outcome.entry.offset for outcome in self.dead())], default=-1))
        return new

    def forget(self, outcomes: Sequence[Outcome]) -> None:
        """Drop the messages that these written outcomes have settled, and the missing offsets that are stored as
        purged."""
        for outcome in outcomes:
            if outcome.what in ("ack", "dead"):
                self.remove(outcome.entry.offset)
        self.missing = [n for n in self.missing if not self.shard.window.is_done(n)]


class Desks(dict[Any, Desk]):
    """A consumer's desks, by shard number and by key of a replay's item, with the lanes in which their messages
    wait."""

    def __init__(self, *, in_order: bool) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.lanes = Lanes(in_order=in_order)
        self.paused = False
        """Whether the queue was paused when the consumer last looked."""

    def of_shard(self, q: int) -> list[Desk]:
        """The desk of a shard, and those of its replays."""
        return [desk for desk in self.values() if desk.partition == q]

    def waiting_bytes(self, limit: int) -> int:
        """Bytes of the messages that wait for a handler, if they may reach the limit; otherwise of all messages."""
        size = sum(desk.size for desk in self.values())
        if size < limit:
            return size
        return size - sum(entry.size for desk in self.values() for entry in desk.entries.values() if entry.running)

    def of_run(self, entry: Entry, run: int) -> Desk | None:
        """Return the desk of a message whose handler has ended; None if that run of the handler no longer counts."""
        if entry.dropped or entry.run != run or not entry.running:
            if entry.dropped and entry.running and entry.run == run:
                self.lanes.finish(entry)
            return None
        desk = self.get(entry.partition)
        if desk is not None and desk.shard is entry.shard:
            return desk
        return next((desk for desk in self.of_shard(entry.partition) if desk.shard is entry.shard), None)

    def leave(self, q: int) -> None:
        """Stop handing out a shard's messages, and drop those that no handler has begun: they are free for the next
        owner."""
        for desk in self.of_shard(q):
            desk.leaving = True
            desk.size -= sum(entry.size for entry in desk.fetched)
            desk.fetched.clear()
            for entry in [e for e in desk.entries.values() if not e.running]:
                self.lanes.drop(entry)
                if not any(outcome.entry is entry for outcome in desk.outcomes):
                    desk.remove(entry.offset)

    def drop(self, desk: Desk) -> None:
        """Drop a desk that now belongs to another consumer; with a shard, also its replays.  Outcomes of handlers that
        still run do not count."""
        whole = desk.until is None
        keys = [key for key, one in self.items() if one is desk or (whole and one.partition == desk.partition)]
        for key in keys:
            lost = self.pop(key)
            for entry in list(lost.entries.values()):
                self.lanes.drop(entry)
            lost.entries.clear()

    def drop_all(self) -> None:
        """Drop every desk; outcomes of handlers that still run do not count."""
        for desk in list(self.values()):
            for entry in list(desk.entries.values()):
                self.lanes.drop(entry)
        self.clear()
