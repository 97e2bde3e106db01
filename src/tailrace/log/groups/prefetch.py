"""Prefetch: a member's inbox, with the records it has fetched ahead, and what was handled, finished and committed.

Three threads or tasks work on an inbox: the fetcher, the keeper, which keeps the leases and commits, and the handler.
Each waits for its own signal. The lock guards the state; nothing holds it during a storage call.

    fetched → queue → in hand → finished → committed
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.coordination import lease
from tailrace.coordination.settings import from_names
from tailrace.coordination.watch import Signal
from tailrace.errors import BadSetting, Fenced
from tailrace.log.catalog import check_name
from tailrace.log.groups.member import PartitionBalance, PartitionMember
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.record import Record
from tailrace.storage import calls
from tailrace.storage.calls import Steps

if TYPE_CHECKING:
    from tailrace.log.topic import Position

SOON_IN_TTLS, NOT_LATE_IN_TTLS, AT_LATEST_IN_TTLS = 1 / 50, 1 / 10, 1 / 3
"""Pauses between two looks of the keeper at the group, in `ttl`s.  While the member does not have its share, the pauses
grow from the first to the second; once it has, they grow up to the third."""
MEMBER_CHECK_IN_TTLS = 1 / 20
"""How often the keeper checks whether members have come or gone, so that a new one soon has its share.  In the cloud,
where a look costs money, it looks each `NOT_LATE_IN_TTLS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer reads: the settings of `topic.consumer`."""

    member: str | None = None
    """A name for this member, which no other member may have at the same time; None: no name."""
    start: Position = "earliest"
    """Where a new group begins: "earliest", "latest", a time, an offset.  An existing group goes on where it was."""
    auto_commit: bool = True
    """Whether the consumer commits handled records by itself; else only `commit` does."""
    commit_interval: float = 1.0
    """The least number of seconds between two such commits."""
    max_seconds: float | None = None
    """How long a loop goes on; None: for ever."""
    ttl: float = lease.TTL_SECONDS
    """Seconds of silence after which this member considers another one dead."""
    prefetch: int = 16 * 1024 * 1024
    """Bytes fetched ahead."""
    from_floor: bool = False
    """Whether to go on at the floor if records that were not yet read have been removed; else that is an error."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ConsumerSettings:
        """The settings of a consumer from names and values; a typo or an unusable value is refused with a hint."""
        made = from_names(cls, "a consumer", given)
        for name, lowest in (("ttl", 0.001), ("commit_interval", 0.01), ("max_seconds", 0), ("prefetch", 1)):
            value = getattr(made, name)
            if value is not None and not (isinstance(value, (int, float)) and value >= lowest):
                raise BadSetting(f"a consumer's {name} is a number from {lowest}, not {value!r}")
        if made.member is not None:
            check_name("member", made.member)
        return made


@dataclass(slots=True, eq=False)
class PartitionProgress:
    """How far this member is with a partition that it holds; it takes a new one whenever it takes the partition."""

    epoch: int
    read: int
    """Up to where it has fetched."""
    finished: int
    """Up to where the handler is done."""
    committed: int
    end: int | None = None
    """The partition's end at the last look; None before the first."""
    revoked_at: float | None = None
    """When the member learned that it holds more than its share, and is to release this one."""
    queued: int = 0
    """How many fetched batches wait for the handler."""


class Inbox:
    """The records of a member's partitions on their way to a handler."""

    def __init__(
        self, member: PartitionMember, settings: ConsumerSettings, ready: Signal, due: Signal, more: Signal
    ) -> None:
        self.member = member
        self.ready, self.due, self.more = ready, due, more
        """Signals that there is something to do: for the handler, for the keeper, for the fetcher."""
        self.current: Record | Fetched | None = None
        """The record or batch in the handler's hand; the handler sets it without the lock."""
        self.interrupted = False
        """Set when the handler must not get the rest of the current batch; the handler then calls `finish` and `take`
        again."""
        self.error: Exception | None = None
        """Why the handler gets nothing more."""
        self._auto, self._interval = settings.auto_commit, settings.commit_interval
        self._prefetch = settings.prefetch
        self._reader = Reader(member.group.log, {}, from_floor=settings.from_floor, passed=0)
        self._lock = threading.Lock()
        self._held: dict[int, PartitionProgress] = {}
        self._past: dict[int, Fenced] = {}
        self._queue: deque[Fetched] = deque()
        self._hand: tuple[PartitionProgress, Fetched] | None = None
        self._size = 0
        self._settled = False
        self._next_look = self._next_glance = self._next_commit = 0.0
        self._pause = SOON_IN_TTLS
        self._glances = member.ttl * (MEMBER_CHECK_IN_TTLS if member.group.log.joins_inline else NOT_LATE_IN_TTLS)
        self._waits = False

    def fail(self, error: Exception) -> None:
        """End the inbox: the handler gets this error instead of further records."""
        self.error = self.error or error
        self.ready.set()

    # -- for the fetcher
    @property
    def full(self) -> bool:
        """Whether the inbox has fetched enough ahead for now."""
        return self._size >= self._prefetch

    def fetch(self) -> Steps[bool]:
        """Fetch more records into the inbox; False when everything has been fetched."""
        with self._lock:
            wanted = {q: held for q, held in self._held.items() if held.revoked_at is None}
            self._reader.positions = {q: held.read for q, held in wanted.items()}
            room = max(1, self._prefetch - self._size)
        fetched = yield from self._reader.poll(room)
        with self._lock:
            still = {q: held for q, held in wanted.items() if self._held.get(q) is held and held.revoked_at is None}
            before = [(held.end, held.finished) for held in still.values()]
            for one in fetched:
                if one.partition in still:
                    self._push(one)
            for q, held in still.items():
                held.read, held.end = self._reader.positions[q], self._reader.ends[q]
                if not held.queued and not self._in_hand(q):
                    held.finished = held.read  # records removed below the floor never come
            news = bool(fetched) or before != [(held.end, held.finished) for held in still.values()]
        if self._reader.waits and not fetched:
            self._hurry()
        if news:
            self.ready.set()
        return bool(fetched)

    def _hurry(self) -> None:
        """The topic has grown, and the group has not passed the growth: commit often, and look at the group often,
        until it has."""
        if not self._waits:
            self._waits = True
            self._next_look = self._next_commit = 0.0
            self.due.set()

    def _push(self, fetched: Fetched, front: bool = False) -> None:
        (self._queue.appendleft if front else self._queue.append)(fetched)
        self._held[fetched.partition].queued += 1
        self._size += fetched.data.nbytes

    def _pop(self) -> Fetched:
        fetched = self._queue.popleft()
        self._held[fetched.partition].queued -= 1
        self._size -= fetched.data.nbytes
        return fetched

    def _in_hand(self, partition: int) -> bool:
        return self._hand is not None and self._hand[1].partition == partition

    # -- for the handler
    def take(self) -> Fetched | None:
        """The next records for the handler; None if there are none yet.  The handler calls `finish` first."""
        with self._lock:
            while self._queue and self._hand is None:
                fetched = self._pop()
                self.more.set()
                held = self._held[fetched.partition]
                if held.revoked_at is None:
                    self._hand, self.current = (held, fetched), None
            return self._hand[1] if self._hand else None

    def finish(self) -> None:
        """Note that the current batch has been handled up to `current`; the rest goes back into the queue."""
        with self._lock:
            self.interrupted = False
            if self._hand is None:
                return
            held, fetched = self._hand
            end, now_held = self._given(fetched), self._held.get(fetched.partition)
            if now_held is held:
                held.finished = end
                if end < fetched.end:
                    self._push(fetched.between(end, fetched.end), front=True)
            self._hand = self.current = None
            revoked = now_held is not None and now_held.revoked_at is not None
        if revoked:
            self.due.set()

    def _given(self, fetched: Fetched) -> int:
        """The offset after the last record of the current batch that was handed out."""
        current = self.current
        if current is None:
            return fetched.offset
        return current.end if isinstance(current, Fetched) else current.offset + 1

    @property
    def caught_up(self) -> bool:
        """Whether this member has its share of the partitions, and the handler has got every record that the last look
        found."""
        with self._lock:
            given = self._positions(given=True)
            ends = {q: held.end for q, held in self._held.items()}
            return self._settled and all((end := ends[q]) is not None and at >= end for q, at in given.items())

    def positions(self) -> dict[int, int]:
        """The offset up to which each partition has been finished."""
        with self._lock:
            return self._positions(given=False)

    def _positions(self, given: bool) -> dict[int, int]:
        out = {q: held.finished for q, held in self._held.items()}
        if self._hand is not None and self._held.get(self._hand[1].partition) is self._hand[0]:
            (held, fetched), current = self._hand, self.current
            begun = fetched.offset if current is None else current.offset
            out[fetched.partition] = self._given(fetched) if given else max(begun, held.committed)
        return out

    # -- for the keeper
    def keep(self) -> Steps[float]:
        """One round of the keeper: it shares the partitions, releases those over the share and commits what is
        finished.  Returns the seconds until the next round."""
        now = yield from calls.now()
        due = now >= self._next_look
        if not due and now >= self._next_glance:
            due = yield from self.member.has_news()
            self._next_glance = now + self._glances
        if due:
            balance = yield from self.member.balance()
            self._rebalance(balance, now)
            self._next_look = now + self.member.ttl * (
                AT_LATEST_IN_TTLS if balance.settled and not self._waits else self._pause
            )
            self._pause = SOON_IN_TTLS if balance.settled else min(NOT_LATE_IN_TTLS, 2 * self._pause)
            self._next_glance = now + self._glances if balance.settled else math.inf
        yield from self._release(now)
        if self._auto and now >= self._next_commit:
            yield from self.commit(self.positions())
            self._next_commit = now + min(
                self._interval, self.member.ttl * SOON_IN_TTLS if self._waits else self._interval
            )
        after = yield from calls.now()
        look = min(self._next_look, self._next_glance)
        return max(0.0, (min(look, self._next_commit) if self._auto else look) - after)

    def _rebalance(self, balance: PartitionBalance, now: float) -> None:
        with self._lock:
            now_held = {q: held.epoch for q, held in self.member.held.items()}
            for q in [q for q, held in self._held.items() if now_held.get(q) != held.epoch]:
                self._lose(q, Fenced(f"partition {q} of group {self.member.group.name!r} has a newer owner"))
            for q in now_held.keys() - self._held.keys():
                at = self.member.positions[q]
                self._held[q] = PartitionProgress(now_held[q], read=at, finished=at, committed=at)
            for q in balance.over:
                if self._held[q].revoked_at is None:
                    self._held[q].revoked_at = now
            self.interrupted = self.interrupted or bool(balance.over)
            self._settled = balance.settled
            if balance.passed != self._reader.passed:
                self._reader.passed, self._waits = balance.passed, False
        self.more.set()
        self.ready.set()

    def _lose(self, partition: int, why: Fenced) -> None:
        """Drop a partition.  With manual commits, the next `commit()` raises `Fenced` if uncommitted records were
        delivered."""
        held = self._held.get(partition)
        if held is not None and not self._auto and self._positions(given=True)[partition] > held.committed:
            self._past[partition] = why
        for _ in range(len(self._queue)):
            if (one := self._pop()).partition != partition:
                self._push(one)
        self._held.pop(partition, None)
        self.interrupted = True

    def _release(self, now: float) -> Steps[None]:
        """Release partitions over the share, once none of their records is being handled and the finished ones are
        committed."""
        with self._lock:
            free = {q: held.finished for q, held in self._held.items() if self._may_go(q, held, now)}
        if self._auto and free:
            yield from self.commit(free)
        with self._lock:
            for q in free.keys() & self._held.keys():
                self._lose(q, Fenced(f"partition {q} was handed over to another member before a commit"))
        for q in free.keys() & self.member.held.keys():
            yield from self.member.release(q)
            self._next_look = now

    def _may_go(self, partition: int, held: PartitionProgress, now: float) -> bool:
        """Whether to release a partition now: with manual commits, the handler gets some time to commit first."""
        if held.revoked_at is None or self._in_hand(partition):
            return False
        return self._auto or held.committed >= held.finished or now - held.revoked_at >= self.member.ttl

    def commit(self, to: Mapping[int, int] | None = None) -> Steps[dict[int, Fenced]]:
        """Commit what is finished (by default all that the handler has got); drops the partitions that have a newer
        owner, and returns them."""
        with self._lock:
            to = self._positions(given=True) if to is None else to
        mine = {q: at for q, at in to.items() if q in self.member.held}
        fenced = yield from self.member.commit(mine)
        with self._lock:
            for q in mine.keys() & self._held.keys() - fenced.keys():
                self._held[q].committed = mine[q]
            for q, error in fenced.items():
                self._lose(q, error)
            fenced, self._past = {**self._past, **fenced}, {}
        return fenced

    def leave(self) -> Steps[None]:
        """Commit what is finished, release all partitions, and leave the group."""
        try:
            if self._auto:
                yield from self.commit(self.positions())
        finally:
            yield from self.member.leave()
