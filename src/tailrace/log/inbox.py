"""Inboxes: what one member has fetched ahead, handed out, finished and committed.

Three work on an inbox side by side, in threads or in asyncio: one fetches, one keeps the leases and commits, one
handles the records.  Each waits on an event of its own.  The lock guards the state, never while storage is asked.

    fetched → queue → in hand → finished → committed
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tailrace.coordination import lease
from tailrace.errors import BadSetting, Fenced
from tailrace.log.catalog import check_name
from tailrace.log.fetched import Fetched
from tailrace.log.member import Balance, Member
from tailrace.log.reader import Reader
from tailrace.log.record import Record
from tailrace.log.watch import Event
from tailrace.storage import calls
from tailrace.storage.calls import Steps

if TYPE_CHECKING:
    from tailrace.log.topic import Position

SOON, LONG = 1 / 50, 1 / 3
"""How often to look at the group, in `ttl`s: more often, for a while, as long as a member does not have its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """How a consumer reads; what `topic.consumer` can be given."""

    member: str | None = None
    """A name for this member, which no other may have at the same time; None: any."""
    start: Position = "earliest"
    """Where a new group begins: "earliest", "latest", a time, an offset.  One that exists goes on where it was."""
    auto_commit: bool = True
    """Whether what was handled is committed by itself; else only `commit` does."""
    commit_interval: float = 1.0
    """Seconds between such commits, at most one for each."""
    max_seconds: float | None = None
    """How long a loop goes on; None: for ever."""
    ttl: float = lease.TTL
    """Seconds of silence after which this member takes another for dead."""
    prefetch: int = 16 * 1024 * 1024
    """Bytes fetched ahead."""
    from_floor: bool = False
    """Whether to go on at the floor if records not yet read were removed; else that is an error."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Consuming:
        """From names and values; a typo or an unusable value is refused with a hint."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise BadSetting.unknown("a consumer", name, known)
        made = cls(**given)
        for name, lowest in (("ttl", 0.001), ("commit_interval", 0.01), ("max_seconds", 0), ("prefetch", 1)):
            value = getattr(made, name)
            if value is not None and not (isinstance(value, (int, float)) and value >= lowest):
                raise BadSetting(f"a consumer's {name} is a number from {lowest}, not {value!r}")
        if made.member is not None:
            check_name("member", made.member)
        return made


class Inbox:
    """The records of a member's partitions, on their way to a handler."""

    def __init__(self, member: Member, settings: Consuming, ready: Event, due: Event, more: Event) -> None:
        self.member = member
        self.ready, self.due, self.more = ready, due, more
        """Set when there is something to do for the one who handles, keeps, fetches."""
        self.current: Record | Fetched | None = None
        """What is being handled; set without the lock by the one who hands out."""
        self.interrupted = False
        """Set when the rest of what is in hand may no longer be handed out: `finish`, and `take` again."""
        self.error: Exception | None = None
        """Why nothing more will come."""
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
        self._next_look = self._next_commit = 0.0
        self._pause = SOON
        self._waits = False

    def fail(self, error: Exception) -> None:
        """Nothing more will come; the handler is told why."""
        self.error = self.error or error
        self.ready.set()

    # -- for the one who fetches
    @property
    def full(self) -> bool:
        """Whether enough is fetched ahead for now."""
        return self._size >= self._prefetch

    def fetch(self) -> Steps[bool]:
        """Fetch some more; False when everything has been fetched."""
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
                    self._finished[q] = self._read[q]  # what was removed below the floor is not waited for
            news = bool(fetched) or before != (self._ends, self._finished)
        if self._reader.waits and not fetched:
            self._hurry()
        if news:
            self.ready.set()
        return bool(fetched)

    def _hurry(self) -> None:
        """The topic has grown, and the group is not past that: commit and look at it often until it is."""
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

    # -- for the one who handles
    def take(self) -> Fetched | None:
        """What to handle next, now in hand; None if there is nothing yet.  `finish` comes first."""
        with self._lock:
            while self._queue and self._hand is None:
                fetched = self._pop()
                self.more.set()
                if fetched.partition not in self._revoked:
                    self._hand, self.current = (self._epochs[fetched.partition], fetched), None
            return self._hand[1] if self._hand else None

    def finish(self) -> None:
        """What is in hand has been handled, up to `current`; the rest of it is to be handed out again."""
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
        """The offset after what has been handed out of it."""
        current = self.current
        if current is None:
            return fetched.offset
        return current.end if isinstance(current, Fetched) else current.offset + 1

    @property
    def caught_up(self) -> bool:
        """Whether this member has its share of the partitions, and all there was at the last look was handed out."""
        with self._lock:
            given = self._positions(given=True)
            return self._settled and all(q in self._ends and at >= self._ends[q] for q, at in given.items())

    def positions(self) -> dict[int, int]:
        """How far each partition has been finished."""
        with self._lock:
            return self._positions(given=False)

    def _positions(self, given: bool) -> dict[int, int]:
        out = dict(self._finished)
        if self._hand is not None and self._epochs.get(self._hand[1].partition) == self._hand[0]:
            fetched, current = self._hand[1], self.current
            begun = fetched.offset if current is None else current.offset
            out[fetched.partition] = self._given(fetched) if given else max(begun, self._committed[fetched.partition])
        return out

    # -- for the one who keeps the leases
    def keep(self) -> Steps[float]:
        """One round: share the partitions, release what is over, commit what is finished; gives seconds to the next."""
        now = yield from calls.now()
        if now >= self._next_look:
            balance = yield from self.member.balance()
            self._rebalance(balance, now)
            self._next_look = now + self.member.ttl * (LONG if balance.settled and not self._waits else self._pause)
            self._pause = SOON if balance.settled else min(LONG, 2 * self._pause)
        yield from self._release(now)
        if self._auto and now >= self._next_commit:
            yield from self.commit(self.positions())
            self._next_commit = now + min(self._interval, self.member.ttl * SOON if self._waits else self._interval)
        after = yield from calls.now()
        due = min(self._next_look, self._next_commit) if self._auto else self._next_look
        return max(0.0, due - after)

    def _rebalance(self, balance: Balance, now: float) -> None:
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
        """Drop a partition; who commits himself is told of it, if anything he was given is not committed."""
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
        """Let go of partitions over the share, once nothing of them is in hand and what was finished is committed."""
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
        """Who commits himself is given some time to do so."""
        done = self._auto or self._committed[partition] >= self._finished[partition]
        return done or now - self._revoked[partition] >= self.member.ttl

    def commit(self, to: Mapping[int, int] | None = None) -> Steps[dict[int, Fenced]]:
        """Commit what is finished (default: all that was handed out); gives and drops what has a newer owner."""
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
        """Commit what is finished, give everything back, and leave the group."""
        try:
            if self._auto:
                yield from self.commit(self.positions())
        finally:
            yield from self.member.leave()
