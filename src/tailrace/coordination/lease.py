"""Leases: which process owns something now, and the fence that keeps past owners out.

    $Lease-<name>, 0    owner, epoch, beat, shown{}: something that has one owner at a time

An owner is the number of one process life; 0 stands for no owner.  A process that takes a lease raises its epoch, and
every write of the owner is guarded by owner and epoch, so a past owner's write is refused however late it arrives.  A
holder raises its beat while it lives; a taker must have seen the same beat for `ttl` on its own monotonic clock, or
know that the holder's process, on this machine, has ended.  No clocks are compared: `expires` is shown to people.
Conditions are named as in the protocol's model, tests/model."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import guard, process
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.rules import rules
from tailrace.errors import Closed, Fenced, StorageError, TimedOut
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Absent, Add, Change, Check, Condition, Equals, Item, Key, Put, Set, Update

NOBODY = 0
TTL_SECONDS = 10.0
"""Seconds without a beat after which a holder counts as gone."""


def new_number(bits: Callable[[int], int] = secrets.randbits) -> int:
    """The number of a process life: 62 random bits, so no two lives share one, whatever their names are."""
    return bits(62) or 1


def shown(wall: float, ttl: float) -> dict[str, Any]:
    """What a lease shows people about its holder: where it runs, and until when no other process may take the lease."""
    host, expires = socket.gethostname(), int((wall + ttl) * 1000)
    return {"host": host, "pid": os.getpid(), "life": process.life(), "expires": expires}


class Beats:
    """Finds beats that stand still.  Pure: the caller passes what it read, and when it read it, by its own clock."""

    def __init__(self, ttl: float = TTL_SECONDS) -> None:
        self.ttl = ttl
        self.silent: frozenset[Hashable] = frozenset()
        """The holders whose beat had been standing still for `ttl` at the last look."""
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}

    def look(self, beats: Mapping[Any, Hashable], before: float, after: float) -> None:
        """Take in the beats that a read between these two moments returned; forgets holders that are not among them.

        The stretch in which a beat stood still runs from after its first sight to before its last: a process that is
        suspended between a read and a look at its clock must not mistake its own absence for another's."""
        self._seen = {
            holder: self._seen[holder] if holder in self._seen and self._seen[holder][0] == beat else (beat, after)
            for holder, beat in beats.items()
        }
        self.silent = frozenset(holder for holder, (_, since) in self._seen.items() if before - since >= self.ttl)


# --- what owners hold -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as its holder knows it: valid until a higher epoch is stored."""

    key: Key
    owner: int
    epoch: int

    def when(self, write: str = "commit") -> tuple[Condition, ...]:
        """The fence: the stored owner and epoch are still these."""
        return rules({f"{write}.owner": Equals("owner", self.owner), f"{write}.epoch": Equals("epoch", self.epoch)})

    def check(self) -> Check:
        """An action that lets a write of other items through only while this lease is held."""
        return Check(self.key, self.when("check"))

    def stands(self, item: Item | None) -> bool:
        """Whether a stored item still has this owner and epoch."""
        return item is not None and (item["owner"], item["epoch"]) == (self.owner, self.epoch)


def takable(item: Item, me: int, gone: bool) -> bool:
    """Whether a lease that is not held here may be taken: its holder is gone, it is free, or it names this process,
    because the answer to an earlier take was lost."""
    return gone or item["owner"] in (NOBODY, me)


def take(key: Key, me: int, seen: Item, *changes: Change) -> Steps[tuple[HeldLease, Item] | None]:
    """TAKE: own a lease under the next epoch, if owner and epoch are as seen; returns the item, too.

    None: another process was quicker, or there was no answer.  Then read the item; if it names this process, take the
    lease again."""
    when = rules({"take.seen": Equals("owner", seen["owner"])}) + rules({"take.seen": Equals("epoch", seen["epoch"])})
    outcome = yield from guard.attempt(Update(key, (Set("owner", me), Add("epoch", 1), *changes), when))
    if isinstance(outcome, Written) and outcome.items and (item := outcome.items[0]) is not None:
        return HeldLease(key, me, item["epoch"]), item
    return None


def release(held: HeldLease, patience: float = guard.PATIENCE) -> Steps[bool]:
    """Give a lease back, if it is still held; returns whether that made it free. `TimedOut` without an answer."""
    began = yield from calls.now()
    while True:
        give = Update(held.key, (Set("owner", NOBODY),), held.when("release"))
        outcome = yield from guard.attempt(give, patience=patience)
        if isinstance(outcome, Written):
            return True
        item = yield from stored(held.key, outcome)
        if not held.stands(item):
            return item is not None and (item["owner"], item["epoch"]) == (NOBODY, held.epoch)
        yield from waited(began, patience, "the release of a lease")


def stored(key: Key, outcome: Refused | Unanswered) -> Steps[Item | None]:
    """The lease's item after a write that failed: a refusal shows it; without an answer it is read."""
    return outcome.item if isinstance(outcome, Refused) else (yield from guard.read(key))


