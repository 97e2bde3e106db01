"""Prefetch: a member's inbox, with the records it has fetched ahead, and what was handled, finished and committed.

Three threads or tasks work on an inbox: the fetcher, the keeper, which keeps the leases and commits, and the handler.
Each waits for its own signal. The lock guards the state; nothing holds it during a storage call.

    fetched → queue → in hand → finished → committed
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
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
    ttl: float = lease.TTL
    """Seconds of silence after which this member considers another one dead."""
    prefetch: int = 16 * 1024 * 1024
    """Bytes fetched ahead."""
    from_floor: bool = False
    """Whether to go on at the floor if records that were not yet read have been removed; else that is an error."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ConsumerSettings:
        """Settings from names and values; a typo or an unusable value is refused with a hint."""
        made = from_names(cls, "a consumer", given)
        for name, lowest in (("ttl", 0.001), ("commit_interval", 0.01), ("max_seconds", 0), ("prefetch", 1)):
            value = getattr(made, name)
            if value is not None and not (isinstance(value, (int, float)) and value >= lowest):
                raise BadSetting(f"a consumer's {name} is a number from {lowest}, not {value!r}")
        if made.member is not None:
            check_name("member", made.member)
        return made


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
        self._epochs: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._past: dict[int, Fenced] = {}
        self._ends: dict[int, int] = {}
        self._revoked: dict[int, float] = {}
        self._queue: deque[Fetched] = deque()
        self._hand: tuple[int, Fetched] | None = None
        self._queued: Counter[int] = Counter()
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
        """Whether enough is fetched ahead for now."""
        return self._size >= self._prefetch

    def fetch(self) -> Steps[bool]:
        """Fetch more records; False when everything has been fetched."""
        with self._lock:
            epochs = {q: epoch for q, epoch in self._epochs.items() if q not in self._revoked}
            self._reader.positions = {q: self._read[q] for q in epochs}
            room = max(1, self._prefetch - self._size)
        fetched = yield from self._reader.poll(room)
        with self._lock:
            before = dict(self._ends), dict(self._finished)
            still = {q for q, epoch in epochs.items() if self._epochs.get(q) == epoch and q not in self._revoked}
            for one in fetched:
                if one.partition in still:
                    self._push(one)
            for q in still:
                self._read[q], self._ends[q] = self._reader.positions[q], self._reader.ends[q]
            for q in still:
                if not self._queued[q] and not self._in_hand(q):
                    self._finished[q] = self._read[q]  # records removed below the floor never come
            news = bool(fetched) or before != (self._ends, self._finished)
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
        self._queued[fetched.partition] += 1
        self._size += fetched.data.nbytes

    def _pop(self) -> Fetched:
        fetched = self._queue.popleft()
        self._queued[fetched.partition] -= 1
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
                if fetched.partition not in self._revoked:
                    self._hand, self.current = (self._epochs[fetched.partition], fetched), None
            return self._hand[1] if self._hand else None

    def finish(self) -> None:
        """Note that the current batch has been handled up to `current`; the rest goes back into the queue."""
        with self._lock:
            self.interrupted = False
            if self._hand is None:
                return
            epoch, fetched = self._hand
            q, end = fetched.partition, self._given(fetched)
            if self._epochs.get(q) == epoch:
                self._finished[q] = end
                if end < fetched.end:
                    self._push(fetched.between(end, fetched.end), front=True)
            self._hand = self.current = None
            revoked = q in self._revoked
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
            return self._settled and all(q in self._ends and at >= self._ends[q] for q, at in given.items())

    def positions(self) -> dict[int, int]:
        """The offset up to which each partition has been finished."""
        with self._lock:
            return self._positions(given=False)

    def _positions(self, given: bool) -> dict[int, int]:
        out = dict(self._finished)
        if self._hand is not None and self._epochs.get(self._hand[1].partition) == self._hand[0]:
            fetched, current = self._hand[1], self.current
            begun = fetched.offset if current is None else current.offset
            out[fetched.partition] = self._given(fetched) if given else max(begun, self._committed[fetched.partition])
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
            for q in [q for q, epoch in self._epochs.items() if now_held.get(q) != epoch]:
                self._lose(q, Fenced(f"partition {q} of group {self.member.group.name!r} has a newer owner"))
            for q in now_held.keys() - self._epochs.keys():
                self._epochs[q] = now_held[q]
                self._read[q] = self._finished[q] = self._committed[q] = self.member.positions[q]
            self._revoked |= {q: now for q in balance.over if q not in self._revoked}
            self.interrupted = self.interrupted or bool(balance.over)
            self._settled = balance.settled
            if balance.passed != self._reader.passed:
                self._reader.passed, self._waits = balance.passed, False
        self.more.set()
        self.ready.set()

    def _lose(self, partition: int, why: Fenced) -> None:
        """Drop a partition.  With manual commits, the next `commit()` raises `Fenced` if uncommitted records were
        delivered."""
        if not self._auto and self._positions(given=True).get(partition, 0) > self._committed.get(partition, 0):
            self._past[partition] = why
        self._shut(partition)

    def _shut(self, partition: int) -> None:
        for state in (self._epochs, self._read, self._finished, self._committed, self._ends, self._revoked):
            state.pop(partition, None)
        for _ in range(len(self._queue)):
            if (one := self._pop()).partition != partition:
                self._push(one)
        self.interrupted = True

    def _release(self, now: float) -> Steps[None]:
        """Release partitions over the share, once none of their records is being handled and the finished ones are
        committed."""
        with self._lock:
            free = {q: self._finished[q] for q in self._revoked if not self._in_hand(q) and self._may_go(q, now)}
        if self._auto and free:
            yield from self.commit(free)
        with self._lock:
            for q in free.keys() & self._epochs.keys():
                self._lose(q, Fenced(f"partition {q} was handed over to another member before a commit"))
        for q in free.keys() & self.member.held.keys():
            yield from self.member.release(q)
            self._next_look = now

    def _may_go(self, partition: int, now: float) -> bool:
        """Whether a partition may be released: with manual commits, the handler first gets some time to commit."""
        done = self._auto or self._committed[partition] >= self._finished[partition]
        return done or now - self._revoked[partition] >= self.member.ttl

    def commit(self, to: Mapping[int, int] | None = None) -> Steps[dict[int, Fenced]]:
        """Commit what is finished (by default all that the handler has got); drops the partitions that have a newer
        owner, and returns them."""
        with self._lock:
            to = self._positions(given=True) if to is None else to
        mine = {q: at for q, at in to.items() if q in self.member.held}
        fenced = yield from self.member.commit(mine)
        with self._lock:
            self._committed.update({q: at for q, at in mine.items() if q not in fenced})
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