def waited(began: float, patience: float, what: str) -> Steps[None]:
    """A pause before a write of a lease is tried again; `TimedOut` when patience runs out."""
    if (yield from calls.now()) - began >= patience:
        raise TimedOut(f"{what} had no answer for {patience:g} s; it may have happened, or may happen yet")
    yield from calls.pause(0)


# --- one owner at a time ----------------------------------------------------------------------------------------------
def lease_key(name: str) -> Key:
    """The key of a lease."""
    return Key(f"$Lease-{name}")


def acquire(name: str, me: int, beats: Beats, show: Mapping[str, Any]) -> Steps[HeldLease | None]:
    """Take a lease that is free, or whose holder has ended or been silent for `ttl`; None: another process has it for
    now.  Only a second look shows that a holder is silent, so ask again with the same `beats`."""
    key = lease_key(name)
    while True:
        before = yield from calls.now()
        item = yield from guard.read(key)
        after = yield from calls.now()
        if item is None:
            fresh = {"owner": NOBODY, "epoch": 0, "beat": 0, "shown": {}}
            yield from guard.attempt(Put(key, fresh, (Absent(),)))
            continue
        holder = (item["owner"], item["epoch"])
        beats.look({holder: item["beat"]}, before, after)
        if not takable(item, me, holder in beats.silent or process.has_ended(item["shown"])):
            return None
        taken = yield from take(key, me, item, Set("shown", dict(show)))
        if taken is not None:
            return taken[0]


def beat(held: HeldLease, show: Mapping[str, Any]) -> Steps[bool]:
    """Raise the beat in a lease's item, to show that its holder lives; returns whether it still is the holder.  A lost
    answer does no harm."""
    raise_it = Update(held.key, (Add("beat", 1), Set("shown", dict(show))), held.when("beat"))
    return not isinstance((yield from guard.attempt(raise_it)), Refused)


class BeatThread:
    """A thread that beats every `every` seconds until it is stopped or `beat` answers False.

    It keeps beating while handlers run, and while the storage cannot be reached for a time."""

    def __init__(self, store: Store, beat: Callable[[], Steps[bool]], every: float) -> None:
        self._store, self._beat, self._every = store, beat, every
        self._stop = threading.Event()
        self.lost = False
        """Whether `beat` has answered False: another process has the lease."""
        self._thread = threading.Thread(target=self._run, name="tailrace-beat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every) and not self.lost:
            try:
                self.lost = not self._store.run(self._beat())
            except StorageError:
                continue
            except Closed:
                return

    def stop(self) -> None:
        """End the beats; returns when the last one has been sent."""
        self._store.check()
        self._stop.set()
        self._thread.join()


class Lease:
    """Something that has one owner at a time: one run of a pipeline, one upkeep of a home.  Used by one thread.

        with Lease(store, "upkeep") as lease:
            if lease.acquire():
                ...                      # and lease.check() among the actions of a write that must be fenced

    While it is held, its beat is raised in the background."""

    def __init__(
        self, store: Store, name: str, *, ttl: float = TTL_SECONDS, wall: Callable[[], float] = time.time
    ) -> None:
        self.name, self.ttl = name, ttl
        self._store, self._wall = store, wall
        self._me, self._beats = new_number(), Beats(ttl)
        self._held: HeldLease | None = None
        self._beating: BeatThread | None = None

    def acquire(self, wait: float = 0.0) -> bool:
        """Take the lease, waiting up to `wait` seconds; False if another process has it."""
        deadline = self._store.clock() + wait
        while not self.held:
            self._held = self._store.run(acquire(self.name, self._me, self._beats, self._show()))
            if self._held is not None:
                self._start(self._held)
            elif self._store.clock() >= deadline:
                return False
            else:
                self._store.sleep(min(self.ttl / 10, 1.0))
        return True

    def holder(self) -> Mapping[str, Any]:
        """What the lease shows about its holder: host, pid, expires; empty if there is no holder."""
        item = self._store.run(guard.read(lease_key(self.name)))
        return item["shown"] if item is not None and item["owner"] != NOBODY else {}

    def _start(self, held: HeldLease) -> None:
        if self._beating is not None:
            self._beating.stop()
        self._beating = BeatThread(self._store, lambda: beat(held, self._show()), self.ttl / 3)

    def _show(self) -> dict[str, Any]:
        return shown(self._wall(), self.ttl)

    @property
    def held(self) -> bool:
        """Whether it is held, as far as this process knows; only `check` in a write proves it."""
        held = self._held is not None and self._beating is not None and not self._beating.lost
        return held and not self._store.forked

    @property
    def epoch(self) -> int:
        """The epoch under which it is held: higher than that of any earlier holder."""
        return self._mine().epoch

    def check(self) -> Check:
        """An action that lets a write through only while this lease is held."""
        return self._mine().check()

    def _mine(self) -> HeldLease:
        self._store.check()
        if self._held is None:
            raise Fenced(f"the lease {self.name!r} is not held here; acquire() takes it")
        return self._held

    def release(self) -> None:
        """Give the lease back, if it is held. A forked child does nothing: the lease belongs to its parent."""
        if self._store.forked:
            return
        held, self._held = self._held, None
        if self._beating is not None:
            self._beating.stop()
            self._beating = None
        if held is not None:
            self._store.run(release(held))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
